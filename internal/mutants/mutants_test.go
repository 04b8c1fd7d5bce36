// Package mutants_test removes one guard after the other from a copy of the source, and looks which test goes red.
package mutants_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var (
	remove = flag.Bool("mutants", false, "run the tests of each guard without the guard")
	only   = flag.String("mutants.only", "", "a pattern of the guards to remove; empty removes all")
)

// mutant is a guard, and the text that removes it. old occurs exactly once in the file.
type mutant struct {
	guard, file, old, new string
	// tests is the package whose tests run, only those that match if match is set.
	tests, match string
}

var table = []mutant{
	{"a live lease refuses a claim", "internal/ledger/claim.go", "case e.Status == Running && !e.Free(now):\n\t\treturn e, &NotYetError{Until: e.LeaseUntil}\n\tcase e.Status == Running && e.Attempts", "case e.Status == Running && e.Attempts", "internal/ledger", ""},
	{"a missing lease time is not free", "internal/ledger/claim.go", "return !e.LeaseUntil.IsZero() && ", "return ", "internal/ledger", ""},
	{"completing needs the owner's token", "internal/ledger/claim.go", "if e.Status != Running || e.Owner != d.Token {", "if e.Status != Running {", "internal/ledger", ""},
	{"releasing needs the owner's token", "internal/ledger/claim.go", "case e.Status != Running || e.Owner != token:", "case e.Status != Running:", "internal/ledger", ""},
	{"a lost claim counts as an attempt", "internal/ledger/claim.go", "\t\te.Attempts++\n", "", "internal/ledger", ""},
	{"a spent budget refuses a claim", "internal/ledger/claim.go", "case e.Status == Running && e.Attempts+1-e.BudgetFrom >= r.Retry.MaxAttempts:", "case false:", "internal/ledger", ""},
	{"a failure adds an attempt", "internal/ledger/ledger.go", "\t\te.Attempts++\n", "", "internal/ledger", ""},
	{"only the owner clears the unresolved mark", "internal/ledger/ledger.go", "if e.Status == Running && e.Owner == d.Token && !f.Unresolved {", "if e.Status == Running && !f.Unresolved {", "internal/ledger", ""},
	{"another payload is a conflict", "internal/ledger/ledger.go", "if job.DigestsDiffer(e.Digest, digest) {", "if false {", "internal/ledger", ""},
	{"an unresolved job does not end without a call", "internal/ledger/ledger.go", "if e.Unresolved {\n\t\treturn e, ErrUnresolved", "if false {\n\t\treturn e, ErrUnresolved", "internal/ledger", ""},
	{"a copy sent before the isolation does not reopen", "internal/ledger/arrive.go", "case !d.SentAt.After(e.IsolatedAt):", "case false:", "internal/ledger", ""},
	{"the generation limit", "internal/ledger/arrive.go", "case e.Redrives >= r.MaxRedrives:", "case false:", "internal/ledger", ""},
	{"an undecided ambiguous job does not reopen", "internal/ledger/arrive.go", "case e.LastClass == job.Ambiguous && e.Decided != NotSent:", "case false:", "internal/ledger", ""},
	{"the time budget", "internal/retry/retry.go", "if !deadline.IsZero() && delay+p.AttemptTime > deadline.Sub(now) {", "if false {", "internal/retry", ""},
	{"the condition of a change: the version", "internal/dynamo/store.go", `w.name(attrVersion) + " = " + w.value`, `w.name(attrVersion) + " >= " + w.value`, "internal/dynamo", "TestKumo|Linear"},
	{"the condition of a first write: no entry", "internal/dynamo/store.go", `condition = "attribute_not_exists(" + w.name(attrKey) + ")"`, `condition = "attribute_not_exists(" + w.name(attrKey) + ") OR attribute_exists(" + w.name(attrKey) + ")"`, "internal/dynamo", "TestKumo|Linear"},
	{"the condition of a commit: pending", "internal/dynamo/commit.go", `status + " = :pending" +`, `status + " <= :pending" +`, "internal/dynamo", "TestKumo|Linear"},
	{"the condition of a commit: the retry's time", "internal/dynamo/commit.go", `retryAt + " <= :now)" +`, `retryAt + " <> :now)" +`, "internal/dynamo", "TestKumo|Linear"},
	{"the condition of a commit: the digest", "internal/dynamo/commit.go", `ruled := strings.Cut(e.Digest, ":")`, `ruled := strings.Cut("", ":")`, "internal/dynamo", "TestKumo|Linear"},
	{"a throttle among the reasons is the ledger's trouble", "internal/dynamo/errors.go", "case throttle >= 0:", "case false:", "internal/dynamo", "Test"},
	{"the entry's refusal outranks the others", "internal/dynamo/errors.go", "case refused == 0:", "case refused == -2:", "internal/dynamo", "Test"},
	{"a send counts only if SQS names it", "internal/lanes/lanes.go", "errs[i] = &Error{Code: CodeUnanswered, condition: condition}", "errs[i] = nil", "internal/lanes", ""},
	{"an entry that is listed as failed is not sent", "internal/lanes/lanes.go", "for _, f := range failed {", "for _, f := range failed[:0] {", "internal/lanes", ""},
	{"an unconfirmed hand-over is left", "internal/worker/worker.go", "going[i].leave(fmt.Errorf(\"hand over to %s: %w\", to, err))", "_, _ = to, i", "internal/worker", ""},
	{"a message that is left is reported", "internal/worker/worker.go", "if s.outcome != job.Left {", "if true {", "internal/worker", ""},
	{"an attempt ends with its time", "internal/worker/attempt.go", "ctx, cancel := context.WithTimeout(ctx, limit)", "ctx, cancel := context.WithTimeout(ctx, 1000*limit)", "internal/worker", "Attempt|End"},
	{"a stuck attempt that holds its claim writes no failure", "internal/worker/attempt.go", "case e.Status == ledger.Running && e.Owner == s.Token:", "case e.Status == ledger.Running && e.Owner == \"\":", "internal/worker", ""},
	{"a conviction needs two strikes that count", "internal/worker/suspects.go", ">= ledger.ConvictAt {", ">= 1 {", "internal/worker", ""},
	{"a conviction ends no entry of another payload or under another's lease", "internal/worker/suspects.go", "return h.config.Rules.Isolate(e, s.Delivery, f.Class,", "e.Status, e.LeaseUntil, e.Digest = ledger.Pending, time.Time{}, \"\"\n\t\treturn h.config.Rules.Isolate(e, s.Delivery, f.Class,", "internal/worker", "Convict"},
	{"a convict's own word for its job counts only for an entry that its run opened or that was convicted", "internal/worker/suspects.go", "claimed && !opened", "false && !opened", "internal/worker", "Convict"},
	{"a suspect is named before it runs", "internal/worker/worker.go", "!s.over && h.name(ctx, s) {", "!s.over {", "internal/worker", "Convict"},
	{"a convict reopens nothing", "internal/worker/suspects.go", "case errors.Is(err, ledger.ErrIsolated):\n\t\th.rejoin(s, e, f)\n", "", "internal/worker", "Convict"},
	{"no suspect starts before the strike is confirmed", "internal/worker/suspects.go", "h.unread(s, fmt.Errorf(\"not started: %w\", err))\n\t\t\treturn\n", "_ = err\n", "internal/worker", ""},
	{"a strike is cleared", "internal/worker/suspects.go", "err := h.ledger.ClearStrike(ctx, s.ID, s.Token)", "var err error", "internal/worker", ""},
	{"a strike that no time was left to clear is cleared later", "internal/worker/suspects.go", "h.owe(strike{s.ID, s.Token})", "_ = h.owe", "internal/worker", ""},
	{"a process that ends itself clears its strikes before", "internal/worker/worker.go", "h.clearOwed(ctx)\n\t\th.exit()", "_ = ctx\n\t\th.exit()", "internal/worker", ""},
	{"a plan drops only its own payload", "internal/effect/effect.go", "if err := e.Conflict(d.Digest); err != nil {\n\t\t\treturn e, err\n\t\t}\n", "", "internal/effect", ""},
	{"a plan ends no entry with an open call", "internal/effect/effect.go", "case e.Status == ledger.Running || e.Unresolved:", "case false:", "internal/effect", ""},
	{"the margin before a claim", "internal/effect/effect.go", "if err := r.tooLate(ctx); err != nil {\n\t\treturn job.Result{", "if err := r.tooLate(ctx); err != nil && false {\n\t\treturn job.Result{", "internal/effect", ""},
	{"the margin before a call", "internal/effect/effect.go", "err != nil && todo.sends() {", "err != nil && false {", "internal/effect", ""},
	{"a claim that nobody could take back is handed on", "internal/effect/effect.go", "UnusedClaim: true, ", "", "internal/effect", ""},
	{"the margin after a look-up", "internal/effect/claim.go", "err != nil && !open {", "err != nil && false {", "internal/effect", ""},
	{"a claim that was taken back is forgotten", "internal/worker/decide.go", "case res.ClaimTakenBack:\n\t\t\ts.Memory.UnusedClaim = \"\"\n", "", "internal/worker", "HandOver"},
	{"a hand-over frees only the claim that it names", "internal/effect/effect.go", "r.o.Rules.Release(e, owner)", "r.o.Rules.Release(e, e.Owner)", "internal/effect", ""},
	{"the provider's memory has an end", "internal/effect/claim.go", "case !remembered:", "case !remembered && false:", "internal/effect", ""},
	{"no second request without deduplication", "internal/effect/claim.go", "todo.sends() && can.Deduplicates:", "todo.sends():", "internal/effect", ""},
	{"no such request is no proof before the settle time", "internal/effect/claim.go", "case can.SettleTime > 0 && !asked.Before(settled):", "case can.LooksUp:", "internal/effect", ""},
	{"the settle time counts from the last call", "internal/effect/claim.go", "c.e.CalledUntil.Add(can.SettleTime", "c.e.CalledFrom.Add(can.SettleTime", "internal/effect", ""},
	{"a claim that died may have called until its lease ended", "internal/ledger/claim.go", "later(e.CalledUntil, e.LeaseUntil)", "later(e.CalledUntil, time.Time{})", "internal/ledger", ""},
	{"a look-up that names no request proves nothing", "internal/effect/claim.go", `case err == nil && id != "":`, "case err == nil:", "internal/effect", ""},
	{"a proxy's refusal is no refusal", "internal/kinds/reminder/answer.go", "a.refuses() && slices.Contains(declared, a.code())", `a.refuses() && a.code() != ""`, "internal/kinds/reminder", ""},
	{"409 and 408 are no refusals", "internal/kinds/reminder/answer.go", "case http.StatusRequestTimeout, http.StatusConflict:\n\t\treturn false\n", "", "internal/kinds/reminder", ""},
	{"a hold ends not before its time", "internal/kinds/reservation/store.go", `condition += " AND #expires <= :now"`, `condition += " AND #expires <> :now"`, "internal/kinds/reservation", ""},
	{"a hold ends only by its own command", "internal/kinds/reservation/store.go", `AND #command = :command AND`, `AND (#command = :command OR #command <> :command) AND`, "internal/kinds/reservation", ""},
	{"units are there when they are taken", "internal/kinds/reservation/store.go", `"#available >= :units"`, `"#available <> :units"`, "internal/kinds/reservation", ""},
	{"redrive: only what was sent is deleted", "internal/redrive/move.go", "case st.err != nil || !st.action.acts():", "case !st.action.acts():", "internal/redrive", ""},
	{"redrive: a mended message stays if its job ended with another payload", "internal/redrive/decide.go", "case c.conflicts() && e.Status.Final():", "case false:", "internal/redrive", "Mend"},
	{"redrive: a mended body that may not have been sent is sent", "internal/redrive/finish.go", "if !d.mended() || len(lost) != 1", "if true || len(lost) != 1", "internal/redrive", "Mend"},
	{"redrive stops: the kill switch", "internal/redrive/drive.go", "case sw.On:", "case false:", "internal/redrive", ""},
	{"redrive stops: an unreadable switch", "internal/redrive/drive.go", "case unread != nil:", "case false:", "internal/redrive", ""},
	{"redrive stops: another owner or a revocation", "internal/redrive/drive.go", "case lost != nil:", "case false:", "internal/redrive", ""},
	{"redrive stops: its time ends", "internal/redrive/drive.go", "deadline.Sub(d.s.now()) < d.s.numbers.PauseMargin+coming {", "deadline.IsZero() {", "internal/redrive", ""},
	{"redrive stops: the plan expired", "internal/redrive/drive.go", "case !d.plan.Open && len(d.targets) > 0 && past(d.plan.ExpiresAt, d.s.now()):", "case false:", "internal/redrive", ""},
	{"redrive stops: the canary failed", "internal/redrive/canary.go", "case j.Ending.failed(), j.Ending == TakenOver: // a job that was taken over proves nothing\n\t\t\t\treturn halt(HaltCanary", "case false:\n\t\t\t\treturn halt(HaltCanary", "internal/redrive", ""},
	{"redrive stops: the canary does not end", "internal/redrive/canary.go", "if past(d.run.CanaryUntil, d.s.now()) {", "if d.s.now().Year() > 2900 {", "internal/redrive", ""},
	{"redrive stops: the ledger cannot judge", "internal/redrive/canary.go", "if d.run.Keyless > 0 {", "if false {", "internal/redrive", ""},
	{"redrive waits: the lanes' backlog", "internal/redrive/pace.go", "if work < d.s.numbers.BacklogLimit {", "if true {", "internal/redrive", ""},
}

const root = "../.."

func mutated(m mutant) (string, error) {
	source, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(source), m.old); n != 1 {
		return "", fmt.Errorf("%s: %q occurs %d times in %s, want once", m.guard, m.old, n, m.file)
	}
	return strings.Replace(string(source), m.old, m.new, 1), nil
}

// A guard that has moved would no longer be removed, and its tests would prove nothing.
func TestEveryGuardIsFound(t *testing.T) {
	t.Parallel()
	for _, m := range table {
		if _, err := mutated(m); err != nil {
			t.Error(err)
		}
	}
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// TestEveryGuardHasATest needs some minutes, so make mutants runs it. It prints the table of docs/proof.md.
func TestEveryGuardHasATest(t *testing.T) {
	if !*remove {
		t.Skip("make mutants runs it")
	}
	fmt.Println("| guard removed | file | test that goes red | seconds |\n| --- | --- | --- | --- |")
	wanted := regexp.MustCompile(*only)
	for i, m := range table {
		if !wanted.MatchString(m.guard) {
			continue
		}
		source, err := mutated(m)
		if err != nil {
			t.Error(err)
			continue
		}
		began := time.Now()
		out, err := run(t, i, m, source)
		took := time.Since(began).Seconds()
		red := failed.FindStringSubmatch(out)
		switch {
		case err == nil:
			t.Errorf("%s: removed from %s, and the tests of %s stay green", m.guard, m.file, m.tests)
			fmt.Printf("| %s | %s | none | %.0f |\n", m.guard, m.file, took)
		case red == nil && strings.Contains(out, "panic: test timed out"):
			fmt.Printf("| %s | %s | hangs until its timeout | %.0f |\n", m.guard, m.file, took)
		case red == nil && strings.Contains(out, "panic: "):
			fmt.Printf("| %s | %s | a panic in the package's tests | %.0f |\n", m.guard, m.file, took)
		case red == nil:
			t.Errorf("%s: no test ran: %s", m.guard, out[max(0, len(out)-600):])
		default:
			fmt.Printf("| %s | %s | %s | %.0f |\n", m.guard, m.file, red[1], took)
		}
	}
}

// run tests the package with another source of the file. Nothing in the tree changes.
func run(t *testing.T, i int, m mutant, source string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	path, err := filepath.Abs(filepath.Join(root, m.file))
	if err != nil {
		t.Fatal(err)
	}
	replacement := filepath.Join(dir, fmt.Sprintf("mutant%d.go", i))
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: replacement}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{replacement: []byte(source), filepath.Join(dir, "overlay.json"): overlay} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"test", "-failfast", "-vet=off", "-timeout", "120s", "-overlay", filepath.Join(dir, "overlay.json")}
	if m.match != "" {
		args = append(args, "-run", m.match)
	}
	args = append(args, "./"+m.tests)
	if usesRapid(t, m.tests) {
		args = append(args, "-rapid.nofailfile") // it would write into the tree
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func usesRapid(t *testing.T, pkg string) bool {
	t.Helper()
	tests, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range tests {
		if source, err := os.ReadFile(test); err == nil && strings.Contains(string(source), "pgregory.net/rapid") {
			return true
		}
	}
	return false
}
