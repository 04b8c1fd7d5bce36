package dynamo

import (
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast/internal/job"
	"acklast/internal/ledger"
)

// The attributes of an entry's item. None is a prefix of another, see write. The names of the keys and of the
// index's attributes are in topology too.
const (
	attrSubject           = "subject"
	attrKey               = "key"
	attrFormat            = "format"
	attrKind              = "kind"
	attrStatus            = "status"
	attrOutcome           = "outcome"
	attrAttempts          = "attempts"
	attrBudgetFrom        = "budget_from"
	attrContentions       = "contentions"
	attrContendedFrom     = "contended_from"
	attrThrottles         = "throttles"
	attrThrottledFrom     = "throttled_from"
	attrDigest            = "digest"
	attrTimeBudget        = "time_budget"
	attrRedrives          = "redrives"
	attrRun               = "run"
	attrDue               = "due"
	attrFirstSent         = "first_sent"
	attrDeadline          = "deadline"
	attrRetryAt           = "retry_at"
	attrScheduledUntil    = "scheduled_until"
	attrScheduleName      = "schedule_name"
	attrLastClass         = "last_class"
	attrLastError         = "last_error"
	attrCause             = "cause"
	attrFingerprint       = "fingerprint"
	attrHistory           = "history"
	attrLeaseUntil        = "lease_until"
	attrExpiresAt         = "expires_at"
	attrProviderKey       = "provider_key"
	attrCalledFrom        = "called_from"
	attrCalledUntil       = "called_until"
	attrUnresolved        = "unresolved"
	attrOpenClaims        = "open_claims"
	attrEvidence          = "evidence"
	attrDecisions         = "decisions"
	attrDecided           = "decided"
	attrIsolatedMessageID = "isolated_message_id"
	attrIsolatedAt        = "isolated_at"
	attrIsolatedFirstID   = "isolated_first_id"
	attrUnmarked          = "unmarked"
	attrIsolatedDay       = "isolated_day"
	attrIsolatedOrder     = "isolated_order"
	attrUpdatedAt         = "updated_at"
	attrFinalAt           = "final_at"
	attrTTL               = "ttl"
	attrOwner             = "owner"
	attrVersion           = "version"
)

// item is a DynamoDB item, or a part of one.
type item = map[string]types.AttributeValue

// Text is a DynamoDB string.
func Text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

// Number is a DynamoDB number.
func Number[N int | int64](n N) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(int64(n), 10)}
}

// Millis is a DynamoDB number that holds a time, in milliseconds since 1970.
func Millis(t time.Time) types.AttributeValue { return Number(t.UnixMilli()) }

// keyOf is an entry's primary key. The subject is a part of the key, so the key alone is enough.
func keyOf(key string) item {
	subject, _ := job.SubjectOf(key) // checkKey has refused a key without a subject
	return item{attrSubject: Text(subject), attrKey: Text(key)}
}

// isKey says whether an attribute belongs to the primary key, which no update can write.
func isKey(name string) bool { return name == attrSubject || name == attrKey }

// marshal writes an entry as an item. An empty or zero field has no attribute, except the primary key, the
// format, the attempts and the version. Times are milliseconds, except ttl, which DynamoDB reads as seconds.
func marshal(e ledger.Entry) item {
	it := keyOf(e.Key)
	it[attrFormat] = Number(ledger.Format)
	it[attrAttempts] = Number(e.Attempts)
	it[attrVersion] = Number(e.Version)
	putText(it, attrKind, e.Kind)
	putText(it, attrStatus, e.Status)
	putText(it, attrOutcome, e.Outcome)
	putNumber(it, attrBudgetFrom, e.BudgetFrom)
	putNumber(it, attrContentions, e.Contentions)
	putTime(it, attrContendedFrom, e.ContendedFrom)
	putNumber(it, attrThrottles, e.Throttles)
	putTime(it, attrThrottledFrom, e.ThrottledFrom)
	putText(it, attrDigest, e.Digest)
	putNumber(it, attrTimeBudget, int(e.TimeBudget.Milliseconds()))
	putNumber(it, attrRedrives, e.Redrives)
	putText(it, attrRun, e.Run)
	putTime(it, attrDue, e.Due)
	putTime(it, attrFirstSent, e.FirstSent)
	putTime(it, attrDeadline, e.Deadline)
	putTime(it, attrRetryAt, e.RetryAt)
	putTime(it, attrScheduledUntil, e.ScheduledUntil)
	putText(it, attrScheduleName, e.ScheduleName)
	putText(it, attrLastClass, e.LastClass)
	putText(it, attrLastError, e.LastError)
	putText(it, attrCause, e.Cause)
	putText(it, attrFingerprint, e.Fingerprint)
	putList(it, attrHistory, e.History, marshalEvent)
	putTime(it, attrLeaseUntil, e.LeaseUntil)
	putTime(it, attrExpiresAt, e.ExpiresAt)
	putText(it, attrProviderKey, e.ProviderKey)
	putTime(it, attrCalledFrom, e.CalledFrom)
	putTime(it, attrCalledUntil, e.CalledUntil)
	putBool(it, attrUnresolved, e.Unresolved)
	putBool(it, attrUnmarked, e.Unmarked)
	putText(it, attrIsolatedFirstID, e.IsolatedFirstID)
	putNumber(it, attrOpenClaims, e.OpenClaims)
	putList(it, attrEvidence, e.Evidence, marshalEvidence)
	putList(it, attrDecisions, e.Decisions, marshalDecision)
	putText(it, attrDecided, e.Decided)
	putText(it, attrIsolatedMessageID, e.IsolatedMessageID)
	putTime(it, attrIsolatedAt, e.IsolatedAt)
	putTime(it, attrUpdatedAt, e.UpdatedAt)
	putTime(it, attrFinalAt, e.FinalAt)
	if !e.TTL.IsZero() {
		it[attrTTL] = Number(e.TTL.Unix())
	}
	putText(it, attrOwner, e.Owner)
	if e.Status == ledger.Isolated {
		at := e.IsolatedAt.UTC()
		it[attrIsolatedDay] = Text(at.Format(dayFormat))
		it[attrIsolatedOrder] = Text(isolatedOrder(e, at))
	}
	return it
}

func marshalEvent(ev ledger.Event) item {
	it := item{}
	putTime(it, "at", ev.At)
	putText(it, "what", ev.What)
	putNumber(it, "attempt", ev.Attempt)
	putText(it, "class", ev.Class)
	putText(it, "cause", ev.Cause)
	putText(it, "error", ev.Error)
	return it
}

func marshalEvidence(ev ledger.Evidence) item {
	it := item{}
	putTime(it, "at", ev.At)
	putText(it, "token", ev.Token)
	putText(it, "request_id", ev.RequestID)
	putText(it, "note", ev.Note)
	return it
}

func marshalDecision(d ledger.Decision) item {
	it := item{}
	putTime(it, "at", d.At)
	putText(it, "by", d.By)
	putText(it, "what", d.What)
	putText(it, "reason", d.Reason)
	return it
}

func putList[T any](it item, name string, list []T, marshal func(T) item) {
	if len(list) == 0 {
		return
	}
	values := make([]types.AttributeValue, len(list))
	for i, v := range list {
		values[i] = &types.AttributeValueMemberM{Value: marshal(v)}
	}
	it[name] = &types.AttributeValueMemberL{Value: values}
}

func putText[S ~string](it item, name string, s S) {
	if s != "" {
		it[name] = Text(string(s))
	}
}

func putNumber(it item, name string, n int) {
	if n != 0 {
		it[name] = Number(n)
	}
}

func putBool(it item, name string, b bool) {
	if b {
		it[name] = &types.AttributeValueMemberBOOL{Value: true}
	}
}

func putTime(it item, name string, t time.Time) {
	if !t.IsZero() {
		it[name] = Millis(t)
	}
}

// unmarshal reads an entry back. No item is the zero Entry. Unknown attributes are skipped. An item without a
// version was not written by this package, and no conditional write could change it. So it is an error, and not
// an absent entry.
func unmarshal(it item) (ledger.Entry, error) {
	if len(it) == 0 {
		return ledger.Entry{}, nil
	}
	r := reader{item: it}
	if format := int(r.number(attrFormat)); format > ledger.Format {
		return ledger.Entry{}, &job.NewerError{What: "entry " + readText[string](&r, attrKey), Format: format, Known: ledger.Format}
	}
	e := ledger.Entry{
		Key:               readText[string](&r, attrKey),
		Subject:           readText[string](&r, attrSubject),
		Kind:              readText[string](&r, attrKind),
		Status:            readText[ledger.Status](&r, attrStatus),
		Outcome:           readText[string](&r, attrOutcome),
		Attempts:          int(r.number(attrAttempts)),
		BudgetFrom:        int(r.number(attrBudgetFrom)),
		Contentions:       int(r.number(attrContentions)),
		ContendedFrom:     r.time(attrContendedFrom),
		Throttles:         int(r.number(attrThrottles)),
		ThrottledFrom:     r.time(attrThrottledFrom),
		Digest:            readText[string](&r, attrDigest),
		TimeBudget:        time.Duration(r.number(attrTimeBudget)) * time.Millisecond,
		Redrives:          int(r.number(attrRedrives)),
		Run:               readText[string](&r, attrRun),
		Due:               r.time(attrDue),
		FirstSent:         r.time(attrFirstSent),
		Deadline:          r.time(attrDeadline),
		RetryAt:           r.time(attrRetryAt),
		ScheduledUntil:    r.time(attrScheduledUntil),
		ScheduleName:      readText[string](&r, attrScheduleName),
		LastClass:         readText[job.Class](&r, attrLastClass),
		LastError:         readText[string](&r, attrLastError),
		Cause:             readText[job.Cause](&r, attrCause),
		Fingerprint:       readText[string](&r, attrFingerprint),
		History:           readList(&r, attrHistory, readEvent),
		LeaseUntil:        r.time(attrLeaseUntil),
		ExpiresAt:         r.time(attrExpiresAt),
		ProviderKey:       readText[string](&r, attrProviderKey),
		CalledFrom:        r.time(attrCalledFrom),
		CalledUntil:       r.time(attrCalledUntil),
		Unresolved:        r.bool(attrUnresolved),
		OpenClaims:        int(r.number(attrOpenClaims)),
		Evidence:          readList(&r, attrEvidence, readEvidence),
		Decisions:         readList(&r, attrDecisions, readDecision),
		Decided:           readText[ledger.DecisionKind](&r, attrDecided),
		IsolatedMessageID: readText[string](&r, attrIsolatedMessageID),
		IsolatedAt:        r.time(attrIsolatedAt),
		IsolatedFirstID:   readText[string](&r, attrIsolatedFirstID),
		Unmarked:          r.bool(attrUnmarked),
		UpdatedAt:         r.time(attrUpdatedAt),
		FinalAt:           r.time(attrFinalAt),
		Owner:             readText[string](&r, attrOwner),
		Version:           r.number(attrVersion),
	}
	if _, ok := it[attrTTL]; ok {
		e.TTL = time.Unix(r.number(attrTTL), 0).UTC()
	}
	if r.err == nil && e.Version < 1 {
		r.err = fmt.Errorf("attribute %s is missing or not positive", attrVersion)
	}
	if r.err != nil {
		return ledger.Entry{}, fmt.Errorf("read entry: %w: %w", ledger.ErrUndecodable, r.err)
	}
	return e, nil
}

// stored returns the entry as a read would return it: with times of milliseconds in UTC.
func stored(e ledger.Entry) (ledger.Entry, error) { return unmarshal(marshal(e)) }

// reader reads attributes and keeps the first error. An attribute that is absent is the zero value.
type reader struct {
	item item
	err  error
}

func (r *reader) fail(name, want string) {
	if r.err == nil {
		r.err = fmt.Errorf("attribute %s is not %s", name, want)
	}
}

func readText[S ~string](r *reader, name string) S {
	v, ok := r.item[name]
	if !ok {
		return ""
	}
	s, ok := v.(*types.AttributeValueMemberS)
	if !ok {
		r.fail(name, "a string")
		return ""
	}
	return S(s.Value)
}

func (r *reader) number(name string) int64 {
	v, ok := r.item[name]
	if !ok {
		return 0
	}
	n, ok := v.(*types.AttributeValueMemberN)
	if !ok {
		r.fail(name, "a number")
		return 0
	}
	i, err := strconv.ParseInt(n.Value, 10, 64)
	if err != nil {
		r.fail(name, "a whole number")
	}
	return i
}

func (r *reader) time(name string) time.Time {
	if _, ok := r.item[name]; !ok {
		return time.Time{}
	}
	return time.UnixMilli(r.number(name)).UTC()
}

func (r *reader) bool(name string) bool {
	v, ok := r.item[name]
	if !ok {
		return false
	}
	b, ok := v.(*types.AttributeValueMemberBOOL)
	if !ok {
		r.fail(name, "true or false")
		return false
	}
	return b.Value
}

func readList[T any](r *reader, name string, read func(*reader) T) []T {
	v, ok := r.item[name]
	if !ok {
		return nil
	}
	l, ok := v.(*types.AttributeValueMemberL)
	if !ok {
		r.fail(name, "a list")
		return nil
	}
	list := make([]T, 0, len(l.Value))
	for _, v := range l.Value {
		m, ok := v.(*types.AttributeValueMemberM)
		if !ok {
			r.fail(name, "a list of maps")
			return nil
		}
		each := reader{item: m.Value}
		list = append(list, read(&each))
		if r.err == nil {
			r.err = each.err
		}
	}
	return list
}

func readEvent(r *reader) ledger.Event {
	return ledger.Event{
		At:      r.time("at"),
		What:    readText[ledger.EventKind](r, "what"),
		Attempt: int(r.number("attempt")),
		Class:   readText[job.Class](r, "class"),
		Cause:   readText[job.Cause](r, "cause"),
		Error:   readText[string](r, "error"),
	}
}

func readEvidence(r *reader) ledger.Evidence {
	return ledger.Evidence{
		At:        r.time("at"),
		Token:     readText[string](r, "token"),
		RequestID: readText[string](r, "request_id"),
		Note:      readText[string](r, "note"),
	}
}

func readDecision(r *reader) ledger.Decision {
	return ledger.Decision{
		At:     r.time("at"),
		By:     readText[string](r, "by"),
		What:   readText[ledger.DecisionKind](r, "what"),
		Reason: readText[string](r, "reason"),
	}
}
