package newkind_test

import (
	"context"
	"net/http/httptest"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast"
	"acklast/docs/newkind"
)

// A voucher's job keeps its promises to the worker.
func TestKind(t *testing.T) {
	acklast.CheckKind(t, newkind.Kind(), acklast.CheckOptions{
		Seed: func(ctx context.Context, s acklast.Services) error {
			_, err := s.DynamoDB.PutItem(ctx, &dynamodb.PutItemInput{
				TableName: aws.String(s.Table("vouchers")),
				Item:      map[string]types.AttributeValue{"voucher_id": acklast.Text("v-1"), "state": acklast.Text("issued")},
			})
			return err
		},
	})
}

// So does a notice's, whose effect is outside.
func TestNotify(t *testing.T) {
	partners := &service{accepted: map[string]string{}}
	server := httptest.NewServer(partners)
	t.Cleanup(server.Close)
	acklast.CheckKind(t, newkind.Notify(), acklast.CheckOptions{
		Getenv: func(string) string { return server.URL },
		Seed: func(context.Context, acklast.Services) error {
			partners.mu.Lock()
			defer partners.mu.Unlock()
			clear(partners.accepted)
			return nil
		},
		Effects: func() int {
			partners.mu.Lock()
			defer partners.mu.Unlock()
			n := 0
			for _, times := range partners.accepted {
				n += len(times) // one letter for each time
			}
			return n
		},
	})
}
