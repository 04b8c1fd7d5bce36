package redrive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"

	"golang.org/x/sync/errgroup"
)

// auditShards spreads a run's audit over partitions, so that 500 messages a second, two lines each,
// stay far below the 1,000 writes a second that one partition takes.
const auditShards = 16

// Step is what an audit line says happened.
type Step string

// The steps.
const (
	// auditIntent is written before anything is done to a message, every other line after it.
	auditIntent Step = "intent"
	// auditSent: sent to the recovery lane and deleted from the DLQ.
	auditSent Step = "sent"
	// auditUndeleted: sent, but not confirmed as deleted.
	auditUndeleted Step = "sent-undeleted"
	// auditUnsent: SQS did not confirm the send; the message is still on the DLQ.
	auditUnsent Step = "unsent"
	// auditRemoved: final already, and deleted from the DLQ. auditFinal: final, not confirmed as deleted.
	auditRemoved Step = "removed"
	auditFinal   Step = "final-undeleted"
	// auditKept: left on the DLQ, because the ledger says so by now.
	auditKept Step = "kept"
	// auditUnsure: the ledger did not answer; nothing was sent.
	auditUnsure Step = "unsure"
	// auditCopy: another message of the same job was sent, and this one deleted.
	auditCopy Step = "copy"
	// auditGone: not on the DLQ any more, and not by this run.
	auditGone Step = "gone"
	// auditDiscarded: ended as discarded and deleted.
	auditDiscarded Step = "discarded"

	// auditOriginal and auditMended have the body of a message that was mended, before and after.
	auditOriginal Step = "original"
	auditMended   Step = "mended"

	// What people did.
	auditPlanned   Step = "planned"
	auditApproved  Step = "approved"
	auditRan       Step = "ran"
	auditContinued Step = "continued"
	auditRevoked   Step = "revoked"
	auditStopped   Step = "stopped"
	auditReleased  Step = "released"
	auditPaused    Step = "paused"
	auditUnpaused  Step = "unpaused"
	auditDecided   Step = "decided"
	// auditCancelled: a job's producer ended it. The producer writes this line itself; see RecordCancel.
	auditCancelled Step = "cancelled"
)

// AuditRecord is one line of the audit. It is written once and never changed.
type AuditRecord struct {
	// Run is the run's id, or that of the discard.
	Run     string    `json:"run"`
	Message string    `json:"message"`
	At      time.Time `json:"at"`
	What    Step      `json:"what"`
	Job     string    `json:"job,omitempty"`
	Action  Action    `json:"action,omitempty"`
	Why     string    `json:"why,omitempty"`
	// From and To are the queues.
	From  string `json:"from,omitempty"`
	To    string `json:"to,omitempty"`
	Bytes int    `json:"bytes,omitempty"`
	// Digest is the payload's.
	Digest string `json:"digest,omitempty"`
	// Status and Generation are the entry's afterwards.
	Status     ledger.Status `json:"status,omitempty"`
	Generation int           `json:"generation,omitempty"`
	// By and Reason are a person's, as claimed.
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Payload is a part of a message that was discarded or mended, compressed (gzip, base64), Part its number
	// from 0.
	Payload []byte `json:"payload,omitempty"`
	Part    int    `json:"part,omitempty"`
	// Ending is only in an answer about a run, on the last line of each message: what became of it, as the ledger has
	// it at the answer's EndingsAt.
	Ending Ending `json:"ending,omitempty"`
	// EndingWhy is what the ledger says of the ending, or why there is none.
	EndingWhy string `json:"endingWhy,omitempty"`
}

// deed is the line of an action on a run or a plan as a whole.
func (s *Service) deed(req Request, subject string, what Step) AuditRecord {
	return AuditRecord{Run: deeds, Message: subject, At: s.now().UTC(), What: what, By: req.By, Reason: req.Reason}
}

// deeds names the partitions with the lines of actions on runs, plans and the switch.
const deeds = "deeds"

// cancels names the partitions with the lines of cancelled jobs, which are apart: people who may cancel jobs may
// write these and nothing else of the operations table.
const cancels = "cancels"

// CancelKeys is the pattern of the partitions of cancelled jobs, for a policy.
const CancelKeys = "audit#" + cancels + "#*"

// settles says whether the step means that nothing is left to be done for its message.
func (s Step) settles() bool {
	switch s {
	case auditSent, auditRemoved, auditCopy, auditKept, auditGone, auditDiscarded:
		return true
	}
	return false
}

// takes says whether the step took a message from the DLQ, or was about to.
func (s Step) takes() bool {
	switch s {
	case auditSent, auditUndeleted, auditRemoved, auditFinal, auditCopy:
		return true
	}
	return false
}

// endingOf is the ending that a step alone tells.
func endingOf(s Step) Ending {
	switch s {
	case auditRemoved:
		return Removed
	case auditCopy:
		return Copied
	case auditKept:
		return Skipped
	case auditGone:
		return Gone
	}
	return Unjudged // sent, without a key
}

// sends says whether the line means that the job was sent.
func (a AuditRecord) sends() bool { return a.What == auditSent || a.What == auditUndeleted }

func pkAudit(run, message string) string {
	h := fnv.New32a()
	h.Write([]byte(message))
	return shardOf(run, int(h.Sum32()%auditShards))
}

func shardOf(run string, shard int) string { return fmt.Sprintf("audit#%s#%02d", run, shard) }

// sortKey is where the line is among those of its message.
func (a AuditRecord) sortKey(nonce string) string {
	return fmt.Sprintf("%s#%019d#%s#%s#%02d", a.Message, a.At.UnixNano(), a.What, nonce, a.Part)
}

// record appends lines to the audit.
func (s *Service) record(ctx context.Context, lines []AuditRecord) error {
	records := make([]Record, len(lines))
	nonce := short(s.newID())
	for i, line := range lines {
		doc, err := encode(line)
		if err != nil {
			return err
		}
		records[i] = Record{PK: pkAudit(line.Run, line.Message), SK: line.sortKey(nonce), Doc: doc, TTL: s.now().Add(s.numbers.Retention)}
	}
	if err := s.table.Append(ctx, records); err != nil {
		return fmt.Errorf("write audit: %w", err)
	}
	return nil
}

// lastLines gives each message's last line that is not an intent, or its intent if it has no other. The shards are
// read side by side, each is called by one of them at a time.
func (s *Service) lastLines(ctx context.Context, run string, each func(AuditRecord)) error {
	var mu sync.Mutex
	var group errgroup.Group
	for shard := range auditShards {
		group.Go(func() error {
			var last AuditRecord
			tell := func() {
				if last.Message != "" {
					mu.Lock()
					defer mu.Unlock()
					each(last)
				}
			}
			err := s.table.Query(ctx, shardOf(run, shard), "", func(r Record) error {
				line, err := decode[AuditRecord](r)
				if err != nil {
					return err
				}
				if line.Message != last.Message {
					tell()
					last = AuditRecord{}
				}
				if last.What == "" || line.What != auditIntent {
					last = line
				}
				return nil
			})
			if err != nil {
				return fmt.Errorf("read audit: %w", err)
			}
			tell()
			return nil
		})
	}
	return group.Wait()
}

// maxLine bounds what an audit line without its payload has, in bytes. maxEndingWhy bounds what the ledger says of an
// ending, of which each byte may become six.
const (
	maxLine      = 8 << 10
	maxEndingWhy = 200
)

// errFull: the answer has as much as Lambda lets it have.
var errFull = errors.New("the answer is full")

// auditPages is how many pages the audit of a run has: one for each shard.
const auditPages = auditShards

// audit answers with the lines of a run, a plan or a job. The lines of a run are many, so it answers with
// one page of them at a time, and with a part of a page where that is too long.
func (s *Service) audit(ctx context.Context, req Request) (Response, error) {
	resp := Response{Audit: []AuditRecord{}}
	collect := func(r Record) error {
		line, err := decode[AuditRecord](r)
		if !req.WithBody {
			line.Payload = nil
		}
		if line.Part == 0 || req.WithBody {
			resp.Audit = append(resp.Audit, line)
		}
		return err
	}
	about := func(subject string) error {
		return s.table.Query(ctx, pkAudit(deeds, subject), subject+"#", collect)
	}
	var err error
	if req.Ending != "" {
		if err = s.checkEnding(ctx, req); err != nil {
			return resp, err
		}
	}
	if req.Run != "" && req.Job != "" {
		if req.Message, err = s.messageOf(ctx, req); err != nil {
			return resp, err
		}
		req.Job = ""
	}
	switch run := req.Run; {
	case req.Job == pkSwitch: // no job has such a key
		if err = about(pkSwitch); err == nil {
			err = s.table.Query(ctx, pkSwitch, pkSwitch+"#", collect)
		}
	case req.Job != "":
		if req.Page < 0 {
			return resp, refuse("page is %d, want 0 or more", req.Page)
		}
		if req.Page == 0 {
			err = about(req.Job)
		}
		if err == nil && req.Page == 0 {
			err = s.table.Query(ctx, pkAudit(cancels, req.Job), req.Job+"#", collect)
		}
		if err == nil {
			resp.NextPage, err = s.auditOfJob(ctx, req.Job, req.Page, collect)
		}
	case req.Message != "" && run != "":
		err = s.table.Query(ctx, pkAudit(run, req.Message), req.Message+"#", collect)
		if err == nil && req.WithBody {
			var m archived
			m, err = unarchive(resp.Audit)
			resp.Body = m.Body
		}
	case req.Plan != "" && run == "":
		p, _, err := s.readPlan(ctx, req.Plan)
		if err != nil {
			return resp, err
		}
		if err := about(p.ID); err != nil {
			return resp, err
		}
		if err := about(p.Run); err != nil {
			return resp, err
		}
		if p.Replacement != nil {
			if err := s.table.Query(ctx, pkAudit(p.ID, p.Replacement.Message), p.Replacement.Message+"#", collect); err != nil {
				return resp, err
			}
			if req.WithBody {
				if err := s.showBody(ctx, &p); err != nil {
					return resp, err
				}
			}
		}
		resp.Plan = &p
	case run != "":
		if req.Page < 0 || req.Page >= auditPages {
			return resp, refuse("page is %d, want 0 to %d", req.Page, auditPages-1)
		}
		if req.Page == 0 && req.After == "" && req.Ending == "" {
			err = about(run)
		}
		size := 0
		if err == nil {
			err = s.table.QueryAfter(ctx, shardOf(run, req.Page), req.After, func(r Record) error {
				// The lines of one message stay together: the last one has its ending.
				if n := len(resp.Audit); size > maxList && !strings.HasPrefix(r.SK, resp.Audit[n-1].Message+"#") {
					return errFull
				}
				size += min(len(r.Doc), maxLine) + 6*maxEndingWhy
				resp.Next = r.SK
				return collect(r)
			})
		}
		if err == nil || errors.Is(err, errFull) {
			resp.EndingsAt = s.now().UTC()
			s.endings(ctx, run, resp.Audit)
			resp.Audit = slices.DeleteFunc(resp.Audit, func(line AuditRecord) bool { return req.Ending != "" && line.Ending != req.Ending })
		}
		if errors.Is(err, errFull) { // the rest of this shard is the next page
			resp.NextPage, err = req.Page, nil
			break
		}
		resp.Next = ""
		if resp.NextPage = req.Page + 1; resp.NextPage == auditPages {
			resp.NextPage = 0
		}
	default:
		err = refuse("audit needs a job, a plan, or a run, perhaps with one message of it")
	}
	slices.SortStableFunc(resp.Audit, func(a, b AuditRecord) int { return a.At.Compare(b.At) })
	return resp, err
}

// checkEnding refuses an ending that does not exist, and one of anything but a run.
func (s *Service) checkEnding(ctx context.Context, req Request) error {
	if !slices.Contains(allEndings, req.Ending) {
		var names []string
		for _, e := range allEndings {
			names = append(names, strconv.Quote(string(e)))
		}
		return refuse("there is no ending %q, want one of %s", req.Ending, strings.Join(names, ", "))
	}
	if req.Run == "" || req.Plan != "" || req.Message != "" || req.Job != "" {
		return refuse("an ending selects from the audit of a run")
	}
	_, _, err := s.readRun(ctx, req.Run)
	return err
}

// endings says on the last line of each message what became of it. Lines of one message follow each other. An entry
// that cannot be read leaves its line without an ending.
func (s *Service) endings(ctx context.Context, run string, lines []AuditRecord) {
	var group errgroup.Group
	group.SetLimit(sideBySide)
	for rest := lines; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Message == rest[0].Message {
			n++
		}
		of := rest[:n]
		rest = rest[n:]
		last := &of[0]
		for i := range of {
			if of[i].What != auditIntent {
				last = &of[i]
			}
		}
		switch {
		case last.sends() && last.Job != "":
			group.Go(func() error {
				s.judged(ctx, run, of[0].At, last)
				return nil
			})
		case last.sends(), last.What == auditRemoved, last.What == auditCopy, last.What == auditKept, last.What == auditGone:
			last.Ending = endingOf(last.What)
		}
	}
	_ = group.Wait()
}

// judged says on the line of a job that was sent how it ended. The run began with it at the given time.
func (s *Service) judged(ctx context.Context, run string, began time.Time, line *AuditRecord) {
	e, err := s.ledger.Get(ctx, line.Job)
	switch {
	case err != nil:
		line.EndingWhy = "its entry cannot be read: " + err.Error()
	case e.Version == 0:
		line.EndingWhy = "the ledger has no entry of it"
	default:
		line.Ending, line.EndingWhy, _ = judge(e, run, line.Generation)
		if line.Ending == "" && line.EndingWhy == "" {
			line.EndingWhy = "it has not run yet"
		}
		// Reopened by this run it keeps the time of its earlier isolation. A later one means that it was ended on the DLQ.
		if line.Ending == Succeeded && !e.IsolatedAt.Before(began.Truncate(time.Millisecond)) {
			line.Ending, line.EndingWhy = Again, "isolated again, and ended since: "+cmp.Or(e.Outcome, string(e.Status))
		}
	}
	line.EndingWhy = job.Shorten(job.SafeText(line.EndingWhy), maxEndingWhy)
}

// messageOf is the message of a job in a discard.
func (s *Service) messageOf(ctx context.Context, req Request) (message string, err error) {
	if req.Message != "" {
		return "", refuse("%s takes a message or a job, not both", req.Action)
	}
	found := 0
	err = s.lastLines(ctx, req.Run, func(line AuditRecord) {
		if line.Job == req.Job {
			message = line.Message
			found++
		}
	})
	switch {
	case err != nil:
		return "", err
	case found == 0:
		return "", refuse("%s has no message of job %s", req.Run, req.Job)
	case found > 1:
		return "", refuse("%s has %d messages of job %s: name one by its id", req.Run, found, req.Job)
	}
	return message, nil
}

// auditOfJob looks for a job's lines in one page of the audit's runs, plans and discards, the newest first. It returns
// the page that follows, 0 when none does.
func (s *Service) auditOfJob(ctx context.Context, key string, page int, collect func(Record) error) (next int, err error) {
	all, err := s.index(ctx)
	if err != nil {
		return 0, err
	}
	all = all[min(len(all), page*maxListed):]
	if len(all) > maxListed {
		all, next = all[:maxListed], page+1
	}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(sideBySide)
	for _, line := range all {
		for shard := range auditShards {
			group.Go(func() error {
				return s.table.Query(ctx, shardOf(line.Run, shard), "", func(r Record) error {
					found, err := decode[AuditRecord](r)
					if err != nil || found.Job != key {
						return err
					}
					mu.Lock()
					defer mu.Unlock()
					return collect(r)
				})
			})
		}
	}
	return next, group.Wait()
}
