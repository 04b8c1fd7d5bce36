package acklast

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"acklast/internal/awsclient"
	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/redrive"
	"acklast/internal/schedule"
	"acklast/internal/topology"
)

// Conditions of a Client's calls.
var (
	// ErrMessage: the message cannot be sent as it is. Nothing was sent.
	ErrMessage = errors.New("message cannot be sent")
	// ErrUnconfirmed: a call was not confirmed, so it may have taken effect or not. Repeat it: sending a job
	// twice or repeating a cancellation is safe.
	ErrUnconfirmed = errors.New("not confirmed")
	// ErrContended: another write won every time. Nothing was written.
	ErrContended = ledger.ErrContended

	// ErrEnded: the job cannot be cancelled, since it has ended with another outcome.
	ErrEnded = errors.New("job has ended")
	// ErrRunning: the job cannot be cancelled now, since a delivery has claimed it.
	ErrRunning = errors.New("job is running")
	// ErrUnresolved: the job cannot be cancelled, since an effect outside the database may have happened.
	ErrUnresolved = ledger.ErrUnresolved
)

// Client is the producer's side of a stack: it sends jobs and cancels them. It may be used concurrently.
// It needs sqs:GetQueueUrl and sqs:SendMessage on the source queue for Send. Cancel needs dynamodb:GetItem and
// dynamodb:UpdateItem on the ledger's table, and dynamodb:UpdateItem on the operations table for the keys that the
// stack's policy "cancellers" names. With scheduler:DeleteSchedule on the stack's group, Cancel also deletes the
// schedule of a job that is due far ahead.
type Client struct {
	names topology.Names
	sqs   *sqs.Client
	db    *dynamodb.Client
	store *dynamo.Store
	// schedules deletes the schedule of a job that is cancelled, audit keeps who cancelled it.
	schedules *schedule.Client
	audit     *redrive.Store
	options   ClientOptions

	mu    sync.Mutex
	lanes *lanes.Client // nil until the queue's URL is known
}

// ClientOptions are a Client's options. Zero fields have their defaults.
type ClientOptions struct {
	// Now is the clock, time.Now by default.
	Now func() time.Time
	// Retention is how long the stack keeps an entry after its job has ended, 45 days by default.
	Retention time.Duration
}

// NewClient returns a client of the stack with the name. It makes no call.
func NewClient(cfg aws.Config, stack string, options ...func(*ClientOptions)) *Client {
	o := ClientOptions{Now: time.Now, Retention: topology.Default().LedgerRetention}
	for _, set := range options {
		set(&o)
	}
	names, db := topology.NamesOf(stack), awsclient.DynamoDB(cfg)
	return &Client{
		names: names, sqs: awsclient.SQS(cfg), db: db, options: o,
		schedules: schedule.New(awsclient.Scheduler(cfg), schedule.Target{Group: names.ScheduleGroup}),
		store:     dynamo.New(db, names.LedgerTable, dynamo.Options{Now: o.Now}),
		audit:     redrive.NewStore(db, names.OperationsTable),
	}
}

// Check says whether Send would refuse a message; its error then wraps ErrMessage. A producer that writes its
// own records before it sends calls Check first. It makes no call.
func (c *Client) Check(m Message) error {
	if _, err := m.move(c.options.Now()); err != nil {
		return fmt.Errorf("send %s: %w: %w", m.Kind, ErrMessage, err)
	}
	return nil
}

// DynamoDB returns the client that the ledger is written with, for a kind's own tables.
func (c *Client) DynamoDB() *dynamodb.Client { return c.db }

// Table returns the physical name of a kind's own table.
func (c *Client) Table(name string) string { return c.names.Table(name) }

// Message is a job on its way to the worker.
type Message struct {
	// Kind is the kind's name, such as "reservation.expire".
	Kind string
	// Payload is the kind's payload: a struct with json tags, a map, or encoded JSON as a json.RawMessage. It must be
	// an object. Tags follow the rules of encoding/json/v2: "omitempty" leaves out an empty text, list or object, but not
	// 0 and false, which "omitzero" leaves out.
	Payload any
	// NotBefore is the earliest time of the job's effect, up to 400 days ahead; zero means at once.
	NotBefore time.Time
	// Deadline is the time by which the job should be finished; zero means that its attempts are bounded by
	// count only.
	Deadline time.Time
	// Attributes are message attributes of type String. They travel with the job through every retry and
	// redrive. The name "acklast" is reserved.
	Attributes map[string]string
	// Group is the message group, such as a tenant, by which SQS shares out the queue fairly; it may be
	// empty.
	Group string
}

// Send sends a job to the source queue. It returns nil only when SQS confirmed the message. Its error wraps
// ErrMessage when the message breaks a rule of acklast or SQS, and ErrUnconfirmed otherwise.
//
// Send does not check the payload against its kind, which the producer need not have. A worker isolates a
// payload that it cannot read.
func (c *Client) Send(ctx context.Context, m Message) error { return c.SendAll(ctx, m)[0] }

// SendAll sends jobs in as few calls as SQS's limits allow. It returns one error for each, as Send does.
func (c *Client) SendAll(ctx context.Context, messages ...Message) []error {
	errs := make([]error, len(messages))
	var moves []lanes.Move
	var places []int // of the moves among the messages
	now := c.options.Now()
	for i, m := range messages {
		move, err := m.move(now)
		if err != nil {
			errs[i] = fmt.Errorf("send %s: %w: %w", m.Kind, ErrMessage, err)
			continue
		}
		moves, places = append(moves, move), append(places, i)
	}
	if len(moves) == 0 {
		return errs
	}
	queue, err := c.source(ctx)
	if err != nil {
		for _, i := range places {
			errs[i] = fmt.Errorf("send %s: %w: %w", messages[i].Kind, ErrUnconfirmed, err)
		}
		return errs
	}
	for k, err := range queue.Send(ctx, job.Source, moves) {
		if err != nil {
			errs[places[k]] = fmt.Errorf("send %s: %w: %w", messages[places[k]].Kind, ErrUnconfirmed, err)
		}
	}
	return errs
}

// Body returns the message's body as Send makes it, for a producer that sends in another way, such as through
// an SNS topic. Its error says why it is not a job.
func (m Message) Body() (string, error) {
	payload, err := json.Marshal(m.Payload, json.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("encode payload: %w", err)
	}
	body, err := job.Envelope{Kind: m.Kind, NotBefore: m.NotBefore, Deadline: m.Deadline, Payload: payload}.Encode()
	if err != nil {
		return "", err
	}
	_, err = job.Decode(body) // Decode has the rules of an envelope
	return string(body), err
}

// move checks a message and makes it ready to be sent.
func (m Message) move(now time.Time) (lanes.Move, error) {
	body, err := m.Body()
	if err != nil {
		return lanes.Move{}, err
	}
	if ahead := topology.Default().ScheduleAhead; m.NotBefore.After(now.Add(ahead)) {
		return lanes.Move{}, fmt.Errorf("notBefore %s lies more than %v ahead", m.NotBefore.Format(time.RFC3339), ahead)
	}
	message := job.Message{Body: body, Group: m.Group}
	for name, value := range m.Attributes {
		if message.Attributes == nil {
			message.Attributes = make(map[string]job.Attribute, len(m.Attributes))
		}
		message.Attributes[name] = job.Attribute{Type: "String", String: value}
	}
	if err := lanes.CheckNew(message); err != nil {
		return lanes.Move{}, err
	}
	return lanes.Move{Message: message, Delay: min(max(m.NotBefore.Sub(now), 0), topology.MaxDelay)}, nil
}

// source looks up the source queue by its name, until it has succeeded once.
func (c *Client) source(ctx context.Context) (*lanes.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lanes == nil {
		out, err := c.sqs.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &c.names.SourceQueue})
		if err != nil {
			return nil, fmt.Errorf("look up queue %s: %w", c.names.SourceQueue, err)
		}
		c.lanes = lanes.New(c.sqs, topology.QueueURLs{Source: aws.ToString(out.QueueUrl)})
	}
	return c.lanes, nil
}

// Key returns the key of a job from its kind's name, its subject and the rest of its parts, as the kind's
// Definition names them. Its error says which part cannot be in a key.
func Key(kind, subject string, rest ...string) (string, error) {
	for i, part := range append([]string{kind, subject}, rest...) {
		if err := job.CheckID(fmt.Sprintf("part %d of the key", i+1), part); err != nil {
			return "", err
		}
	}
	return job.Key(kind, subject, rest...)
}

// Cancellation says who cancels a job, and why.
type Cancellation struct {
	// By and Reason are recorded with the job. Both are required.
	By, Reason string
	// NotBefore is the job's own, if it has one. The job stays cancelled until after that time, however
	// long ahead it lies.
	NotBefore time.Time
}

// CancelError says why a job was not cancelled.
type CancelError struct {
	// Key is the job's key.
	Key string
	// Err is ErrEnded, ErrRunning or ErrUnresolved.
	Err error
	// Outcome is the job's outcome when it has ended.
	Outcome string
	// Until is when the claim of a running job ends at the latest. The job can be cancelled earlier if its
	// attempt ends earlier and without an effect.
	Until time.Time
}

func (e *CancelError) Error() string {
	switch {
	case e.Outcome != "":
		return fmt.Sprintf("cancel %s: %v: %s", e.Key, e.Err, e.Outcome)
	case !e.Until.IsZero():
		return fmt.Sprintf("cancel %s: %v until %s", e.Key, e.Err, e.Until.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("cancel %s: %v", e.Key, e.Err)
}

func (e *CancelError) Unwrap() error { return e.Err }

// Cancel ends a job with the outcome "cancelled", before its first delivery or between two attempts. A delivery
// that comes later finds the job ended and does nothing. By and Reason are kept with the job's entry
// and in the audit ("acklast audit KEY"). Repeating a cancellation is safe, and writes a line of the audit that is
// missing. If the job waits in EventBridge Scheduler and the client may delete schedules, Cancel deletes its schedule.
//
// Cancel refuses a job that has ended with another outcome, is claimed by a delivery, or may have had its
// effect. The error is then a *CancelError. Any other error wraps ErrUnconfirmed or ErrContended, or says what
// is wrong with the call.
func (c *Client) Cancel(ctx context.Context, key string, by Cancellation) error {
	subject, ok := job.SubjectOf(key)
	if !ok {
		return fmt.Errorf("cancel %q: a key is kind/subject/rest, see Key", key)
	}
	if by.By == "" || by.Reason == "" {
		return fmt.Errorf("cancel %s: a cancellation needs By and Reason", key)
	}
	kind, _ := job.KindOf(key)
	d := job.Delivery{
		Key: key, Subject: subject, Token: uuid.NewString(),
		Envelope: job.Envelope{Kind: kind, NotBefore: by.NotBefore},
	}
	decision := ledger.Decision{At: c.options.Now(), By: job.SafeText(by.By), Reason: job.SafeText(by.Reason)}
	rules := ledger.Rules{Retention: c.options.Retention}
	e, err := c.store.Update(ctx, key, d.Token, func(e ledger.Entry) (ledger.Entry, error) {
		return rules.Cancel(e, d, decision)
	})
	cancelled, ok := e.Cancellation()
	if ok && e.ScheduleName != "" {
		// If the schedule stays, its firing finds the job ended.
		_ = c.schedules.Delete(ctx, e.ScheduleName)
	}
	var running *ledger.NotYetError
	switch {
	case errors.Is(err, ledger.ErrFinal) && ok:
	case errors.Is(err, ledger.ErrFinal):
		return &CancelError{Key: key, Err: ErrEnded, Outcome: e.Outcome}
	case errors.As(err, &running):
		return &CancelError{Key: key, Err: ErrRunning, Until: running.Until}
	case errors.Is(err, ErrUnresolved):
		return &CancelError{Key: key, Err: ErrUnresolved}
	case err != nil:
		return fmt.Errorf("cancel %s: %w", key, clientError(err))
	}
	if err := c.audit.RecordCancel(ctx, key, cancelled, c.options.Now().Add(topology.DefaultRedrive().Retention)); err != nil {
		return fmt.Errorf("cancel %s: the job is cancelled, but its line of the audit is missing; repeat it: %w", key, clientError(err))
	}
	return nil
}

// Runnable is an item for Transact: the condition that the job with the key can still run. It has not ended, is
// not isolated and no delivery has claimed it. Commit it together with items that rely on the job, such as a
// hold that the job will end.
func (c *Client) Runnable(key string) types.TransactWriteItem { return c.store.Runnable(key) }

// Transact writes items in one transaction. After a conflict with another write it tries again in place, three
// times in all. When the condition of an item refuses, the error is a *RefusedError. Other errors wrap
// ErrContended or ErrUnconfirmed, or say what is wrong with the items.
//
// If an answer is lost, the SDK repeats the call. An engine other than DynamoDB may then refuse it because of
// its own first write. So after a *RefusedError check whether the items are already as you want them.
func (c *Client) Transact(ctx context.Context, items ...types.TransactWriteItem) error {
	err := c.store.Transact(ctx, items...)
	var refused *dynamo.ItemError
	if errors.As(err, &refused) {
		return &RefusedError{Index: refused.Index, Item: refused.Item}
	}
	return clientError(err)
}

// clientError gives a call that failed as a whole this package's own condition.
func clientError(err error) error {
	if errors.Is(err, ledger.ErrUnavailable) {
		return fmt.Errorf("%w: %w", ErrUnconfirmed, err)
	}
	return err
}
