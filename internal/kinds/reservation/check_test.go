package reservation_test

import (
	"context"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast"
	"acklast/internal/kinds/reservation"
)

// seedHolds puts the holds of the jobs below, which are due, and their resource.
func seedHolds(ctx context.Context, s acklast.Services) error {
	text := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
	number := func(n string) types.AttributeValue { return &types.AttributeValueMemberN{Value: n} }
	past := number("1700000000000")
	for _, it := range []map[string]types.AttributeValue{
		{"resource_id": text("room-7"), "capacity": number("20"), "available": number("10")},
		{"reservation_id": text("r-1042"), "command_id": text("hold-3"), "resource_id": text("room-7"), "units": number("1"),
			"state": text("held"), "expires_at": past, "updated_at": past},
		{"reservation_id": text("r-1043"), "command_id": text("hold-1"), "resource_id": text("room-7"), "units": number("2"),
			"state": text("held"), "expires_at": past, "updated_at": past},
		{"reservation_id": text("r-1044"), "command_id": text("hold-1"), "resource_id": text("room-7"), "units": number("3"),
			"state": text("confirmed"), "expires_at": past, "updated_at": past},
		{"reservation_id": text("r-1045"), "command_id": text("hold-1"), "resource_id": text("room-7"), "units": number("4"),
			"state": text("placing"), "expires_at": past, "updated_at": past},
	} {
		table := s.Table("reservations")
		if it["reservation_id"] == nil {
			table = s.Table("resources")
		}
		if _, err := s.DynamoDB.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String(table), Item: it}); err != nil {
			return err
		}
	}
	return nil
}

// An expiry keeps the worker's promises, whatever state its reservation is in.
func TestKind(t *testing.T) {
	job := func(name, id, units string) acklast.Sample {
		return acklast.Sample{Name: name, Body: `{"kind":"reservation.expire","payload":{"reservationId":"` + id +
			`","commandId":"hold-1","resourceId":"room-7","units":` + units + `}}`}
	}
	acklast.CheckKind(t, reservation.Kind(), acklast.CheckOptions{
		Seed: seedHolds, Now: time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC),
		Samples: []acklast.Sample{job("held", "r-1043", "2"), job("confirmed", "r-1044", "3"), job("placing", "r-1045", "4")},
	})
}
