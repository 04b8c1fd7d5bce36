package dynamo_test

import (
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/google/uuid"

	"acklast/internal/dynamo"
	"acklast/internal/job"
)

// updates records the updates of items.
type updates struct {
	dynamo.API
	made []*dynamodb.UpdateItemInput
}

func (u *updates) UpdateItem(_ context.Context, in *dynamodb.UpdateItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	u.made = append(u.made, in)
	return &dynamodb.UpdateItemOutput{}, nil
}

// DynamoDB refuses a placeholder with a hyphen as a syntax error, and owner tokens and message ids have hyphens.
// The embedded engines allow it, so only this test sees it.
func TestPlaceholdersHaveOnlyLettersDigitsAndUnderscores(t *testing.T) {
	api := &updates{}
	s := dynamo.New(api, "ledger", dynamo.Options{})
	id := uuid.NewString()
	if err := s.Strike(t.Context(), id, id, "k", time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := s.ClearStrike(t.Context(), id, id); err != nil {
		t.Fatal(err)
	}
	if err := s.NameSuspect(t.Context(), job.Delivery{Message: job.Message{ID: id}, Key: id, Subject: id, Digest: id}); err != nil {
		t.Fatal(err)
	}
	if err := s.FinishSmoke(t.Context(), id, id); err != nil {
		t.Fatal(err)
	}
	allowed := regexp.MustCompile(`^[#:][A-Za-z0-9_]+$`)
	for _, in := range api.made {
		for name := range in.ExpressionAttributeNames {
			if !allowed.MatchString(name) {
				t.Errorf("the placeholder %q is not allowed", name)
			}
		}
		for name := range in.ExpressionAttributeValues {
			if !allowed.MatchString(name) {
				t.Errorf("the placeholder %q is not allowed", name)
			}
		}
	}
	if len(api.made) != 4 {
		t.Errorf("%d updates, want 4", len(api.made))
	}
}
