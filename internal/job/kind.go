package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Description describes a kind without a client and without an environment. It is plain data, so that the code
// of another module can print it and the local environment can read it.
type Description struct {
	// Name is the envelope's kind, such as "reservation.expire".
	Name string `json:"name"`
	// Late says what becomes of a job past its deadline.
	Late LatePolicy `json:"late"`
	// Volatile are the payload's top-level fields that may differ between two copies of one job.
	Volatile []string `json:"volatile,omitempty"`
	// Masked are the payload's top-level fields that are never shown, such as a recipient. Hide also takes their values
	// out of the errors of the kind's code.
	Masked []string `json:"masked,omitempty"`
	// Attempts bounds the attempts of one job; a zero field is the stack's own number.
	Attempts Attempts `json:"attempts,omitzero"`
	// PerSecond bounds the attempts a second, over all processes; zero is no bound. It is best effort: each
	// process takes its share of the lanes' caps.
	PerSecond float64 `json:"perSecond,omitzero"`
	// Tables are the tables that belong to the kind.
	Tables []Table `json:"tables,omitempty"`
	// Metrics are the metrics that the kind's runs record.
	Metrics []Metric `json:"metrics,omitempty"`
	// Environment are the variables that the kind reads.
	Environment []Variable `json:"environment,omitempty"`
	// Samples are bodies of jobs that this kind can read.
	Samples []Sample `json:"samples,omitempty"`
}

// Attempts bounds the attempts of a kind's jobs. A zero field is the stack's own number.
type Attempts struct {
	// Most is the largest number of attempts since the entry was last opened.
	Most int `json:"most,omitzero"`
	// BackoffBase and BackoffCap bound the delay before the next attempt.
	BackoffBase time.Duration `json:"backoffBase,omitzero"`
	BackoffCap  time.Duration `json:"backoffCap,omitzero"`
	// Time is the longest time of one attempt.
	Time time.Duration `json:"time,omitzero"`
}

// Table is a DynamoDB table of a kind. Its keys are strings.
type Table struct {
	// Name follows the stack's name and a hyphen in the table's physical name.
	Name         string `json:"name"`
	PartitionKey string `json:"partitionKey"`
	// SortKey is empty when the table has none.
	SortKey string `json:"sortKey,omitempty"`
	// TTL is the attribute that holds the expiry in Unix seconds, empty when there is none.
	TTL string `json:"ttl,omitempty"`
}

// Grant is what the worker may do for a kind. Exactly one of Table and Resource is set.
type Grant struct {
	// Actions are IAM actions, such as "dynamodb:UpdateItem".
	Actions []string `json:"actions"`
	// Table is the Name of one of the kind's own tables.
	Table string `json:"table,omitempty"`
	// Resource is an ARN, in which {partition}, {region} and {account} stand for the stack's own.
	Resource string `json:"resource,omitempty"`
}

// Variable is an environment variable that a kind reads.
type Variable struct {
	Name string `json:"name"`
	// Help says in one line what it is for.
	Help string `json:"help"`
	// Setting is the setting of this repository's CDK app that sets the variable, such as "providerUrl"; empty for none.
	Setting string `json:"setting,omitempty"`
}

// Sample is the body of a job that shows what a kind's jobs look like.
type Sample struct {
	// Name is unique among the kind's samples and usable as a file name, without an extension.
	Name string `json:"name"`
	Body string `json:"body"`
	// Key is the key of that job. Define fills it in; it is empty if the kind cannot read the body.
	Key string `json:"key,omitempty"`
}

// Contents is what a kind reads from a payload.
type Contents struct {
	// Payload is the decoded payload, of the kind's own type.
	Payload any
	// Key is the job's key. Subject is the part of it by which people ask, such as a reservation id.
	Key, Subject string
	// ExpiresAt is the time from which the effect is not wanted any more; zero if the payload has none.
	ExpiresAt time.Time
}

// Kind is one kind of job, as the engine works with it.
type Kind struct {
	Description
	// Read decodes and checks a payload. Its error is a Failure of class Invalid.
	Read func(payload []byte) (Contents, error)
	// Grants returns what the worker may do for the kind in an environment. Its error says what is wrong
	// with the environment. Nil grants nothing.
	Grants func(getenv func(string) string) ([]Grant, error)
	// Run makes one attempt. It must return when ctx ends. It is nil where jobs are only read.
	Run func(ctx context.Context, d Delivery) Result
	// Together names what a delivery's job shares with other jobs, such as a resource; "" for nothing.
	// RunBatch makes one attempt at each of several deliveries that share it, whose keys differ, and returns
	// their results in the same order. Both are nil for a kind without a batch form.
	Together func(d Delivery) string
	RunBatch func(ctx context.Context, ds []Delivery) []Result
	// Explain returns what the kind's own records say about a subject. It only reads. It is nil for a kind
	// that explains nothing, and where jobs are only read.
	Explain func(ctx context.Context, subject string) ([]Fact, error)
}

// Fact is one field of a kind's own records about a subject, such as state: held.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Definition describes a kind whose payloads are decoded into P, a struct of plain types with json
// tags. Name, Key and one Sample are required.
type Definition[P any] struct {
	// Name is the envelope's kind, such as "reservation.expire".
	Name string
	// Key returns the parts of the job's key behind the kind's name. People ask by the subject. Make a key of
	// business fields, which are the same however often the job is sent: never of a message id or a time.
	Key func(P) (subject string, rest []string)
	// Check returns what is wrong with a decoded payload; use InvalidPayload for the error. Nil checks nothing.
	Check func(P) error
	// ExpiresAt returns the time from which the effect is not wanted any more; nil means never.
	ExpiresAt func(P) time.Time
	// Late says what becomes of a job past its deadline.
	Late LatePolicy
	// Volatile, Masked, Attempts, PerSecond, Tables, Metrics, Environment and Samples are those of Description.
	Volatile, Masked []string
	Attempts         Attempts
	PerSecond        float64
	Tables           []Table
	Metrics          []Metric
	Environment      []Variable
	Samples          []Sample
	// Grants returns what the worker may do for the kind in an environment, or what is wrong with that
	// environment. Nil grants nothing.
	Grants func(getenv func(string) string) ([]Grant, error)
}

// Define makes a kind from its definition. It panics when the definition lacks its name or its key or has
// wrong metrics, which is a mistake in the program.
func Define[P any](d Definition[P]) Kind {
	if d.Name == "" || d.Key == nil {
		panic("job: a kind needs a name and a key")
	}
	if err := checkMetrics(d.Metrics); err != nil {
		panic("job: kind " + d.Name + ": " + err.Error())
	}
	k := Kind{
		Description: Description{
			Name: d.Name, Late: d.Late, Volatile: d.Volatile, Masked: d.Masked, Attempts: d.Attempts, PerSecond: d.PerSecond,
			Tables: d.Tables, Metrics: d.Metrics, Environment: d.Environment, Samples: slices.Clone(d.Samples),
		},
		Grants: d.Grants,
		Read: func(payload []byte) (Contents, error) {
			var p P
			if err := DecodePayload(payload, &p); err != nil {
				return Contents{}, err
			}
			if d.Check != nil {
				if err := d.Check(p); err != nil {
					return Contents{}, asInvalid(err)
				}
			}
			subject, rest := d.Key(p)
			if err := CheckID("the job's subject", subject); err != nil {
				return Contents{}, err
			}
			key, err := Key(d.Name, subject, rest...)
			if err != nil {
				return Contents{}, err
			}
			c := Contents{Payload: p, Key: key, Subject: subject}
			if d.ExpiresAt != nil {
				c.ExpiresAt = d.ExpiresAt(p)
			}
			return c, nil
		},
	}
	for i, sample := range k.Samples {
		if e, err := Decode([]byte(sample.Body)); err == nil && e.Kind == d.Name {
			if contents, err := k.Read(e.Payload); err == nil {
				k.Samples[i].Key = contents.Key
			}
		}
	}
	return k
}

// Catalogue finds kinds by name.
type Catalogue struct{ byName map[string]Kind }

// NewCatalogue makes a catalogue. It panics on two kinds of one name, which is a mistake in the program.
func NewCatalogue(kinds ...Kind) Catalogue {
	c := Catalogue{byName: make(map[string]Kind, len(kinds))}
	for _, k := range kinds {
		if _, twice := c.byName[k.Name]; twice {
			panic("job: kind " + k.Name + " is registered twice")
		}
		c.byName[k.Name] = k
	}
	return c
}

// Kinds returns the kinds in the order of their names.
func (c Catalogue) Kinds() []Kind {
	kinds := make([]Kind, 0, len(c.byName))
	for _, k := range c.byName {
		kinds = append(kinds, k)
	}
	slices.SortFunc(kinds, func(a, b Kind) int { return cmp.Compare(a.Name, b.Name) })
	return kinds
}

// Names returns the kinds' names in order.
func (c Catalogue) Names() []string {
	var names []string
	for _, k := range c.Kinds() {
		names = append(names, k.Name)
	}
	return names
}

// Decoded is a body that was read completely: a known kind and a valid payload.
type Decoded struct {
	Contents
	Envelope Envelope
	Kind     Kind
}

// Read decodes a body and finds its kind and key. Its error is ErrProbe, or a *Failure: Invalid for a body that
// can never be read, Rejected for a kind that is not in the catalogue and that a newer worker may know.
func (c Catalogue) Read(body string) (Decoded, error) {
	e, err := Decode([]byte(body))
	if err != nil {
		return Decoded{}, err
	}
	return c.ReadPayload(e)
}

// ErrUnknownKind: the kind is not in the catalogue.
var ErrUnknownKind = errors.New("unknown kind")

// Known says whether the kind is in the catalogue.
func (c Catalogue) Known(kind string) bool {
	_, ok := c.byName[kind]
	return ok
}

// ReadPayload is Read for a body whose envelope is decoded already. It runs the kind's own code.
func (c Catalogue) ReadPayload(e Envelope) (Decoded, error) {
	k, ok := c.byName[e.Kind]
	if !ok {
		return Decoded{Envelope: e}, &Failure{Class: Rejected,
			Err: fmt.Errorf("%w %q: this worker knows %q", ErrUnknownKind, e.Kind, c.Names())}
	}
	contents, err := k.Read(e.Payload)
	if err != nil {
		return Decoded{Envelope: e, Kind: k}, k.Hide(e.Payload, err)
	}
	return Decoded{Contents: contents, Envelope: e, Kind: k}, nil
}

// SubjectOf reads the subject off a key, which is kind/subject/rest.
func SubjectOf(key string) (subject string, ok bool) {
	_, rest, ok := strings.Cut(key, "/")
	if !ok {
		return "", false
	}
	part, _, _ := strings.Cut(rest, "/")
	subject = keyUnescapes.Replace(part)
	return subject, subject != ""
}

// KindOf reads the kind's name off a key.
func KindOf(key string) (kind string, ok bool) {
	part, _, ok := strings.Cut(key, "/")
	return keyUnescapes.Replace(part), ok && part != ""
}

var keyUnescapes = strings.NewReplacer("%2F", "/", "%25", "%")

// Tables returns the tables of all kinds.
func (c Catalogue) Tables() []Table {
	var all []Table
	for _, k := range c.Kinds() {
		all = append(all, k.Tables...)
	}
	return all
}
