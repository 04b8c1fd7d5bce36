package reservation

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast"
)

// API is the part of the DynamoDB client that the store uses.
type API interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	Scan(context.Context, *dynamodb.ScanInput, ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error)
}

// Store keeps reservations and resources in DynamoDB.
type Store struct {
	db                      API
	reservations, resources string
	now                     func() time.Time
}

// The names of the kind's tables, behind the stack's name.
const (
	reservations = "reservations"
	resources    = "resources"
)

// NewStore returns a store on a stack's tables. table returns the physical name of one of them, as the
// method Table of acklast.Services and of acklast.Client does.
func NewStore(db API, table func(name string) string, now func() time.Time) *Store {
	return &Store{db: db, reservations: table(reservations), resources: table(resources), now: now}
}

type item = map[string]types.AttributeValue

func getString(i item, name string) string {
	if v, ok := i[name].(*types.AttributeValueMemberS); ok {
		return v.Value
	}
	return ""
}

func getNumber(i item, name string) int64 {
	if v, ok := i[name].(*types.AttributeValueMemberN); ok {
		n, _ := strconv.ParseInt(v.Value, 10, 64) // 0 if an engine wrote a fraction; acklast never does
		return n
	}
	return 0
}

func readReservation(i item) Reservation {
	return Reservation{
		Payload: Payload{
			ReservationID: getString(i, "reservation_id"), CommandID: getString(i, "command_id"),
			ResourceID: getString(i, "resource_id"), Units: getNumber(i, "units"),
		},
		State:     State(getString(i, "state")),
		ExpiresAt: time.UnixMilli(getNumber(i, "expires_at")).UTC(),
		UpdatedAt: time.UnixMilli(getNumber(i, "updated_at")).UTC(),
	}
}

// Get reads a reservation consistently. Its error is ErrNotFound when there is none.
func (s *Store) Get(ctx context.Context, reservationID string) (Reservation, error) {
	i, err := s.get(ctx, s.reservations, "reservation_id", reservationID)
	if err != nil {
		return Reservation{}, fmt.Errorf("reservation %s: %w", reservationID, err)
	}
	return readReservation(i), nil
}

func (s *Store) get(ctx context.Context, table, key, id string) (item, error) {
	out, err := s.db.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &table, Key: item{key: acklast.Text(id)}, ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return nil, acklast.DynamoDBError(err)
	}
	if len(out.Item) == 0 {
		return nil, ErrNotFound
	}
	return out.Item, nil
}

// CreateResource makes a resource with all its units available. An existing resource stays as it is.
func (s *Store) CreateResource(ctx context.Context, resourceID string, capacity int64) error {
	_, err := s.db.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: &s.resources,
		Item: item{
			"resource_id": acklast.Text(resourceID), "capacity": acklast.Number(capacity), "available": acklast.Number(capacity),
		},
		ConditionExpression:      aws.String("attribute_not_exists(#id)"),
		ExpressionAttributeNames: map[string]string{"#id": "resource_id"},
	})
	if exists := (*types.ConditionalCheckFailedException)(nil); errors.As(err, &exists) {
		return nil
	}
	return wrap("create resource "+resourceID, acklast.DynamoDBError(err))
}

// Balances reads every resource and reservation and returns each resource's account. It scans both
// tables: right for a demo, a test and an audit, not for a request.
func (s *Store) Balances(ctx context.Context) (map[string]Balance, error) {
	all := map[string]Balance{}
	err := s.scan(ctx, s.resources, func(i item) {
		id := getString(i, "resource_id")
		all[id] = Balance{ResourceID: id, Capacity: getNumber(i, "capacity"), Available: getNumber(i, "available")}
	})
	if err != nil {
		return nil, err
	}
	err = s.scan(ctx, s.reservations, func(i item) {
		r := readReservation(i)
		b := all[r.ResourceID]
		switch r.State {
		case Held:
			b.Held += r.Units
		case Confirmed:
			b.Confirmed += r.Units
		}
		all[r.ResourceID] = b
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

func (s *Store) scan(ctx context.Context, table string, each func(item)) error {
	pages := dynamodb.NewScanPaginator(s.db, &dynamodb.ScanInput{TableName: &table, ConsistentRead: aws.Bool(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("scan %s: %w", table, acklast.DynamoDBError(err))
		}
		for _, i := range page.Items {
			each(i)
		}
	}
	return nil
}

// change is the transition of p's reservation from one state to another, on condition that it belongs to p. A
// hold that is not yet stale is never expired or abandoned, even if its job is sent early.
func (s *Store) change(p Payload, from, to State) types.TransactWriteItem {
	now := acklast.Millis(s.now())
	condition := "#state = :from AND #command = :command AND #resource = :resource AND #units = :units"
	names := map[string]string{
		"#state": "state", "#command": "command_id", "#resource": "resource_id", "#units": "units",
		"#updated": "updated_at",
	}
	if to == Expired || to == Abandoned {
		condition += " AND #expires <= :now"
		names["#expires"] = "expires_at"
	}
	return types.TransactWriteItem{Update: &types.Update{
		TableName:                &s.reservations,
		Key:                      item{"reservation_id": acklast.Text(p.ReservationID)},
		UpdateExpression:         aws.String("SET #state = :to, #updated = :now"),
		ConditionExpression:      &condition,
		ExpressionAttributeNames: names,
		ExpressionAttributeValues: item{
			":from": acklast.Text(string(from)), ":to": acklast.Text(string(to)), ":command": acklast.Text(p.CommandID),
			":resource": acklast.Text(p.ResourceID), ":units": acklast.Number(p.Units), ":now": now,
		},
	}}
}

// takeUnits takes the units from the resource, if it has them.
func (s *Store) takeUnits(p Payload) types.TransactWriteItem {
	return s.move(p, "SET #available = #available - :units", "#available >= :units")
}

// returnUnits gives the units back to the resource.
func (s *Store) returnUnits(p Payload) types.TransactWriteItem {
	return s.move(p, "SET #available = #available + :units", "attribute_exists(#available)")
}

func (s *Store) move(p Payload, update, condition string) types.TransactWriteItem {
	return types.TransactWriteItem{Update: &types.Update{
		TableName:                 &s.resources,
		Key:                       item{"resource_id": acklast.Text(p.ResourceID)},
		UpdateExpression:          &update,
		ConditionExpression:       &condition,
		ExpressionAttributeNames:  map[string]string{"#available": "available"},
		ExpressionAttributeValues: item{":units": acklast.Number(p.Units)},
	}}
}

func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}
