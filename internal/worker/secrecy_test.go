package worker_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/marks"
)

var (
	recipientMark = marks.New("recipient")
	bodyMark      = marks.New("body")
)

// private is a payload with a recipient, and with a note that only the body has.
type private struct{ ID, Recipient, Note string }

// bodyOf is a job whose recipient and note are marked.
func bodyOf(id string) string {
	return fmt.Sprintf(`{"kind":"private","payload":{"ID":%q,"Recipient":"Mia <%s+1@example.test>","Note":"%s \"x\""}}`, id, recipientMark, bodyMark)
}

// newPrivate is a bench with a kind whose jobs end by what the test gives it.
func newPrivate(t *testing.T, check func(private) error, run func(context.Context, job.Delivery) job.Result) *bench {
	b := newBench(t)
	k := job.Define(job.Definition[private]{
		Name: "private", Masked: []string{"Recipient"}, Check: check, Key: func(p private) (string, []string) {
			if p.ID == "unnamed" {
				panic(p)
			}
			return p.ID, nil
		},
	})
	k.Run = run
	k.Together = func(job.Delivery) string { return "all" }
	k.RunBatch = func(ctx context.Context, ds []job.Delivery) []job.Result {
		results := make([]job.Result, len(ds))
		for i := range ds {
			results[i] = run(ctx, ds[len(ds)-1-i]) // quotes another job than its own
		}
		return results
	}
	b.Kinds = job.NewCatalogue(k)
	return b
}

// wantSecret searches all that leaves the worker, except for the bodies themselves.
func (b *bench) wantSecret(name string) {
	b.Helper()
	kept, err := json.Marshal(b.ledger.entries)
	if err != nil {
		b.Fatal(err)
	}
	found := map[string]string{"the log and the metrics": b.out.String(), "the ledger": string(kept)}
	for queue, moves := range b.wires.sent {
		for _, m := range moves {
			own, err := m.Message.Memory.Encode()
			if err != nil {
				b.Fatal(err)
			}
			found["our attribute on "+string(queue)] += own.String
		}
	}
	for where, text := range found {
		for _, mark := range []string{recipientMark, bodyMark} {
			if form := marks.In(text, mark); form != "" {
				b.Errorf("%s: %s has %s, %s:\n%s", name, where, mark, form, text)
			}
		}
	}
	if b.out.Len() == 0 {
		b.Errorf("%s: nothing was logged", name)
	}
}

// Whatever a kind's code quotes, no recipient and no body is logged, counted, kept or sent with the job.
func TestNoRecipientAndNoBodyLeavesTheWorker(t *testing.T) {
	const panics = "panics"
	quoted := func(d job.Delivery) map[string]string {
		p, payload := d.Payload.(private), string(d.Envelope.Payload)
		return map[string]string{
			"recipient": p.Recipient, "quoted": fmt.Sprintf("%q", p.Recipient), "URL": url.QueryEscape(p.Recipient), "base64": base64.StdEncoding.EncodeToString([]byte(p.Recipient)),
			"payload": payload, "payload quoted": fmt.Sprintf("%q", payload), "payload base64": base64.URLEncoding.EncodeToString([]byte(payload)),
		}
	}
	ways := map[string]func(error) job.Result{
		"unclassified": func(err error) job.Result { return job.Result{Err: err} },
		"transient":    func(err error) job.Result { return job.Result{Err: &job.Failure{Class: job.Transient, Err: err}} },
		"rejected": func(err error) job.Result {
			return job.Result{Err: fmt.Errorf("send: %w", &job.Failure{Class: job.Rejected, Err: err})}
		},
		"ambiguous": func(err error) job.Result { return job.Result{Err: &job.Failure{Class: job.Ambiguous, Err: err}} },
		"blocked":   func(err error) job.Result { return job.Result{Verdict: job.Blocked, Err: err} },
		"unconfirmed": func(err error) job.Result {
			return job.Result{Verdict: job.Unconfirmed, Err: errors.Join(ledger.ErrUnavailable, err)}
		},
		"lease lost": func(err error) job.Result {
			return job.Result{Verdict: job.Unconfirmed, Err: errors.Join(ledger.ErrLeaseLost, err)}
		},
		panics:                 func(err error) job.Result { panic(err) },
		"panics with a struct": func(err error) job.Result { panic(struct{ text string }{err.Error()}) },
	}
	for way, result := range ways {
		for form := range quoted(job.Delivery{Payload: private{}}) {
			run := func(_ context.Context, d job.Delivery) job.Result {
				return result(errors.New("provider said: no mailbox " + quoted(d)[form] + ", goodbye"))
			}
			b := newPrivate(t, nil, run)
			if _, err := b.handle(b.record("m1", bodyOf("1"))); err != nil && !strings.Contains(err.Error(), "left") {
				t.Fatal(err)
			}
			b.wantSecret(way + " " + form)
			b = newPrivate(t, nil, run)
			_, _ = b.handle(b.record("m1", bodyOf("1")), b.record("m2", strings.ReplaceAll(bodyOf("2"), "Mia", "Leo")))
			b.wantSecret(way + " together " + form)
		}
	}
	b := newPrivate(t, func(p private) error { return fmt.Errorf("no such mailbox: %s", p.Recipient) }, nil)
	b.one(b.record("m1", bodyOf("1")))
	b.wantSecret("a check")
	b = newPrivate(t, nil, nil)
	b.one(b.record("m1", bodyOf("unnamed")))
	b.wantSecret("a panic while the key is made")
	b = newPrivate(t, nil, func(ctx context.Context, d job.Delivery) job.Result {
		<-ctx.Done()
		return job.Result{Err: errors.New("gave up on " + d.Payload.(private).Recipient)}
	})
	b.Rules.Retry.AttemptTime = time.Millisecond
	b.one(b.record("m1", bodyOf("1")))
	b.wantSecret("an attempt that its time ended")
}

// No body that cannot be read is quoted either.
func TestNoUnreadableBodyLeavesTheWorker(t *testing.T) {
	good := bodyOf("1")
	for name, body := range map[string]string{
		"cut off": good[:len(good)-3], "trailing": good + bodyMark, "text": bodyMark, "list": "[" + good + "]", "as a text": fmt.Sprintf("%q", good),
		"base64":           base64.StdEncoding.EncodeToString([]byte(good)),
		"wrong time":       strings.Replace(good, `"payload"`, `"notBefore":"`+bodyMark+`","payload"`, 1),
		"wrong type":       strings.Replace(good, `"1"`, `{"`+bodyMark+`":1}`, 1),
		"a name twice":     strings.Replace(good, `"ID"`, `"x":{"`+bodyMark+`":{"a":1,"a":2}},"ID"`, 1),
		"two forms":        strings.Replace(good, `"kind"`, `"TopicArn":"`+bodyMark+`","kind"`, 1),
		"in an event":      `{"detail-type":"x","source":"` + bodyMark + `","detail":"` + bodyMark + `"}`,
		"in a message":     `{"Type":"Notification","TopicArn":"a","Message":"` + bodyMark + `"}`,
		"deadline at noon": strings.Replace(good, `"payload"`, `"deadline":"`+bodyMark+`","payload"`, 1),
	} {
		b := newPrivate(t, nil, nil)
		b.one(b.record("m1", body))
		b.wantSecret(name)
		equal(b, len(b.wires.sent[job.DLQ]), 1, "%s: messages on the DLQ", name)
	}
	b := newPrivate(t, nil, func(context.Context, job.Delivery) job.Result { return job.Result{Verdict: job.Committed} })
	r := b.record("m1", bodyOf("1"))
	forged := `{"attempt":"` + bodyMark + `","` + bodyMark + `":{"a":1,"a":1}}`
	r.MessageAttributes = map[string]events.SQSMessageAttribute{job.MemoryAttribute: {DataType: "String", StringValue: &forged}}
	b.one(r)
	b.wantSecret("a forged attribute")
}
