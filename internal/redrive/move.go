package redrive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
)

// moved is one message of a cohort.
type moved struct {
	lanes.Received
	target target
	body   candidate
	key    string
	digest string
	entry  ledger.Entry
	memory job.Memory
	// tried says that an earlier round may have sent the message, which has no key.
	tried bool
	// ours says that the entry was opened by this run.
	ours   bool
	action Action
	why    string
	what   Step
	err    error
}

// batch is how many messages one call to SQS takes; sideBySide how many calls are made at a time.
const (
	batch      = 10
	sideBySide = 32
)

// move takes one cohort out of the DLQ, in batches side by side, and returns how many jobs it newly sent.
func (d *drive) move(ctx context.Context, cohort []lanes.Received) (sent int, err error) {
	var steps []*moved
	var later []lanes.Received
	keys := map[string]bool{}
	for _, m := range cohort {
		if d.body != nil {
			m.Body = d.body.Body
		}
		st := &moved{Received: m, target: d.targets[m.ID], body: d.s.readBody(ctx, m)}
		st.body.replaced = d.mended()
		st.key, st.digest = st.body.read.Key, st.body.digest(m.Body)
		if st.key != "" && keys[st.key] { // one message of a job at a time
			later = append(later, m)
			continue
		}
		keys[st.key] = true
		steps = append(steps, st)
	}
	d.queue = append(later, d.queue...)

	var group errgroup.Group
	group.SetLimit(sideBySide)
	for part := range slices.Chunk(steps, batch) {
		group.Go(func() error { return d.moveBatch(ctx, part) })
	}
	err = group.Wait() // an audit that was not written; each step notes what was done all the same

	var fatal, unsure error
	failures := 0
	for _, st := range steps {
		if st.what == "" {
			d.begun[st.ID] = true // perhaps no more than its first line
			continue
		}
		before := d.sent[st.ID]
		d.tookIn(st, before)
		d.run.Counts[st.what]++
		d.settle(st.ID, outcome{st.what, st.key, st.why})
		switch st.what {
		case auditSent, auditUndeleted:
			d.leave(st.ID)
			if st.what == auditUndeleted {
				d.unseen++ // to be found once more
			}
			newly := !before && st.action == Redrive
			if newly {
				sent++
			}
			d.follow(st, newly)
		case auditRemoved, auditCopy:
			d.leave(st.ID)
		case auditUnsent, auditUnsure, auditFinal:
			failures++
			unsure = st.err
			if st.what == auditUnsent {
				fatal = cmp.Or(fatal, forbidden(st.err, d.s.names.RecoveryQueue))
			}
		}
	}
	d.s.progress.Redriven(sent, failures, 0)
	switch {
	case err != nil:
		return sent, err
	case fatal != nil:
		return sent, halt(HaltForbidden, "%v", fatal)
	case failures == len(steps):
		return sent, halt(HaltCall, "nothing of a cohort was confirmed: %v", unsure)
	}
	return sent, nil
}

// tookIn counts a message in an open plan's pass.
func (d *drive) tookIn(st *moved, before bool) {
	if d.pass == nil {
		return
	}
	switch {
	case !st.what.takes():
		if !st.what.settles() {
			d.pass.failed++
		}
		return
	case !before:
		d.taken++
	}
	if d.pass.taken++; st.what.settles() {
		d.pass.left--
	}
	// A job that ended after the plan was made, and not by this run, ended by somebody else's hand.
	if st.action == Remove && st.entry.Run != d.run.ID && (st.target.Action == Redrive || !st.entry.FinalAt.Before(d.plan.At)) {
		d.surprises++
	}
}

// following is how many of its newest jobs a run of an open plan keeps to be judged by: more than the lanes hold and its
// window needs, so that few are dropped before they ran.
func (d *drive) following() int { return 2*d.s.numbers.BacklogLimit + d.s.numbers.Window }

// follow keeps a job that was sent, so that its ending is asked for.
func (d *drive) follow(st *moved, newly bool) {
	canary := newly && d.run.Canary == ""
	if st.key == "" {
		if canary {
			d.run.Keyless++
		}
		return // the ledger cannot tell
	}
	if d.jobs[st.key] != nil {
		return
	}
	j := &sentJob{Watched: Watched{Job: st.key, Generation: st.entry.Redrives, Canary: canary}, digest: st.digest}
	d.jobs[st.key] = j
	d.window = append(d.window, j)
	if most := d.following(); d.pass != nil && len(d.window) > most {
		for _, old := range d.window[:most/2] {
			delete(d.jobs, old.Job)
		}
		d.window = slices.Clone(d.window[most/2:])
	}
}

// moveBatch takes up to ten messages out of the DLQ: audit, reopen, send, delete what was sent, audit.
func (d *drive) moveBatch(ctx context.Context, steps []*moved) error {
	if err := d.sentBefore(ctx, steps); err != nil {
		return err
	}
	intents := make([]AuditRecord, len(steps))
	for i, st := range steps {
		intents[i] = d.line(st, auditIntent)
	}
	if err := d.s.record(ctx, intents); err != nil {
		return err
	}

	var group errgroup.Group
	for _, st := range steps {
		group.Go(func() error { d.open(ctx, st); return nil })
	}
	_ = group.Wait() // each step has its own error

	var going []*moved
	var moves []lanes.Move
	for _, st := range steps {
		if st.err == nil && st.action == Redrive && !d.sent[st.ID] {
			message := st.Message
			message.Memory = st.memory
			going, moves = append(going, st), append(moves, lanes.Move{Message: message})
		}
	}
	if len(moves) > 0 {
		for i, err := range d.s.queues.Send(ctx, job.Recovery, moves) {
			if err != nil {
				going[i].what, going[i].err, going[i].why = auditUnsent, err, job.SafeText(err.Error())
			}
		}
	}

	var leaving []*moved
	var deletes []job.Message
	for _, st := range steps {
		switch {
		case st.err != nil || !st.action.acts():
		case st.ReceiptHandle == "": // from the audit: it is on no queue
			st.left(nil)
		default:
			leaving, deletes = append(leaving, st), append(deletes, st.Message)
		}
	}
	if len(deletes) > 0 {
		for i, err := range d.s.queues.Delete(ctx, job.DLQ, deletes) {
			leaving[i].left(err)
		}
	}

	results := make([]AuditRecord, len(steps))
	for i, st := range steps {
		if st.what == "" {
			st.what = auditKept
			if st.err != nil {
				st.what = auditUnsure
			}
		}
		results[i] = d.line(st, st.what)
	}
	return d.s.record(ctx, results)
}

// unread notes why the message's entry was not read or written. An entry that cannot be decoded keeps its message on the
// DLQ, and a call that failed is made again.
func (st *moved) unread(err error) {
	if st.why = job.SafeText(err.Error()); errors.Is(err, ledger.ErrUndecodable) {
		st.action, st.why = Unsure, cannotRead+st.why
		return
	}
	st.err = err
}

// left notes whether the message's deletion was confirmed.
func (st *moved) left(err error) {
	if err != nil {
		st.why = job.SafeText(err.Error())
	}
	switch st.action {
	case Copy:
		st.what = auditCopy
		if err != nil { // nothing else was to be done with it
			st.what, st.err = auditUnsure, err
		}
	case Remove:
		if st.ours {
			st.what, st.why = auditSent, "sent by a round that was interrupted"
		} else {
			st.what = auditRemoved
		}
		if err != nil {
			st.what, st.err = auditFinal, err
		}
	default:
		st.what = auditSent
		if err != nil {
			st.what = auditUndeleted
		}
	}
}

func (d *drive) line(st *moved, what Step) AuditRecord {
	line := AuditRecord{
		Run: d.run.ID, Message: st.ID, At: d.s.now().UTC(), What: what, Job: st.key, Action: st.action, Why: st.why,
		From: d.run.Source, To: d.run.Destination, Bytes: len(st.Body), Digest: st.digest, Status: st.entry.Status, Generation: st.entry.Redrives,
	}
	if what == auditIntent {
		line.Action, line.Generation = st.target.Action, st.target.Generation
	}
	return line
}

// open decides once more, by the entry as it is now, and opens it.
func (d *drive) open(ctx context.Context, st *moved) {
	c := st.body
	named := d.plan.Select.named(st.ID, st.key)
	override := named && d.plan.ApprovedBy != ""
	st.memory = st.Memory.Cleared()
	if st.memory.MessageID == "" {
		st.memory.MessageID = st.ID
	}
	dl := delivery(st.Message, c, d.lock.Owner)
	st.memory.FirstSent, st.memory.Contentions, st.memory.Run, st.memory.Key = dl.FirstSent(), 0, d.run.ID, ""
	st.memory.Opened = d.s.now().UTC()
	keyless := func() {
		if st.tried {
			st.action, st.why = Unsure, "it has no key, and an earlier round may have sent it"
			return
		}
		if st.target.Action == Copy {
			st.action, st.why = Drift, insteadOf
			return
		}
		st.action, st.why, _ = c.decide(override, d.s.rules.MaxRedrives, d.s.now())
		st.memory.Redrives = st.target.Generation + 1
	}
	if c.lookErr != nil {
		st.unread(c.lookErr)
		return
	}
	if st.key == "" {
		keyless()
		return
	}
	// A job whose send was not confirmed has no digest: its entry decides.
	if j := d.jobs[st.key]; j != nil && j.digest != "" && !d.sent[st.ID] && d.pass == nil {
		st.action, st.why = Copy, anotherSent
		if j.digest != st.digest {
			st.action, st.why = Conflict, "another payload was sent under the same key"
		}
		return
	}
	e, err := d.s.ledger.Update(ctx, st.key, d.s.newID(), func(e ledger.Entry) (ledger.Entry, error) {
		c.entry = e
		if c.memory.Class == job.Crashed && c.unread().read.Key == "" {
			return e, errNotConvicted
		}
		if d.sent[st.ID] { // only its deletion is missing
			st.action, st.why = Redrive, "sent before"
			return e, ledger.ErrOpened
		}
		ours := e.Run == d.run.ID && e.Status != ledger.Isolated && !e.Status.Final()
		if d.pass != nil && ours && !d.begun[st.ID] {
			st.action, st.why = Copy, anotherSent
			return e, errKept
		}
		if e.Run == d.run.ID && e.Status == ledger.Isolated { // also when this message was met, or begun, while the job was open
			st.action, st.why = Drift, "this run sent the job, which is isolated again: that needs a new plan"
			return e, errKept
		}
		if c.discarded() && d.resends() {
			c.entry.Status = ledger.Isolated // which the approved plan makes of it
		}
		st.action, st.why, _ = c.decide(override, d.s.rules.MaxRedrives, d.s.now())
		if st.action != Redrive && !ours {
			return e, errKept
		}
		if d.pass == nil && st.target.Action == Copy && !ours {
			st.action, st.why = Drift, insteadOf
			return e, errKept
		}
		if class := c.class(); !ours && d.s.newlyGuarded(st.target, class) {
			st.action, st.why = Drift, "it became "+string(class)+" after the plan was made: that needs a plan and an approval of its own"
			return e, errKept
		}
		x := ledger.Redriving{Run: d.run.ID, Generation: st.target.Generation, Override: override, Discarded: d.resends()}
		if d.mended() {
			x.Digest = dl.Digest
		}
		return d.s.rules.Redrive(e, dl, x, d.s.now())
	})
	st.entry, st.ours = e, e.Run == d.run.ID
	var notYet *ledger.NotYetError
	switch {
	case err == nil, errors.Is(err, ledger.ErrOpened):
		st.action = Redrive
	case errors.Is(err, errNotConvicted):
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
	case d.sent[st.ID] && errors.Is(err, ledger.ErrUndecodable): // only its deletion is missing
		st.action, st.why, st.entry.Redrives = Redrive, "sent before", st.target.Generation+1
	default:
		st.unread(err)
		if st.action == Unsure && d.begun[st.ID] {
			st.why += "; an earlier round may have sent it"
		}
	}
	if st.action == Remove && st.ours && st.target.Action == Copy {
		st.action, st.why = Copy, anotherSent
	}
	st.memory.Attempt, st.memory.Redrives, st.memory.Key = e.Attempts, e.Redrives, st.key
}

// Why a copy is removed, and why it is kept.
const (
	anotherSent = "another message of the same job was sent"
	insteadOf   = "the plan sends another message of this job, and that one was not sent: this one needs a new plan"
)

var (
	errKept = errors.New("kept")
	// errNotConvicted: the message says that its job was convicted, and the job with that key was not.
	errNotConvicted = errors.New("no job was convicted under the message's key")
)

// forbidden says what is missing when SQS will not take any message at all.
func forbidden(err error, queue string) error {
	var e *lanes.Error
	if !errors.As(err, &e) {
		return nil
	}
	// Exact codes: a throttled key is no missing permission.
	switch e.Code {
	case "KMS.AccessDeniedException", "KmsAccessDenied", "KMS.OptInRequired", "KmsOptInRequired":
		return fmt.Errorf("%s is encrypted with a key that may not be used: allow kms:GenerateDataKey and kms:Decrypt on it (%s)", queue, e.Code)
	case "KMS.DisabledException", "KmsDisabled", "KMS.InvalidStateException", "KmsInvalidState", "KMS.NotFoundException", "KmsNotFound", "KMS.InvalidKeyUsageException", "KmsInvalidKeyUsage":
		return fmt.Errorf("%s is encrypted with a key that does not work: see to its state in KMS (%s)", queue, e.Code)
	case "AccessDenied", "AccessDeniedException":
		return fmt.Errorf("not allowed to send: allow sqs:SendMessage on %s (%s)", queue, e.Code)
	case "AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist", "InvalidAddress":
		return fmt.Errorf("there is no queue %s to send to (%s)", queue, e.Code)
	}
	return nil
}
