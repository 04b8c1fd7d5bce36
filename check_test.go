package acklast_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast"
)

// recorder is a T that records failures.
type recorder struct{ failures []string }

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

// ticket is the payload of the kinds below. Each of them closes a ticket.
type ticket struct {
	TicketID string `json:"ticketId"`
	Note     string `json:"note"`
	SentAt   string `json:"sentAt"`
}

const ticketBody = `{"kind":"ticket.close","payload":{"ticketId":"t-1","note":"n","sentAt":"2026-12-01"}}`

type item = map[string]types.AttributeValue

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func seedTicket(ctx context.Context, s acklast.Services) error {
	_, err := s.DynamoDB.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: aws.String(s.Table("tickets")), Item: item{"ticket_id": text("t-1"), "state": text("open")},
	})
	return err
}

// closeTicket is the correct change of a ticket.
func closeTicket(s acklast.Services, id string) types.TransactWriteItem {
	return types.TransactWriteItem{Update: &types.Update{
		TableName: aws.String(s.Table("tickets")), Key: item{"ticket_id": text(id)},
		UpdateExpression:          aws.String("SET #state = :closed, closed_at = :now"),
		ConditionExpression:       aws.String("#state = :open"),
		ExpressionAttributeNames:  map[string]string{"#state": "state"},
		ExpressionAttributeValues: item{":closed": text("closed"), ":open": text("open"), ":now": text(s.Now().Format(time.RFC3339Nano))},
	}}
}

// count adds one to the number of closed tickets, outside any transaction.
func count(ctx context.Context, s acklast.Services) error {
	_, err := s.DynamoDB.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: aws.String(s.Table("tickets")), Key: item{"ticket_id": text("closed")},
		UpdateExpression:          aws.String("ADD amount :one"),
		ExpressionAttributeValues: item{":one": &types.AttributeValueMemberN{Value: "1"}},
	})
	return err
}

// definition is correct; the tests below change a copy of it.
func definition() acklast.Definition[ticket] {
	return acklast.Definition[ticket]{
		Name:     "ticket.close",
		Key:      func(t ticket) (string, []string) { return t.TicketID, nil },
		Volatile: []string{"sentAt"},
		Tables:   []acklast.Table{{Name: "tickets", PartitionKey: "ticket_id"}},
		Grants: func(func(string) string) ([]acklast.Grant, error) {
			return []acklast.Grant{{Table: "tickets", Actions: []string{"dynamodb:GetItem", "dynamodb:UpdateItem", "dynamodb:Put*"}}}, nil
		},
		Samples: []acklast.Sample{{Name: "ticket", Body: ticketBody}},
	}
}

type runTicket = func(ctx context.Context, s acklast.Services, j *acklast.Job[ticket]) error

// run is correct; the tests below replace it.
func run(ctx context.Context, s acklast.Services, j *acklast.Job[ticket]) error {
	err := j.Commit(ctx, "closed", closeTicket(s, j.Payload.TicketID))
	var refused *acklast.RefusedError
	if errors.As(err, &refused) {
		return j.Commit(ctx, "was closed")
	}
	return err
}

func ticketKind(d acklast.Definition[ticket], run runTicket) acklast.Kind {
	return acklast.Define(d, func(_ context.Context, s acklast.Services) (acklast.Runner[ticket], error) {
		return acklast.RunnerFunc[ticket](func(ctx context.Context, j *acklast.Job[ticket]) error { return run(ctx, s, j) }), nil
	})
}

func TestCheckKindPassesARightKind(t *testing.T) {
	d := definition()
	acklast.CheckKind(t, ticketKind(d, run), acklast.CheckOptions{Seed: seedTicket})
	t.Run("that expires late jobs", func(t *testing.T) {
		d.Late = acklast.ExpireLate
		acklast.CheckKind(t, ticketKind(d, run), acklast.CheckOptions{Seed: seedTicket})
	})
	t.Run("that makes random ids", func(t *testing.T) {
		acklast.CheckKind(t, ticketKind(d, func(ctx context.Context, s acklast.Services, j *acklast.Job[ticket]) error {
			id := fmt.Sprint("audit-", random.Add(1))
			audit := types.TransactWriteItem{Put: &types.Put{TableName: aws.String(s.Table("tickets")), Item: item{"ticket_id": text(id)}}}
			return j.Commit(ctx, "closed", closeTicket(s, j.Payload.TicketID), audit)
		}), acklast.CheckOptions{Seed: seedTicket})
	})
	t.Run("with an effect outside", func(t *testing.T) {
		provider := &provider{}
		acklast.CheckKind(t, effectKind(provider, acklast.Abilities{}), acklast.CheckOptions{Seed: provider.forget, Effects: provider.effects})
	})
	t.Run("with an effect outside that is looked up", func(t *testing.T) {
		provider := &provider{}
		acklast.CheckKind(t, effectKind(provider, acklast.Abilities{LooksUp: true, KeyWindow: time.Hour}), acklast.CheckOptions{Seed: provider.forget, Effects: provider.effects})
	})
}

var random atomic.Int64

// provider accepts requests and remembers their keys.
type provider struct {
	accepted atomic.Int64
	keys     sync.Map
}

func (p *provider) effects() int { return int(p.accepted.Load()) }

func (p *provider) forget(context.Context, acklast.Services) error {
	p.keys.Clear()
	return nil
}

func effectKind(p *provider, can acklast.Abilities) acklast.Kind {
	d := definition()
	d.Tables, d.Grants = nil, nil
	return acklast.Define(d, func(_ context.Context, s acklast.Services) (acklast.Runner[ticket], error) {
		return acklast.NewEffect(s, acklast.Effect[ticket]{
			Send: func(_ context.Context, key string, _ ticket) (string, error) {
				p.accepted.Add(1)
				p.keys.Store(key, true)
				return "request-1", nil
			},
			Lookup: func(_ context.Context, key string, _ ticket) (string, error) {
				if _, ok := p.keys.Load(key); ok {
					return "request-1", nil
				}
				return "", acklast.ErrNoRequest
			},
			Abilities: can, Timeout: time.Second,
		})
	})
}

// Each of these kinds has one mistake, and CheckKind names it.
func TestCheckKindFindsMistakes(t *testing.T) {
	var sent atomic.Int64
	options := acklast.CheckOptions{Seed: seedTicket, Effects: func() int { return int(sent.Load()) }}
	commit := func(item func(s acklast.Services, j *acklast.Job[ticket]) types.TransactWriteItem) runTicket {
		return func(ctx context.Context, s acklast.Services, j *acklast.Job[ticket]) error {
			return j.Commit(ctx, "closed", item(s, j))
		}
	}
	for name, tt := range map[string]struct {
		spoil func(*acklast.Definition[ticket])
		run   runTicket
		want  string
	}{
		"key of a time": {spoil: func(d *acklast.Definition[ticket]) {
			d.Key = func(t ticket) (string, []string) { return t.TicketID, []string{fmt.Sprint(time.Now().UnixNano())} }
		}, want: "read again, its key is"},
		"key of a volatile field": {spoil: func(d *acklast.Definition[ticket]) {
			d.Key = func(t ticket) (string, []string) { return t.TicketID, []string{t.SentAt} }
		}, want: "its key depends on sentAt"},
		"one key for all": {spoil: func(d *acklast.Definition[ticket]) {
			d.Key = func(ticket) (string, []string) { return "ticket", nil }
		}, want: "no field changes its key"},
		"no sample": {spoil: func(d *acklast.Definition[ticket]) { d.Samples = nil }, want: "has no sample"},
		"unreadable sample": {spoil: func(d *acklast.Definition[ticket]) {
			d.Samples = []acklast.Sample{{Name: "s", Body: `{"kind":"ticket.close","payload":{"ticketId":7}}`}}
		}, want: "sample s: it is not readable"},
		"sample of another kind": {spoil: func(d *acklast.Definition[ticket]) {
			d.Samples = []acklast.Sample{{Name: "s", Body: `{"kind":"ticket.open","payload":{}}`}}
		}, want: "sample s: it is not readable"},
		"masked field misspelt": {spoil: func(d *acklast.Definition[ticket]) { d.Masked = []string{"recipent"} }, want: "no sample has the field recipent"},
		"grant missing": {spoil: func(d *acklast.Definition[ticket]) {
			d.Grants = func(func(string) string) ([]acklast.Grant, error) {
				return []acklast.Grant{{Table: "tickets", Actions: []string{"dynamodb:GetItem"}}}, nil
			}
		}, want: "calls dynamodb:UpdateItem on table tickets, which its grants do not allow"},
		"commit missing": {run: func(context.Context, acklast.Services, *acklast.Job[ticket]) error { return nil },
			want: "returned nil without a commit"},
		"commit's error dropped": {run: func(ctx context.Context, s acklast.Services, j *acklast.Job[ticket]) error {
			_ = j.Commit(ctx, "closed", closeTicket(s, j.Payload.TicketID))
			return nil
		}, want: "returned nil without a commit: return the error of Commit"},
		"trouble taken for an answer": {run: func(ctx context.Context, s acklast.Services, j *acklast.Job[ticket]) error {
			if err := j.Commit(ctx, "closed", closeTicket(s, j.Payload.TicketID)); err != nil {
				return acklast.Rejected("ticket %s is not open", j.Payload.TicketID)
			}
			return nil
		}, want: "it ends as isolated"},
		"unconditional overwrite": {run: commit(func(s acklast.Services, j *acklast.Job[ticket]) types.TransactWriteItem {
			change := closeTicket(s, j.Payload.TicketID)
			change.Update.ConditionExpression = nil
			change.Update.ExpressionAttributeValues = item{":closed": text("closed"), ":now": text("")}
			return change
		}), want: `overwrites tickets "t-1"`},
		"unconditional put": {run: commit(func(s acklast.Services, _ *acklast.Job[ticket]) types.TransactWriteItem {
			return types.TransactWriteItem{Put: &types.Put{TableName: aws.String(s.Table("tickets")), Item: item{"ticket_id": text("t-1")}}}
		}), want: `overwrites tickets "t-1"`},
		"effect before the commit": {run: func(ctx context.Context, s acklast.Services, j *acklast.Job[ticket]) error {
			if err := count(ctx, s); err != nil {
				return err
			}
			return run(ctx, s, j)
		}, want: "amount of tickets \"closed\" is"},
		"write after the job has ended": {run: func(ctx context.Context, s acklast.Services, j *acklast.Job[ticket]) error {
			_, err := s.DynamoDB.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String(s.Table("tickets")), Item: item{"ticket_id": text("seen")}})
			if err != nil {
				return err
			}
			return run(ctx, s, j)
		}, want: `a second delivery writes`},
		"effect outside without a claim": {run: func(ctx context.Context, s acklast.Services, j *acklast.Job[ticket]) error {
			sent.Add(1)
			return run(ctx, s, j)
		}, want: "effects outside the database, want 1"},
		"a record that nobody seeded": {run: func(ctx context.Context, s acklast.Services, j *acklast.Job[ticket]) error {
			return j.Commit(ctx, "closed", closeTicket(s, "t-2"))
		}, want: "one delivery is retried and not acknowledged: own item 0 refused"},
		"late policy of its own": {run: func(ctx context.Context, s acklast.Services, j *acklast.Job[ticket]) error {
			if !j.Deadline.IsZero() && j.Now().After(j.Deadline) {
				return j.Commit(ctx, "too late")
			}
			return run(ctx, s, j)
		}, want: "past its deadline, although its late policy is RunLate, state of tickets"},
		"late job refused": {run: func(ctx context.Context, s acklast.Services, j *acklast.Job[ticket]) error {
			if !j.Deadline.IsZero() && j.Now().After(j.Deadline) {
				return acklast.Rejected("too late")
			}
			return run(ctx, s, j)
		}, want: "past its deadline it is isolated"},
		"panic": {run: func(context.Context, acklast.Services, *acklast.Job[ticket]) error { panic("oh") }, want: "panic with a string in acklast_test.TestCheckKind"},
	} {
		t.Run(name, func(t *testing.T) {
			d, body := definition(), tt.run
			if tt.spoil != nil {
				tt.spoil(&d)
			}
			if body == nil {
				body = run
			}
			var r recorder
			acklast.CheckKind(&r, ticketKind(d, body), options)
			if got := strings.Join(r.failures, "\n"); !strings.Contains(got, tt.want) {
				t.Errorf("want a failure that says %q, got:\n%s", tt.want, got)
			}
		})
	}
}

// CheckKind accepts an overwrite in a table that Overwrites names.
func TestCheckKindLetsNamedTablesBeOverwritten(t *testing.T) {
	acklast.CheckKind(t, ticketKind(definition(), func(ctx context.Context, s acklast.Services, j *acklast.Job[ticket]) error {
		return j.Commit(ctx, "seen", types.TransactWriteItem{Put: &types.Put{
			TableName: aws.String(s.Table("tickets")), Item: item{"ticket_id": text("t-1"), "state": text("seen")},
		}})
	}), acklast.CheckOptions{Seed: seedTicket, Overwrites: []string{"tickets"}})
}

// careless forgets the items of all jobs of a batch except the first.
type careless struct {
	acklast.RunnerFunc[ticket]
	services acklast.Services
}

func (careless) Together(ticket) string { return "all" }

func (c careless) RunBatch(ctx context.Context, jobs []*acklast.Job[ticket]) []error {
	return acklast.CommitTogether(ctx, "closed", jobs, func(j *acklast.Job[ticket]) []types.TransactWriteItem {
		if j != jobs[0] {
			return nil
		}
		return []types.TransactWriteItem{closeTicket(c.services, j.Payload.TicketID)}
	}, func([]*acklast.Job[ticket]) []types.TransactWriteItem { return nil })
}

func TestCheckKindDeliversSamplesTogether(t *testing.T) {
	kind := acklast.Define(definition(), func(_ context.Context, s acklast.Services) (acklast.Runner[ticket], error) {
		return careless{func(ctx context.Context, j *acklast.Job[ticket]) error { return run(ctx, s, j) }, s}, nil
	})
	var r recorder
	acklast.CheckKind(&r, kind, acklast.CheckOptions{
		Seed: func(ctx context.Context, s acklast.Services) error {
			_, err := s.DynamoDB.PutItem(ctx, &dynamodb.PutItemInput{
				TableName: aws.String(s.Table("tickets")), Item: item{"ticket_id": text("t-2"), "state": text("open")},
			})
			return errors.Join(err, seedTicket(ctx, s))
		},
		Samples: []acklast.Sample{{Name: "second", Body: strings.ReplaceAll(ticketBody, "t-1", "t-2")}},
	})
	if got := strings.Join(r.failures, "\n"); !strings.Contains(got, `delivered together, state of tickets "t-2" is {"S":"open"}`) {
		t.Errorf("want a failure that names the open ticket, got:\n%s", got)
	}
}
