package e2e_test

import (
	"errors"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast/internal/job"
	"acklast/internal/kinds/reservation"
	"acklast/internal/ledger"
)

// The runbook's part about a ledger that was lost or restored, rehearsed: what it forgot comes again.

// lose takes an entry out of the ledger, as a backup from before it would, and returns it.
func (e *embedded) lose(key string) map[string]types.AttributeValue {
	e.Helper()
	subject, ok := job.SubjectOf(key)
	if !ok {
		e.Fatalf("%s has no subject", key)
	}
	out, err := e.db.DeleteItem(e.Context(), &dynamodb.DeleteItemInput{
		TableName:    &e.names.LedgerTable,
		Key:          map[string]types.AttributeValue{"subject": &types.AttributeValueMemberS{Value: subject}, "key": &types.AttributeValueMemberS{Value: key}},
		ReturnValues: types.ReturnValueAllOld,
	})
	if err != nil || len(out.Attributes) == 0 {
		e.Fatalf("lose %s: %v, %v", key, out, err)
	}
	return out.Attributes
}

// copyBack writes an entry of the restored table to the live one, unless it is there.
func (e *embedded) copyBack(entry map[string]types.AttributeValue) error {
	_, err := e.db.PutItem(e.Context(), &dynamodb.PutItemInput{
		TableName: &e.names.LedgerTable, Item: entry, ConditionExpression: aws.String("attribute_not_exists(subject)"),
	})
	return err
}

// The reservation's own condition outlives the ledger: an expiry whose entry is lost changes nothing.
func TestAnExpiryThatTheLedgerForgotIsSuperseded(t *testing.T) {
	e := newEmbedded(t)
	h := e.place(e.hold("forgotten", 5, 0))
	e.ends(h, ledger.Done)
	e.wantAvailable(100)
	e.lose(e.key(h))

	e.send(e.body(h), nil)
	if got := e.ends(h, ledger.Done); got.Outcome != reservation.Superseded {
		t.Errorf("it ends as %q, want %q", got.Outcome, reservation.Superseded)
	}
	e.wantState(h, reservation.Expired)
	e.wantAvailable(100)
}

// An effect outside the database is made again, unless the provider knows the key: it follows from the job's.
func TestAReminderThatTheLedgerForgotIsSentAgain(t *testing.T) {
	needsEmbedded(t)
	t.Parallel()
	for name, c := range map[string]struct {
		deduplicates bool
		want         int
	}{"by a provider that knows no key": {false, 2}, "but not by one that does": {true, 1}} {
		t.Run(name, func(t *testing.T) {
			can := unable
			if c.deduplicates {
				can = able
			}
			e := reminders(t, can)
			p := e.reminder("forgotten")
			key := e.remind(p, 1)
			e.comesTo(key, ledger.Done)
			e.lose(key)

			e.remind(p, 1)
			e.comesTo(key, ledger.Done)
			e.dry()
			e.wantAccepted(p, c.want)
		})
	}
}

// An entry that is copied back makes the next delivery a duplicate, and never replaces a newer one.
func TestAnEntryIsCopiedBackOnlyWhereItIsMissing(t *testing.T) {
	e := reminders(t, unable)
	p := e.reminder("restored")
	key := e.remind(p, 1)
	e.comesTo(key, ledger.Done)
	before := e.entry(key)
	old := e.lose(key)
	if err := e.copyBack(old); err != nil {
		t.Fatal(err)
	}
	e.remind(p, 1)
	e.dry()
	e.wantAccepted(p, 1)
	if got := e.entry(key); got.Version != before.Version {
		t.Errorf("the entry has version %d, want %d", got.Version, before.Version)
	}
	var refused *types.ConditionalCheckFailedException
	if err := e.copyBack(old); !errors.As(err, &refused) {
		t.Errorf("an entry that is there is written over: %v", err)
	}
}
