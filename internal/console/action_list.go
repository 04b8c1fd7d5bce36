package console

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/redrive"
)

func toRun(_ url.Values, resp redrive.Response) string {
	if resp.Run == nil {
		return "/runs"
	}
	return "/runs/" + url.PathEscape(resp.Run.ID)
}

func toPlan(form url.Values, resp redrive.Response) string {
	id := form.Get("plan")
	if resp.Plan != nil {
		id = resp.Plan.ID
	}
	return "/plans/" + url.PathEscape(id)
}

func toRuns(url.Values, redrive.Response) string { return "/runs" }

// selectionFields are the fields of a form that select messages.
var selectionFields = []string{"class", "kind", "job", "subject", "message", "fingerprint", "error", "attribute", "older", "younger"}

// listFields are those of them whose flags take lists, textFields have flags of their own names or of others.
var (
	listFields = []string{"class", "kind", "job", "subject", "message", "fingerprint", "attribute"}
	textFields = map[string]string{"error": "--error", "older": "--older-than", "younger": "--younger-than"}
)

// selecting are the flags that select what a form selects.
func selecting(form url.Values) (flags []string) {
	for _, name := range selectionFields {
		for _, v := range words(form[name]) {
			if slices.Contains(listFields, name) {
				flags = append(flags, "--"+name, Listed(v))
			} else {
				flags = append(flags, textFields[name], v)
			}
		}
	}
	if len(flags) == 0 {
		return []string{"--all"}
	}
	return flags
}

// command is a command for the objects of some fields of a form. Words that a person has to replace are in capitals.
func command(words string, fields ...string) func(url.Values) []string {
	return func(form url.Values) []string {
		args := strings.Fields(words)
		for _, name := range fields {
			args = append(args, form[name]...)
		}
		return args
	}
}

// reasoned is a command that takes a reason.
func reasoned(of func(url.Values) []string) func(url.Values) []string {
	return func(form url.Values) []string { return append(of(form), "--reason", "WHY") }
}

// several is a command for one object by its name, or for a selection with a count.
func several(words string, fields ...string) func(url.Values) []string {
	return reasoned(func(form url.Values) []string {
		if n := form.Get("count"); n != "" {
			return append(append(strings.Fields(words), selecting(form)...), "--count", n)
		}
		return command(words, fields...)(form)
	})
}

// counted reads how many messages a selection has to select; 0 if the form names its objects.
func counted(form url.Values) (int, error) {
	text := strings.TrimSpace(form.Get("count"))
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, badRequest("count is %q, want a number of at least 1", text)
	}
	return n, nil
}

// objects says in words what a form names.
func objects(form url.Values) string {
	if n := form.Get("count"); n != "" {
		return "The " + n + " messages that are selected"
	}
	return "The message of " + form.Get("message") + form.Get("job")
}

// actions are everything that the console can change.
var actions = map[string]action{
	"plan": {
		Title: "Plan a redrive", Button: "Make the plan", Takes: selectionFields,
		Asks: []field{
			{Name: "rate", Label: "Messages per second", Hint: "Empty is the stack's default. -1 is no limit."},
			{Name: "canary", Label: "Jobs in the canary", Hint: "They go first and are judged. Empty is the stack's default."},
			{Name: "count", Label: "Open plan for at most this many messages", Hint: "For a DLQ that is too big to list: the selection is frozen instead of the messages. Empty freezes the messages."},
		},
		does: func(url.Values) []string {
			return []string{
				"The redrive function receives the messages of the DLQ, joins each with its ledger entry and freezes those that match. They are hidden for a moment, and their receive counts grow.",
				"Nothing is moved. The plan says what would become of each message, and whether somebody else has to approve it.",
			}
		},
		command: func(form url.Values) []string {
			return append(append([]string{"redrive", "plan"}, selecting(form)...), "--reason", "WHY")
		},
		request: func(form url.Values) (redrive.Request, error) {
			f, err := filterOf(form)
			if err != nil {
				return redrive.Request{}, err
			}
			r := redrive.Request{Action: "plan", Select: selection(f)}
			for name, to := range map[string]*int{"rate": &r.RatePerSecond, "canary": &r.Canary, "count": &r.Count} {
				if text := strings.TrimSpace(form.Get(name)); text != "" {
					if *to, err = strconv.Atoi(text); err != nil {
						return r, badRequest("%s is %q, want a whole number", name, text)
					}
				}
			}
			r.Open = r.Count != 0
			return r, nil
		},
		next: toPlan,
	},
	"approve": {
		Title: "Approve a plan", Button: "Approve the plan", Takes: []string{"plan"}, Plan: true,
		does: func(form url.Values) []string {
			return []string{"Plan " + form.Get("plan") + " may then run. Nothing is moved yet.",
				"Whoever made the plan cannot approve it. The approval is recorded with your name and reason."}
		},
		command: reasoned(command("redrive approve", "plan")),
		request: func(form url.Values) (redrive.Request, error) {
			return redrive.Request{Action: "approve", Plan: form.Get("plan")}, nil
		},
		next: toPlan,
	},
	"run": {
		Title: "Run a plan", Button: "Start the run", Takes: []string{"plan"}, Plan: true,
		does: func(form url.Values) []string {
			return []string{"The messages of plan " + form.Get("plan") + " move from the DLQ to the recovery lane: a canary first, which the ledger judges, then the rest at the plan's rate.",
				"Their jobs run again. The run stops itself when too many of them fail, and you can stop it at any time."}
		},
		command: command("redrive run", "plan"),
		do: func(ctx context.Context, stack Stack, form url.Values, by, reason string) (redrive.Response, error) {
			return stack.Run(ctx, redrive.Request{Action: "run", Plan: form.Get("plan"), By: by, Reason: reason})
		},
		next: toRun,
	},
	"continue": {
		Title: "Continue a run", Button: "Continue the run", Takes: []string{"run"},
		does: func(form url.Values) []string {
			return []string{"Run " + form.Get("run") + " goes on where it halted, with a fresh canary."}
		},
		command: command("redrive run", "run"),
		do: func(ctx context.Context, stack Stack, form url.Values, by, reason string) (redrive.Response, error) {
			return stack.Run(ctx, redrive.Request{Action: "run", Run: form.Get("run"), By: by, Reason: reason})
		},
		next: toRun,
	},
	"stop": {
		Title: "Stop a run", Button: "Stop the run", Takes: []string{"run"},
		does: func(form url.Values) []string {
			return []string{"Run " + form.Get("run") + " stops before its next cohort. What it has sent goes on. It can be continued."}
		},
		command: command("redrive stop", "run"),
		request: func(form url.Values) (redrive.Request, error) {
			return redrive.Request{Action: "stop", Run: form.Get("run")}, nil
		},
		next: toRun,
	},
	"revoke": {
		Title: "Revoke a plan or a run", Button: "Revoke it for good", Takes: []string{"plan", "run"},
		does: func(form url.Values) []string {
			return []string{"Plan or run " + form.Get("plan") + form.Get("run") + " ends for good.",
				"Jobs of it that still wait go back to the DLQ when they are delivered. A job that has begun goes on."}
		},
		command: reasoned(command("redrive revoke", "plan", "run")),
		request: func(form url.Values) (redrive.Request, error) {
			return redrive.Request{Action: "revoke", Plan: form.Get("plan"), Run: form.Get("run")}, nil
		},
		next: toRun,
	},
	"stop-all": {
		Title: "Throw the kill switch", Button: "Stop every redrive",
		does: func(url.Values) []string {
			return []string{"Every redrive of the stack stops before its next cohort, and none starts until the switch is released."}
		},
		command: command("redrive stop"),
		do: func(ctx context.Context, stack Stack, _ url.Values, by, reason string) (redrive.Response, error) {
			return stack.Stop(ctx, by, reason)
		},
		next: toRuns,
	},
	"resume": {
		Title: "Release the kill switch", Button: "Release the switch",
		does: func(url.Values) []string {
			return []string{"Redrives may run again. None continues by itself."}
		},
		command: reasoned(command("redrive resume")),
		request: func(url.Values) (redrive.Request, error) { return redrive.Request{Action: "resume"}, nil },
		next:    toRuns,
	},
	"discard": {
		Title: "Discard messages", Button: "Discard", Takes: append(slices.Clone(selectionFields), "count"),
		does: func(form url.Values) []string {
			return []string{objects(form) + ": it goes into the audit, its job ends for good, and the message is deleted. No copy of the job runs.",
				"Of a copy, and of a message with another payload than its job's, only the message is deleted: the job stays as it is.",
				"To undo it, send the message again from the page of the audit."}
		},
		command: several("discard", "message", "job"),
		request: func(form url.Values) (redrive.Request, error) {
			n, err := counted(form)
			if n == 0 || err != nil {
				return redrive.Request{Action: "discard", Messages: words(form["message"]), Jobs: words(form["job"])}, err
			}
			f, err := filterOf(form)
			return redrive.Request{Action: "discard", Select: selection(f), Count: n}, err
		},
		next: func(_ url.Values, resp redrive.Response) string { return "/audit?of=" + url.QueryEscape(resp.Discard) },
	},
	"resend": {
		Title: "Send a discarded message again", Button: "Make the plan", Takes: []string{"discard", "message"},
		does: func(form url.Values) []string {
			return []string{"A plan is made that sends message " + form.Get("message") + " again, which discard " + form.Get("discard") + " took from the DLQ, as the audit has it.",
				"Nothing is sent before somebody else approves the plan and it is run."}
		},
		command: reasoned(command("redrive resend", "discard", "message")),
		request: func(form url.Values) (redrive.Request, error) {
			return redrive.Request{Action: "resend", Run: form.Get("discard"), Message: form.Get("message")}, nil
		},
		next: toPlan,
	},
	"mend": {
		Title: "Mend a message", Button: "Make the plan", Takes: []string{"message", "job"},
		Asks: []field{{Name: "body", Text: true, Label: "The whole body, mended", Hint: "\"acklast redrive mend MESSAGE > body.json\" prints the body that it has, for you to edit. The job's key has to stay the same."}},
		does: func(form url.Values) []string {
			return []string{"A plan is made that sends the message of " + form.Get("message") + form.Get("job") + " with the body that you give. The audit keeps both bodies.",
				"Nothing is sent before somebody else approves that body and the plan is run. \"acklast redrive approve\" shows what the body changes."}
		},
		command: reasoned(func(form url.Values) []string {
			return append(command("redrive mend", "message", "job")(form), "--file", "body.json")
		}),
		request: func(form url.Values) (redrive.Request, error) {
			// Browsers send the lines of a text with CRLF; the newline at its end is no part of the body.
			body := strings.TrimSuffix(strings.ReplaceAll(form.Get("body"), "\r\n", "\n"), "\n")
			if strings.TrimSpace(body) == "" {
				return redrive.Request{}, badRequest("the mended body is empty")
			}
			return redrive.Request{Action: "mend", Message: form.Get("message"), Job: form.Get("job"), Body: body}, nil
		},
		next: toPlan,
	},
	"cancel": {
		Title: "Cancel a job", Button: "Cancel the job", Takes: []string{"job"},
		Asks: []field{{Name: "not-before", Label: "The job's own notBefore", Hint: "Only if the job was not delivered yet, such as 2027-06-01T08:00:00Z: it stays cancelled until after that time."}},
		does: func(form url.Values) []string {
			return []string{"Job " + form.Get("job") + " ends as cancelled and does not run. If it waits in EventBridge Scheduler, its schedule is deleted.",
				"It is refused if the job has ended, if a delivery holds it, or if it may have had its effect."}
		},
		command: reasoned(command("cancel", "job")),
		do: func(ctx context.Context, stack Stack, form url.Values, by, reason string) (redrive.Response, error) {
			var notBefore time.Time
			if text := strings.TrimSpace(form.Get("not-before")); text != "" {
				at, err := time.Parse(time.RFC3339, text)
				if err != nil {
					return redrive.Response{}, badRequest("notBefore is %q, want a time such as 2027-06-01T08:00:00Z", text)
				}
				notBefore = at
			}
			return stack.Cancel(ctx, form.Get("job"), notBefore, by, reason)
		},
		next: toJob,
	},
	"pause-lane":      lane("pause", "Pause", false, "Nothing is received from the lane any more. Invocations that run go on. Messages stay where they are and keep their age: SQS deletes them when the lane's retention ends."),
	"resume-lane":     lane("resume", "Resume", true, "The lane's messages are received again."),
	"decide-sent":     decide(ledger.Sent, "The effect happened", "The job becomes final. It does not run again."),
	"decide-not-sent": decide(ledger.NotSent, "The effect did not happen", "The job may be redriven once, and is then sent without a look-up. If the effect did happen, it happens twice."),
	"pause": {
		Title: "Pause a kind", Button: "Pause the kind", Takes: []string{"kind"},
		does: func(form url.Values) []string {
			return []string{"No attempt at a job of the kind " + form.Get("kind") + " starts, within half a minute. Its jobs wait on the recovery lane, without an attempt. Their deadlines go on."}
		},
		command: reasoned(func(form url.Values) []string { return []string{"pause", "--kind", form.Get("kind")} }),
		request: func(form url.Values) (redrive.Request, error) {
			return redrive.Request{Action: "pause", Kind: form.Get("kind")}, nil
		},
		next: func(url.Values, redrive.Response) string { return "/" },
	},
	"unpause": {
		Title: "Let a kind run again", Button: "End the pause", Takes: []string{"kind"},
		does: func(form url.Values) []string {
			return []string{"Jobs of the kind " + form.Get("kind") + " run when they look again, within five minutes."}
		},
		command: reasoned(func(form url.Values) []string { return []string{"resume", "--kind", form.Get("kind")} }),
		request: func(form url.Values) (redrive.Request, error) {
			return redrive.Request{Action: "unpause", Kind: form.Get("kind")}, nil
		},
		next: func(url.Values, redrive.Response) string { return "/" },
	},
}

// lane is an action on a lane.
func lane(use, verb string, running bool, means string) action {
	return action{
		Title: verb + " a lane", Button: verb + " the lane", Takes: []string{"lane"}, Unrecorded: true,
		does: func(form url.Values) []string {
			return []string{"The event source mapping of the " + form.Get("lane") + " lane is changed. " + means,
				"It takes Lambda some seconds, and the overview shows it within a minute. A lane keeps no record of who did it; on AWS, CloudTrail does."}
		},
		command: command(use, "lane"),
		do: func(ctx context.Context, stack Stack, form url.Values, _, _ string) (redrive.Response, error) {
			q := job.Queue(form.Get("lane"))
			if q != job.Source && q != job.Recovery {
				return redrive.Response{}, badRequest("%q is no lane, want %s or %s", q, job.Source, job.Recovery)
			}
			return redrive.Response{}, stack.SetLane(ctx, q, running)
		},
		next: func(url.Values, redrive.Response) string { return "/" },
	}
}

func toJob(form url.Values, _ redrive.Response) string {
	return "/jobs?q=" + url.QueryEscape(form.Get("job"))
}

func decide(what ledger.DecisionKind, title, means string) action {
	return action{
		Title: "Decide: " + title, Button: "Record the decision", Takes: append(slices.Clone(selectionFields), "count"),
		does: func(form url.Values) []string {
			if n := form.Get("count"); n != "" {
				return []string{"The ambiguous jobs of the " + n + " messages that are selected are decided as " + string(what) + ". For each: " + means}
			}
			return []string{"The ambiguous job " + form.Get("job") + " is decided as " + string(what) + ".", means}
		},
		command: several("decide --"+string(what), "job"),
		request: func(form url.Values) (redrive.Request, error) {
			n, err := counted(form)
			if n == 0 || err != nil {
				return redrive.Request{Action: "decide", Job: form.Get("job"), Decision: what}, err
			}
			f, err := filterOf(form)
			return redrive.Request{Action: "decide", Select: selection(f), Count: n, Decision: what}, err
		},
		next: func(form url.Values, resp redrive.Response) string {
			if form.Get("count") != "" {
				return "/dlq"
			}
			return toJob(form, resp)
		},
	}
}
