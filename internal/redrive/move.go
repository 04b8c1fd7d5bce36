package redrive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
)

// moved is one message of a cohort.
type moved struct {
	lanes.Received
	target target
	key    string
	entry  ledger.Entry
	memory job.Memory
	action Action
	why    string
	what   Step
	err    error
}

// move takes one cohort out of the DLQ: audit, reopen, send, delete what was sent, audit. It returns
// how many it sent.
func (d *drive) move(ctx context.Context, cohort []lanes.Received, canary bool) (sent int, err error) {
	steps := make([]*moved, len(cohort))
	intents := make([]AuditRecord, len(cohort))
	for i, m := range cohort {
		steps[i] = &moved{Received: m, target: d.targets[m.ID]}
		intents[i] = d.line(steps[i], auditIntent)
	}
	if err := d.s.record(ctx, intents); err != nil {
		return 0, err
	}

	var group errgroup.Group
	for _, st := range steps {
		group.Go(func() error { d.open(ctx, st); return nil })
	}
	_ = group.Wait() // what went wrong stands in each step

	var going []*moved
	var moves []lanes.Move
	for _, st := range steps {
		if st.err == nil && st.action == Redrive && !d.sent[st.ID] {
			message := st.Message
			message.Memory = st.memory
			going, moves = append(going, st), append(moves, lanes.Move{Message: message})
		}
	}
	var fatal error
	if len(moves) > 0 {
		for i, err := range d.s.queues.Send(ctx, job.Recovery, moves) {
			if err != nil {
				going[i].what, going[i].err, going[i].why = auditUnsent, err, job.SafeText(err.Error())
				fatal = cmp.Or(fatal, forbidden(err, d.s.names.RecoveryQueue))
			}
		}
	}

	var leaving []*moved
	var deletes []job.Message
	for _, st := range steps {
		if st.err == nil && st.action.acts() {
			leaving, deletes = append(leaving, st), append(deletes, st.Message)
		}
	}
	if len(deletes) > 0 {
		for i, err := range d.s.queues.Delete(ctx, job.DLQ, deletes) {
			st := leaving[i]
			switch {
			case st.action == Remove && err == nil:
				st.what = auditRemoved
			case st.action == Remove:
				st.what, st.why = auditFinal, job.SafeText(err.Error())
			case err == nil:
				st.what = auditSent
			default:
				st.what, st.why = auditUndeleted, job.SafeText(err.Error())
			}
		}
	}

	results := make([]AuditRecord, len(steps))
	failures, unsure := 0, error(nil)
	for i, st := range steps {
		if st.what == "" {
			st.what = auditKept
			if st.err != nil {
				st.what = auditUnsure
			}
		}
		results[i] = d.line(st, st.what)
		d.run.Counts[st.what]++
		switch st.what {
		case auditSent, auditUndeleted:
			sent++
			d.mine.drop(st.ID)
			d.sent[st.ID] = true
			if st.what == auditSent {
				delete(d.targets, st.ID)
			}
			d.watch(st, canary, i == 0)
		case auditRemoved:
			d.mine.drop(st.ID)
			delete(d.targets, st.ID)
		case auditKept:
			delete(d.targets, st.ID)
		case auditUnsent, auditUnsure:
			failures++
			unsure = st.err
		}
	}
	d.s.progress.Redriven(sent, failures, 0)
	if err := d.s.record(ctx, results); err != nil {
		return sent, err
	}
	if fatal != nil {
		return sent, end(Aborted, "%v", fatal)
	}
	if failures == len(steps) {
		return sent, end(Paused, "nothing of a cohort was confirmed: %v", unsure)
	}
	return sent, nil
}

func (d *drive) line(st *moved, what Step) AuditRecord {
	line := AuditRecord{
		Run: d.run.ID, Message: st.ID, At: d.s.now().UTC(), What: what, Job: st.key, Action: st.action, Why: st.why,
		From: d.run.Source, To: d.run.Destination, Bytes: len(st.Body), Status: st.entry.Status, Generation: st.entry.Redrives,
	}
	if what == auditIntent {
		line.Action, line.Generation = st.target.Action, st.target.Generation
	}
	return line
}

// open decides once more, by the entry as it is now, and opens it.
func (d *drive) open(ctx context.Context, st *moved) {
	c := d.s.readBody(st.Received)
	named := d.plan.Select.named(st.ID)
	override := named && d.plan.ApprovedBy != ""
	st.key = c.read.Key
	st.memory = st.Memory
	if st.memory.MessageID == "" {
		st.memory.MessageID = st.ID
	}
	dl := delivery(st.Message, c, d.lock.Owner)
	st.memory.FirstSent, st.memory.Hops, st.memory.Run = dl.FirstSent(), 0, d.run.ID
	st.memory.Class, st.memory.Cause, st.memory.Error, st.memory.At, st.memory.Key = "", "", "", time.Time{}, ""
	keyless := func() {
		st.action, st.why, _ = c.decide(override, d.s.rules.MaxRedrives, d.s.now())
		st.memory.Redrives = st.target.Generation + 1
	}
	if st.key == "" {
		keyless()
		return
	}
	e, err := d.s.ledger.Update(ctx, st.key, d.s.newID(), func(e ledger.Entry) (ledger.Entry, error) {
		c.entry = e
		if st.Memory.Class == job.Crashed && c.unread().read.Key == "" {
			return e, errStranger
		}
		if d.sent[st.ID] { // only its deletion is missing
			st.action, st.why = Redrive, "sent before"
			return e, ledger.ErrOpened
		}
		ours := e.Run == d.run.ID && e.Status != ledger.Isolated && !e.Status.Final()
		st.action, st.why, _ = c.decide(override, d.s.rules.MaxRedrives, d.s.now())
		if st.action != Redrive && !ours {
			return e, errKept
		}
		return d.s.rules.Redrive(e, dl, ledger.Redriving{Run: d.run.ID, Generation: st.target.Generation, Override: override}, d.s.now())
	})
	st.entry = e
	var notYet *ledger.NotYetError
	switch {
	case err == nil, errors.Is(err, ledger.ErrOpened):
		st.action = Redrive
	case errors.Is(err, errStranger):
		c, st.key, st.entry = c.unread(), "", ledger.Entry{}
		keyless()
		return
	case errors.Is(err, errKept):
	case errors.Is(err, ledger.ErrFinal):
		st.action = Remove
	case errors.As(err, &notYet):
		st.action, st.why = InProgress, err.Error()
	case errors.Is(err, ledger.ErrDrift):
		st.action, st.why = Drift, err.Error()
	default:
		st.err, st.why = err, job.SafeText(err.Error())
	}
	st.memory.Attempt, st.memory.Redrives = e.Attempts, e.Redrives
}

var (
	errKept = errors.New("kept")
	// errStranger: the key in a convict's message is not that of a convicted job.
	errStranger = errors.New("the message's key is not its job's")
)

// forbidden says what is missing when SQS will not take any message at all.
func forbidden(err error, queue string) error {
	var e *lanes.Error
	if !errors.As(err, &e) {
		return nil
	}
	code := strings.ToLower(e.Code)
	switch {
	case strings.Contains(code, "kms"):
		return fmt.Errorf("%s is encrypted with a key that may not be used: allow kms:GenerateDataKey and kms:Decrypt on it (%s)", queue, e.Code)
	case strings.Contains(code, "accessdenied"):
		return fmt.Errorf("not allowed to send: allow sqs:SendMessage on %s (%s)", queue, e.Code)
	case strings.Contains(code, "nonexistentqueue"), strings.Contains(code, "queuedoesnotexist"), code == "invalidaddress":
		return fmt.Errorf("there is no queue %s to send to (%s)", queue, e.Code)
	}
	return nil
}
