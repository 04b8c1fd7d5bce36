package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast"
	"acklast/internal/job"
	"acklast/internal/kinds"
	"acklast/internal/kinds/reservation"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/local"
	"acklast/internal/local/faults"
	"acklast/internal/redrive"
	"acklast/internal/topology"
)

// redriver is the compiled redrive function, built once.
var redriver = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(scratch, "redrive")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	root, _ := local.FindModule(".")
	out := filepath.Join(dir, "bootstrap")
	return out, local.Build(context.Background(), root, "./functions/redrive", out, os.Stderr)
})

// governed is a stack of this test's own with the redrive function, and a proxy between that function and AWS.
type governed struct {
	*embedded
	between *faults.Proxy
	name    string
}

func newGoverned(t *testing.T, numbers topology.Redrive) *governed {
	t.Helper()
	return newGovernedOf(t, numbers, 2)
}

// newGovernedOf is newGoverned with the given number of processes of the redrive function.
func newGovernedOf(t *testing.T, numbers topology.Redrive, processes int, environment ...string) *governed {
	t.Helper()
	needsEmbedded(t)
	t.Parallel()
	binary, err := redriver()
	if err != nil {
		t.Fatal(err)
	}
	stack := fmt.Sprintf("e2e-r%d-%d", time.Now().UnixNano(), governedStacks.Add(1))
	g := &governed{embedded: &embedded{tally: local.NewTally(), logs: &lockedBuffer{}}, name: topology.NamesOf(stack).RedriveFunction}
	settings := topology.Scaled()
	env, err := local.Start(t.Context(), local.Config{Kinds: acklast.Describe(kinds.All()...),
		Stack: stack, Settings: settings, WorkerBinary: bootstrap, Grace: time.Second, Logs: multi{g.tally, g.logs},
		WorkerEndpoint: func(endpoint string) string {
			g.faults = faults.New(endpoint)
			record(g.faults, "worker", stack)
			t.Cleanup(g.faults.Close)
			return g.faults.URL()
		},
		Functions: []local.Function{{
			Name: g.name, Binary: binary, Timeout: numbers.Timeout, MemoryMB: 256, Processes: processes,
			EnvFor: func(urls topology.QueueURLs) map[string]string {
				all := redrive.LocalEnvironment(stack, urls, settings, numbers)
				for _, variable := range environment {
					name, value, _ := strings.Cut(variable, "=")
					all[name] = value
				}
				return all
			},
			EndpointFor: func(endpoint string) string {
				g.between = faults.New(endpoint)
				record(g.between, "redrive", stack)
				t.Cleanup(g.between.Close)
				return g.between.URL()
			},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	g.env = env
	t.Cleanup(func() {
		_ = env.Close()
		for _, found := range secrets(g.logs.String()) {
			t.Errorf("the functions' logs: one %s", found)
		}
		if t.Failed() {
			t.Logf("the functions' logs:\n%s", g.logs)
		}
	})
	g.system = newSystem(t, env.AWSConfig(), env.Names(), env.QueueURLs(), settings)
	return g
}

var governedStacks atomic.Int64

// try makes a request of the redrive function.
func (g *governed) try(r redrive.Request) (redrive.Response, error) {
	g.Helper()
	if r.By == "" {
		r.By, r.Reason = "ada", "test"
	}
	raw, err := json.Marshal(r)
	if err != nil {
		g.Fatal(err)
	}
	var resp redrive.Response
	out, err := g.env.Invoke(g.Context(), g.name, raw)
	if err == nil {
		err = json.Unmarshal(out, &resp)
	}
	return resp, err
}

func (g *governed) ask(r redrive.Request) redrive.Response {
	g.Helper()
	resp, err := g.try(r)
	if err != nil {
		g.Fatalf("%s: %v", r.Action, err)
	}
	return resp
}

// supply writes the missing record by hand: held, with its units taken.
func (g *governed) supply(h reservation.Hold) {
	g.Helper()
	str := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
	num := func(n int64) types.AttributeValue { return &types.AttributeValueMemberN{Value: fmt.Sprint(n)} }
	_, err := g.db.PutItem(g.Context(), &dynamodb.PutItemInput{TableName: aws.String(g.names.Table("reservations")), Item: map[string]types.AttributeValue{
		"reservation_id": str(h.ReservationID), "command_id": str(h.CommandID), "resource_id": str(h.ResourceID), "units": num(h.Units),
		"state": str(string(reservation.Held)), "expires_at": num(h.ExpiresAt.UnixMilli()), "updated_at": num(time.Now().UnixMilli()),
	}})
	if err != nil {
		g.Fatal(err)
	}
	_, err = g.db.UpdateItem(g.Context(), &dynamodb.UpdateItemInput{
		TableName: aws.String(g.names.Table("resources")), Key: map[string]types.AttributeValue{"resource_id": str(h.ResourceID)},
		UpdateExpression:          aws.String("SET #available = #available - :units"),
		ExpressionAttributeNames:  map[string]string{"#available": "available"},
		ExpressionAttributeValues: map[string]types.AttributeValue{":units": num(h.Units)},
	})
	if err != nil {
		g.Fatal(err)
	}
}

// The drill: one job without its record, healthy ones beside it, a malformed one.
func TestRedriveDrill(t *testing.T) {
	g := newGoverned(t, topology.ScaledRedrive())
	missing := g.hold("missing", 2, 0)
	g.send(g.body(missing), map[string]job.Attribute{
		"tenant": {Type: "String", String: "blue"}, "raw": {Type: "Binary.z", Binary: []byte{0, 255}}})
	g.send(`{"kind":"reservation.expire","payload":`, nil)
	healthy := []reservation.Hold{}
	for i := range 5 {
		healthy = append(healthy, g.place(g.hold(fmt.Sprint("healthy-", i), 1, 3*time.Second)))
	}
	for _, h := range healthy {
		g.ends(h, ledger.Done)
	}
	g.ends(missing, ledger.Isolated)
	g.until("both are on the DLQ", func() bool { return g.depth(job.DLQ).Visible == 2 })

	census := g.ask(redrive.Request{Action: redrive.ActionCensus}).Census
	if census == nil {
		t.Fatal("no census was answered")
	}
	if census.Jobs != 1 || census.Classes[job.Rejected] != 1 {
		t.Errorf("the census counts %d jobs, %v, want one that was rejected", census.Jobs, census.Classes)
	}
	if census.Unrecorded != 1 {
		t.Errorf("the census counts %d messages without an entry, want the malformed one", census.Unrecorded)
	}

	seen := g.ask(redrive.Request{Action: "inspect"})
	if seen.Scan.Seen != 2 || len(seen.Groups) != 2 {
		t.Fatalf("inspected %+v %+v", seen.Scan, seen.Groups)
	}
	var id, bad string
	for _, group := range seen.Groups {
		switch group.Class {
		case job.Rejected:
			id = group.Samples[0].Message
		case job.Invalid:
			bad = group.Samples[0].Message
		}
	}
	shown := g.ask(redrive.Request{Action: "inspect", Message: id, WithBody: true}).Message
	if shown == nil || shown.Body != g.body(missing) || shown.Attributes["raw"] != "Binary.z" || shown.Entry == nil || shown.Entry.Redrives != 0 {
		t.Fatalf("shown %+v", shown)
	}
	g.wantDLQ(2)

	// Its record is supplied, and only this job is redriven.
	g.supply(missing)
	got := g.ask(redrive.Request{Action: "run", Message: id})
	if got.Run == nil || got.Run.State != redrive.Done || got.Run.Counts["sent"] != 1 {
		t.Fatalf("run %+v %s", got.Run, got.Refused)
	}
	e := g.ends(missing, ledger.Done)
	if e.Redrives != 1 || e.Run != got.Run.ID {
		t.Errorf("entry %+v", e)
	}
	g.wantDLQ(1)
	again := g.ask(redrive.Request{Action: "run", Message: id})
	if !strings.Contains(again.Refused, "nothing on the DLQ") {
		t.Errorf("its second redrive: %+v", again)
	}
	g.dry() // so everything is logged
	if n := g.tally.Effects(g.key(missing)); n != 1 {
		t.Errorf("%d effects", n)
	}
	discarded := g.ask(redrive.Request{Action: "discard", Messages: []string{bad}})
	if len(discarded.Results) != 1 || discarded.Results[0].Result != "discarded" {
		t.Errorf("discard %+v", discarded)
	}
	g.wantDLQ(0)
}

// One job of many is chosen by its id: the others keep ids, bodies and attributes.
func TestRedriveOneOfMany(t *testing.T) {
	numbers := topology.ScaledRedrive()
	// The scan is bounded only by count, so that the speed of the machine does not decide.
	numbers.Timeout, numbers.ScanTime, numbers.ScanMessages = 15*time.Minute, 14*time.Minute, 20_000
	g := newGoverned(t, numbers)
	const many = 10_000
	want := map[string]int{}
	moves := make([]lanes.Move, 0, 1000)
	flush := func() {
		for _, err := range g.queues.Send(t.Context(), job.DLQ, moves) {
			if err != nil {
				t.Fatal(err)
			}
		}
		moves = moves[:0]
	}
	content := func(m job.Message) string {
		return fmt.Sprint(m.Body, m.Attributes["n"], m.Memory.Class, m.Memory.Error)
	}
	for i := range many {
		h := g.hold(fmt.Sprint("many-", i), 1, 0)
		m := job.Message{Body: g.body(h), Attributes: map[string]job.Attribute{"n": {Type: "Number", String: fmt.Sprint(i)}},
			Memory: job.Memory{Class: job.Transient, Cause: job.CauseAttempts, Error: "down", At: time.Now().UTC().Truncate(time.Millisecond)}}
		want[content(m)]++
		if moves = append(moves, lanes.Move{Message: m}); len(moves) == cap(moves) {
			flush()
		}
	}
	flush()
	h := g.hold("many-77", 1, 0)
	g.supply(h)
	var found redrive.Response
	g.until("all are seen", func() bool {
		found = g.ask(redrive.Request{Action: "inspect", Select: &redrive.Filter{Keys: []string{g.key(h)}}})
		if found.Scan.Seen != many && found.Scan.Partial == "" {
			t.Fatalf("saw %d of %d and does not say that it is a part", found.Scan.Seen, many)
		}
		return found.Scan.Seen == many
	})
	if len(found.Groups) != 1 || found.Groups[0].Count != 1 {
		t.Fatalf("inspected %+v %+v", found.Scan, found.Groups)
	}
	got := g.ask(redrive.Request{Action: "run", Message: found.Groups[0].Samples[0].Message})
	if got.Run == nil {
		t.Fatalf("refused: %s", got.Refused)
	}
	g.until("the run is done", func() bool {
		got = g.ask(redrive.Request{Action: "run", Run: got.Run.ID})
		return got.Run != nil && got.Run.State == redrive.Done
	})
	g.ends(h, ledger.Done)
	ids := map[string]bool{}
	g.until("the others are visible", func() bool {
		for {
			received, err := g.queues.Receive(t.Context(), job.DLQ, 10, 30*time.Second, 0)
			if err != nil { // an answer was lost: its hidden messages come back
				t.Log(err)
				continue
			}
			if len(received) == 0 {
				return len(ids) >= many-1
			}
			for _, m := range received {
				if !ids[m.ID] {
					ids[m.ID] = true
					want[content(m.Message)]--
				}
			}
		}
	})
	if len(ids) != many-1 {
		t.Errorf("%d others, want %d", len(ids), many-1)
	}
	missing := 0
	for _, n := range want {
		if n != 0 {
			missing += n
		}
	}
	if missing != 1 {
		t.Errorf("%d bodies are not there as they were, want the redriven one alone", missing)
	}
}

// A budget that was used up is fresh after a redrive, and the generation limit ends redrives.
func TestRedriveBudgetAndGenerations(t *testing.T) {
	g := newGoverned(t, topology.ScaledRedrive())
	h := g.hold("spent", 2, 0)
	mend := g.damaged(h, 0)
	g.place(h)
	g.ends(h, ledger.Isolated)
	for generation := 1; generation <= g.settings.MaxRedrives; generation++ {
		before := g.entry(g.key(h)).Attempts
		plan := g.ask(redrive.Request{Action: "plan", Select: &redrive.Filter{All: true}}).Plan
		if plan == nil || plan.Actions[redrive.Redrive] != 1 {
			t.Fatalf("generation %d: plan %+v", generation, plan)
		}
		run := g.ask(redrive.Request{Action: "run", Plan: plan.ID}).Run
		if run.State != redrive.Halted || !strings.Contains(run.Why, "canary") {
			t.Fatalf("generation %d: %+v", generation, run)
		}
		e := g.ends(h, ledger.Isolated)
		if e.Redrives != generation || e.Attempts-before != g.settings.MaxAttempts {
			t.Fatalf("generation %d: %d attempts, entry %+v", generation, e.Attempts-before, e)
		}
		g.until("it is on the DLQ", func() bool { return g.depth(job.DLQ).Visible == 1 })
	}
	mend()
	past := g.ask(redrive.Request{Action: "plan", Select: &redrive.Filter{All: true}})
	if !strings.Contains(past.Refused, "generation-limit") {
		t.Errorf("past the limit: refused %q, want the limit named", past.Refused)
	}
	// Chosen by id and approved by another person, it is redriven once more.
	var id string
	for _, group := range g.ask(redrive.Request{Action: "inspect"}).Groups {
		id = group.Samples[0].Message
	}
	asked := g.ask(redrive.Request{Action: "run", Message: id})
	if asked.Plan == nil || !strings.Contains(asked.Refused, "approval") {
		t.Fatalf("%+v", asked)
	}
	g.ask(redrive.Request{Action: "approve", Plan: asked.Plan.ID, By: "grace", Reason: "mended"})
	if run := g.ask(redrive.Request{Action: "run", Plan: asked.Plan.ID}).Run; run == nil || run.State != redrive.Done {
		t.Fatalf("run %+v", run)
	}
	g.ends(h, ledger.Done)
	g.dry()
	if n := g.tally.Effects(g.key(h)); n != 1 {
		t.Errorf("%d effects", n)
	}
}

// SIGKILL of the redrive process at every step, each on queues of its own: before the call and after it.
func TestRedriveKilledAnywhere(t *testing.T) {
	t.Parallel()
	needsEmbedded(t)
	steps := map[string]struct {
		operation string
		match     string
		skip      int
	}{
		"lock":          {operation: "PutItem", match: `"lock"`},
		"run":           {operation: "PutItem", match: `"run#`, skip: 1},
		"audit intent":  {operation: "BatchWriteItem", match: "#intent#"},
		"reopen":        {operation: "UpdateItem", match: "-ledger"},
		"second reopen": {operation: "UpdateItem", match: "-ledger", skip: 2},
		"send":          {operation: "SendMessageBatch"},
		"delete":        {operation: "DeleteMessageBatch"},
		"audit result":  {operation: "BatchWriteItem", match: "#sent#"},
		"release":       {operation: "ChangeMessageVisibilityBatch"},
		"unlock":        {operation: "PutItem", match: `\"owner\":\"\"`},
	}
	for name, step := range steps {
		for _, done := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, done %v", name, done), func(t *testing.T) {
				numbers := topology.ScaledRedrive()
				numbers.Timeout, numbers.PauseMargin, numbers.ScanTime = 8*time.Second, time.Second, 4*time.Second
				numbers.Canary, numbers.CanaryWait, numbers.Hide = 2, 5*time.Second, 10*time.Second
				g := newGoverned(t, numbers)
				const jobs = 6
				var holds []reservation.Hold
				for i := range jobs { // records that are missing for now
					h := g.hold(fmt.Sprint("lost-", i), 1, 0)
					g.send(g.body(h), nil)
					holds = append(holds, h)
				}
				g.send("malformed", nil)
				g.until("all are isolated", func() bool { return g.depth(job.DLQ).Visible == jobs+1 })
				for _, h := range holds {
					g.supply(h)
				}
				plan := g.ask(redrive.Request{Action: "plan", Select: &redrive.Filter{Classes: []job.Class{job.Rejected}}}).Plan
				if plan == nil || plan.Actions[redrive.Redrive] != jobs {
					t.Fatalf("plan %+v", plan)
				}
				var count, killed atomic.Int32
				hit := make(chan struct{})
				// The process is killed before the call reaches AWS, or after the call and before its answer.
				fault := faults.Delay(time.Minute)
				if done {
					fault = faults.HoldAnswer(func() { close(hit) })
				}
				remove := g.between.Add(faults.Rule{Operation: step.operation, Match: func(body []byte) bool {
					if !strings.Contains(string(body), step.match) || int(count.Add(1)) <= step.skip || !killed.CompareAndSwap(0, 1) {
						return false
					}
					if !done {
						close(hit)
					}
					return true
				}, Fault: fault})
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					_, _ = g.try(redrive.Request{Action: "run", Plan: plan.ID})
				}()
				select {
				case <-hit:
				case <-time.After(hanging):
					t.Fatal("the step was never reached")
				}
				g.env.KillFunction(g.name)
				<-ended
				remove()
				// Repeat until it is done: the first request may have died before it made the run.
				g.until("it is done", func() bool {
					resp, err := g.try(redrive.Request{Action: "run", Plan: plan.ID})
					if err == nil && resp.Run != nil && resp.Run.State != redrive.Done {
						resp, err = g.try(redrive.Request{Action: "run", Run: plan.Run})
					}
					if err != nil || resp.Run == nil || resp.Run.State != redrive.Done {
						time.Sleep(300 * time.Millisecond)
						return false
					}
					return true
				})
				for _, h := range holds {
					if e := g.ends(h, ledger.Done); e.Redrives != 1 {
						t.Errorf("entry %+v", e)
					}
				}
				g.dry() // so everything is logged
				for _, h := range holds {
					if n := g.tally.Effects(g.key(h)); n != 1 {
						t.Errorf("%d effects of %s", n, g.key(h))
					}
				}
				g.wantAvailable(100)
				g.wantDLQ(1)
			})
		}
	}
}

func TestRedriveKillSwitchAndRevoke(t *testing.T) {
	numbers := topology.ScaledRedrive()
	g := newGoverned(t, numbers)
	const jobs = 40
	var holds []reservation.Hold
	for i := range jobs {
		h := g.hold(fmt.Sprint("lost-", i), 1, 0)
		g.send(g.body(h), nil)
		holds = append(holds, h)
	}
	g.until("all are isolated", func() bool { return g.depth(job.DLQ).Visible == jobs })
	for _, h := range holds {
		g.supply(h)
	}
	plan := g.ask(redrive.Request{Action: "plan", Select: &redrive.Filter{All: true}, RatePerSecond: 5}).Plan
	done := make(chan redrive.Response)
	go func() {
		resp, err := g.try(redrive.Request{Action: "run", Plan: plan.ID})
		if err != nil {
			t.Error(err)
		}
		done <- resp
	}()
	g.until("the canary passed and more is sent", func() bool { return g.depth(job.DLQ).Visible+g.depth(job.DLQ).InFlight <= jobs-10 })
	// A second process can stop the first one's run.
	if resp := g.ask(redrive.Request{Action: "stop"}); !resp.Switch.On {
		t.Errorf("%+v", resp)
	}
	stopped := (<-done).Run
	if stopped == nil || stopped.State != redrive.Halted || stopped.Counts["sent"] >= jobs {
		t.Fatalf("run %+v", stopped)
	}
	if d := g.depth(job.DLQ); d.Visible+d.InFlight != jobs-stopped.Counts["sent"] {
		t.Errorf("%d sent, and the DLQ has %+v", stopped.Counts["sent"], d)
	}
	g.ask(redrive.Request{Action: "resume"})

	// The recovery lane is paused, so the sent messages wait. After the revocation they go back, and none is
	// lost.
	g.env.Pause(job.Recovery)
	go func() {
		resp, _ := g.try(redrive.Request{Action: "run", Run: plan.Run})
		done <- resp
	}()
	// The canary of a continued run has passed, so it needs no new one.
	g.until("some are waiting", func() bool { return g.depth(job.Recovery).Visible >= 5 })
	if resp := g.ask(redrive.Request{Action: "revoke", Run: plan.Run}); resp.Run.State != redrive.Revoked {
		t.Errorf("%+v", resp)
	}
	if run := (<-done).Run; run == nil || run.State != redrive.Revoked {
		t.Errorf("run %+v", run)
	}
	waiting := g.depth(job.Recovery)
	g.env.Resume(job.Recovery)
	g.dry()
	isolated := 0
	for _, h := range holds {
		if e := g.entry(g.key(h)); e.Status == ledger.Isolated {
			isolated++
			if e.Redrives != 0 {
				t.Errorf("it never ran, but counts: %+v", e)
			}
		}
	}
	if want := jobs - stopped.Counts["sent"]; isolated != want || waiting.Visible < 5 {
		t.Errorf("%d isolated, want %d; %+v were waiting", isolated, want, waiting)
	}
	g.wantDLQ(isolated)
	// No run holds the messages, not even the revoked one: a fresh plan sees all of them.
	if plan := g.ask(redrive.Request{Action: "plan", Select: &redrive.Filter{All: true}}).Plan; plan == nil || plan.Selected != isolated {
		t.Errorf("plan %+v", plan)
	}
}
