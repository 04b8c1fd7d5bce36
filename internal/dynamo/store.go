// Package dynamo keeps the ledger in DynamoDB.
//
// It promises that every change of an entry is one conditional write. A change is applied to exactly the entry
// from which it was computed. A job's entry becomes final together with the kind's own items, or neither
// changes. The package also recognises its own writes. If an answer was lost and the SDK repeats the call, the
// repeated call is neither taken for a duplicate nor applied twice.
//
// SDK errors are translated in one place, Translate. This package returns these errors:
//
//	*ledger.RefusedError    the entry's condition refused a Commit or a Claim
//	*ItemError              an own item's condition refused a transaction
//	*ConditionError         the condition of a kind's own single write failed (Translate only)
//	ledger.ErrContended     a conflicting write won every time
//	ledger.ErrUnavailable   a call failed as a whole; whether it wrote is unknown
//	ledger.ErrUndecodable   an item is not as any version of this program writes it
//	any other error         the request itself is wrong and will fail again
//
// Expressions are written as DynamoDB documents them and as the embedded engines understand them too: one line,
// upper-case keywords, top-level attributes, names only through placeholders.
package dynamo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/retry"
)

// API is what a Store needs of the SDK's client.
type API interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	TransactWriteItems(context.Context, *dynamodb.TransactWriteItemsInput, ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error)
}

// Options are a Store's dependencies. The zero Options are those of production.
type Options struct {
	// Now is the time that Update writes as updated_at; time.Now by default.
	Now func() time.Time
	// OnConflict is called after each try that lost to a concurrent write. It may be nil.
	OnConflict func()
	// Pause waits between two tries or returns the context's error; a timer by default.
	Pause func(context.Context, time.Duration) error
	// Random returns a number in [0,1) that jitters the pauses; rand.Float64 by default.
	Random func() float64
}

// Store is the ledger's store. It may be used concurrently.
type Store struct {
	api   API
	table string
	opts  Options
	// texts are the texts of completions, by the attributes that they set: see completionText.
	texts sync.Map
}

// New returns a store over the ledger's table.
func New(api API, table string, opts Options) *Store {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.OnConflict == nil {
		opts.OnConflict = func() {}
	}
	if opts.Pause == nil {
		opts.Pause = retry.Sleep
	}
	if opts.Random == nil {
		opts.Random = rand.Float64
	}
	return &Store{api: api, table: table, opts: opts}
}

const (
	// tries is how often a contended write is tried in place. A conflict lasts only as long as one other write.
	// A job that loses three times in a row waits better on the recovery lane.
	tries = 3
	// firstPause is the longest pause after the first try; it doubles, and is jittered down to half.
	firstPause = 40 * time.Millisecond
	// maxSubject is DynamoDB's limit of a partition key, in bytes.
	maxSubject = 2048
)

// Get returns the current entry, by a consistent read. It returns the zero Entry for a job without one.
func (s *Store) Get(ctx context.Context, key string) (ledger.Entry, error) {
	if err := checkKey(key); err != nil {
		return ledger.Entry{}, err
	}
	out, err := s.api.GetItem(ctx, &dynamodb.GetItemInput{
		TableName:      &s.table,
		Key:            keyOf(key),
		ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return ledger.Entry{}, fmt.Errorf("get entry: %w", Translate(err))
	}
	return unmarshal(out.Item)
}

// BySubject returns the entries of a subject in the order of their keys, by a consistent read.
func (s *Store) BySubject(ctx context.Context, subject string) ([]ledger.Entry, error) {
	if len(subject) > maxSubject {
		return nil, fmt.Errorf("a subject has %d bytes, more than %d", len(subject), maxSubject)
	}
	if subject == "" {
		return nil, nil
	}
	var entries []ledger.Entry
	pages := dynamodb.NewQueryPaginator(s.api, &dynamodb.QueryInput{
		TableName:                 &s.table,
		ConsistentRead:            aws.Bool(true),
		KeyConditionExpression:    aws.String("#subject = :subject"),
		ExpressionAttributeNames:  map[string]string{"#subject": attrSubject},
		ExpressionAttributeValues: item{":subject": Text(subject)},
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("query entries of a subject: %w", Translate(err))
		}
		for _, it := range page.Items {
			e, err := unmarshal(it)
			if err != nil {
				return nil, err
			}
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// Update applies a transition to an entry under optimistic concurrency and returns the entry as written. If
// change returns an error, Update returns it unchanged, together with the entry that change was given. change
// may be called up to three times and must be pure. Only the attributes that differ are written, so attributes
// of a newer version of this program survive.
//
//	read v7 ─▶ change ─▶ write if version = 7 ──ok──▶ v8, owner = token
//	   ▲                        │ refused
//	   │                        ├─ found v8, our token, our own values ──▶ our own write, answer lost
//	   └── something else ──────┘
func (s *Store) Update(ctx context.Context, key, token string, change func(ledger.Entry) (ledger.Entry, error)) (ledger.Entry, error) {
	if token == "" {
		return ledger.Entry{}, errNoToken
	}
	found, err := s.Get(ctx, key)
	if err != nil {
		return ledger.Entry{}, err
	}
	found.Key = key // an absent entry has none
	return s.UpdateFrom(ctx, found, token, change)
}

var errNoToken = errors.New("update entry: no owner token")

// UpdateFrom is Update for a caller that already knows the entry, such as from its own Claim. If the entry has
// not changed since, UpdateFrom makes one conditional write and no read.
func (s *Store) UpdateFrom(ctx context.Context, found ledger.Entry, token string, change func(ledger.Entry) (ledger.Entry, error)) (ledger.Entry, error) {
	if token == "" {
		return ledger.Entry{}, errNoToken
	}
	return s.update(ctx, found, func(e ledger.Entry) (ledger.Entry, error) {
		e, err := change(e)
		if e.Status != ledger.Running {
			e.Owner = token // a running entry belongs to its claim, also when another delivery adds to it
		}
		return e, err
	})
}

// update is UpdateFrom without the rule of the owner. found has its key.
func (s *Store) update(ctx context.Context, found ledger.Entry, change func(ledger.Entry) (ledger.Entry, error)) (ledger.Entry, error) {
	key := found.Key
	if err := checkKey(key); err != nil {
		return ledger.Entry{}, err
	}
	for try := 1; ; try++ {
		if found.Version == 0 {
			found = ledger.Entry{}
		}
		next, err := change(found)
		if err != nil {
			return found, err
		}
		next.Key, next.Version = key, found.Version+1
		next.UpdatedAt = s.opts.Now()
		if next, err = stored(next); err != nil {
			return found, err
		}

		err = s.write(ctx, found, next)
		if err == nil {
			return next, nil
		}
		var failed *ConditionError
		if !errors.As(err, &failed) && !errors.Is(err, ledger.ErrContended) {
			return found, fmt.Errorf("update entry: %w", err)
		}
		if failed != nil {
			if found, err = s.found(ctx, key, failed.Item); err != nil {
				return ledger.Entry{}, err
			}
			// The version and the token alone are not enough. A Commit of this same delivery may still have
			// been on its way when this update began. It has the same two, and would be mistaken for this
			// change.
			if reflect.DeepEqual(found, next) {
				return found, nil
			}
		}
		s.opts.OnConflict()
		if try == tries {
			return found, fmt.Errorf("update entry: %w", ledger.ErrContended)
		}
		if err := s.wait(ctx, try); err != nil {
			return found, fmt.Errorf("update entry: %w", err)
		}
		if failed == nil {
			// A transaction held the entry; its effect on the entry is not known yet.
			if found, err = s.Get(ctx, key); err != nil {
				return ledger.Entry{}, err
			}
		}
	}
}

// write replaces old by next on condition that the stored entry is still old.
func (s *Store) write(ctx context.Context, old, next ledger.Entry) error {
	w := newWrite()
	before, after := item{}, marshal(next)
	if old.Version > 0 {
		before = marshal(old)
	}
	delete(after, attrSubject)
	delete(after, attrKey)
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if !reflect.DeepEqual(before[name], after[name]) {
			w.set(name, after[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, kept := after[name]; !kept && !isKey(name) {
			w.remove(name)
		}
	}
	var condition string // DynamoDB refuses a placeholder that no expression uses
	if old.Version == 0 {
		condition = "attribute_not_exists(" + w.name(attrKey) + ")"
	} else {
		condition = w.name(attrVersion) + " = " + w.value("expected", Number(old.Version))
	}
	_, err := s.api.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:                           &s.table,
		Key:                                 keyOf(next.Key),
		UpdateExpression:                    w.expression(),
		ConditionExpression:                 &condition,
		ExpressionAttributeNames:            w.names,
		ExpressionAttributeValues:           w.values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	return Translate(err)
}

// found returns the entry that failed a condition: the item that came with the failure. If none came, because
// the entry is absent or the engine returns none, it makes one consistent read.
func (s *Store) found(ctx context.Context, key string, it item) (ledger.Entry, error) {
	if len(it) > 0 {
		return unmarshal(it)
	}
	return s.Get(ctx, key)
}

// wait pauses after the given try. If ctx ends, the error wraps ErrUnavailable: the write was not confirmed.
func (s *Store) wait(ctx context.Context, try int) error {
	longest := firstPause << (try - 1)
	d := longest - time.Duration(s.opts.Random()*float64(longest)/2)
	if err := s.opts.Pause(ctx, d); err != nil {
		return fmt.Errorf("%w: %w", ledger.ErrUnavailable, err)
	}
	return nil
}

// checkKey refuses keys that DynamoDB would refuse and other engines would store.
func checkKey(key string) error {
	if key == "" || len(key) > job.MaxKey {
		return fmt.Errorf("an entry's key has %d bytes, want 1 to %d", len(key), job.MaxKey)
	}
	if _, ok := job.SubjectOf(key); !ok {
		return fmt.Errorf("the key %q names no subject, want kind/subject/rest", key)
	}
	return nil
}

// write collects one update expression. A placeholder is the attribute's own name, which reads well in a trace.
// No attribute's name is a prefix of another's (see attributes), since some engines replace placeholders as
// plain text.
type write struct {
	sets, removes []string
	names         map[string]string
	values        item
}

func newWrite() *write { return &write{names: map[string]string{}, values: item{}} }

func (w *write) name(attribute string) string {
	placeholder := "#" + placeholderOf(attribute)
	w.names[placeholder] = attribute
	return placeholder
}

// placeholderOf makes a placeholder's name of an attribute's. DynamoDB allows only ASCII letters, digits and underscores
// there, while a name that ends in a token has hyphens. A write has one such name at most.
func placeholderOf(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
}

func (w *write) value(placeholder string, v types.AttributeValue) string {
	placeholder = ":" + placeholderOf(placeholder)
	w.values[placeholder] = v
	return placeholder
}

func (w *write) set(attribute string, v types.AttributeValue) {
	w.sets = append(w.sets, w.name(attribute)+" = "+w.value(attribute, v))
}

// keep sets an attribute only if it is absent.
func (w *write) keep(attribute string, v types.AttributeValue) {
	n := w.name(attribute)
	w.sets = append(w.sets, n+" = if_not_exists("+n+", "+w.value(attribute, v)+")")
}

// increment adds one to a number that may be absent.
func (w *write) increment(attribute string) {
	n := w.name(attribute)
	w.sets = append(w.sets, n+" = if_not_exists("+n+", "+w.value("zero", Number(0))+") + "+w.value("one", Number(1)))
}

func (w *write) remove(attribute string) { w.removes = append(w.removes, w.name(attribute)) }

func (w *write) expression() *string {
	e := "SET " + strings.Join(w.sets, ", ")
	if len(w.removes) > 0 {
		e += " REMOVE " + strings.Join(w.removes, ", ")
	}
	return &e
}
