// Package job defines a job, its form on the wire, and the words for the outcomes of its deliveries.
//
// A job is one logical command with a stable key made of business fields. A delivery is one SQS message that
// carries it; a job may be delivered many times. The package is pure: it decodes and classifies, and makes no
// call.
package job

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// MaxID is the longest id in a payload, in bytes.
const MaxID = 256

// MaxKey is the longest key, in bytes. It is DynamoDB's limit of a sort key, since the key is the ledger's sort
// key.
const MaxKey = 1024

// Envelope is the body of a job's message.
type Envelope struct {
	// Kind names the kind of job, such as "reservation.expire".
	Kind string `json:"kind"`
	// NotBefore is the earliest time the job may take effect; zero means at once.
	NotBefore time.Time `json:"notBefore,omitzero"`
	// Deadline is the time by which the job should be finished; zero means that it has no budget by time.
	Deadline time.Time `json:"deadline,omitzero"`
	// Payload is the kind's own object, undecoded.
	Payload jsontext.Value `json:"payload"`
}

// Decode reads the body of a message: a job, or a job that SNS or EventBridge wrapped once. Decoding is strict
// about types, duplicate names and trailing data, and tolerant about unknown fields. Its error is ErrProbe for
// a body that carries no job, else a *Failure of class Invalid: the same bytes will never decode.
func Decode(body []byte) (Envelope, error) {
	w, err := decode(body)
	if err != nil {
		return Envelope{}, err
	}
	inner, wrapper, err := w.unwrap()
	if err != nil {
		return Envelope{}, err
	}
	if wrapper == "" {
		if err := w.check(); err != nil {
			return Envelope{}, err
		}
		return w.Envelope, nil
	}
	if w, err = decode(inner); err != nil {
		return Envelope{}, within(wrapper, err)
	}
	switch _, again, err := w.unwrap(); {
	case errors.Is(err, ErrProbe):
		return Envelope{}, err
	case err != nil:
		return Envelope{}, within(wrapper, err)
	case again != "":
		return Envelope{}, invalid("an %s in an %s: a job may be wrapped once", again, wrapper)
	}
	if err := w.check(); err != nil {
		return Envelope{}, within(wrapper, err)
	}
	return w.Envelope, nil
}

func within(wrapper string, err error) error { return invalid("in the %s: %w", wrapper, err) }

// decode reads one JSON object without checking its fields.
func decode(body []byte) (*wire, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, invalid("body is empty, want a JSON object with kind and payload")
	}
	if k := jsontext.Value(body).Kind(); k != '{' {
		return nil, invalid("body is not a JSON object with kind and payload")
	}
	w := new(wire)
	if err := json.Unmarshal(body, w); err != nil {
		return nil, invalid("body: %w", jsonError(err, w))
	}
	return w, nil
}

// Encode writes the envelope as a body that Decode reads.
func (e Envelope) Encode() ([]byte, error) {
	body, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode job: %w", err)
	}
	return body, nil
}

func (e *Envelope) check() error {
	if e.Kind == "" {
		return invalid("kind is missing")
	}
	if err := CheckID("kind", e.Kind); err != nil {
		return err
	}
	if e.Payload.Kind() != '{' {
		return invalid("payload is missing or not an object")
	}
	if !e.Deadline.IsZero() && e.Deadline.Before(e.NotBefore) {
		return invalid("deadline %s lies before notBefore %s",
			e.Deadline.Format(time.RFC3339), e.NotBefore.Format(time.RFC3339))
	}
	return nil
}

// DecodePayload reads a kind's payload into v with the rules of Decode.
func DecodePayload(payload jsontext.Value, v any) error {
	if err := json.Unmarshal(payload, v); err != nil {
		return invalid("payload: %w", jsonError(err, v))
	}
	return nil
}

// jsonError drops the decoder's own prefix, the Go types and the values from an error of decoding into a value of
// target's type. The rest says where and what is wrong. It quotes no value of a payload, and no name that the type
// does not declare.
func jsonError(err error, target any) error {
	t := reflect.TypeOf(target)
	var syn *jsontext.SyntacticError
	if errors.As(err, &syn) {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return fmt.Errorf("a name stands twice in one object, at %q", place(syn.JSONPointer.Parent(), t))
		}
		return fmt.Errorf("not valid JSON at byte %d", syn.ByteOffset)
	}
	var sem *json.SemanticError
	if errors.As(err, &sem) {
		want := ""
		if sem.GoType != nil {
			want = ", want " + typeName(sem.GoType.String())
		}
		return fmt.Errorf("wrong type or value at %q%s", place(sem.JSONPointer, t), want)
	}
	return errors.New("not readable")
}

func typeName(goType string) string {
	switch goType {
	case "time.Time":
		return "an RFC 3339 time with a zone"
	case "int", "int64":
		return "an integer"
	}
	return "a " + goType
}

// CheckID says whether an id of a payload can be part of a key: 1 to 256 bytes of UTF-8, not blank,
// without control characters. Its error is a *Failure of class Invalid that names the field.
func CheckID(field, id string) error {
	switch {
	case id == "":
		return invalid("%s is missing", field)
	case strings.TrimSpace(id) == "":
		return invalid("%s is blank", field)
	case len(id) > MaxID:
		return invalid("%s has %d bytes, more than %d", field, len(id), MaxID)
	case !utf8.ValidString(id):
		return invalid("%s is not UTF-8", field)
	case strings.ContainsFunc(id, unicode.IsControl):
		return invalid("%s has a control character", field)
	}
	return nil
}

var keyEscapes = strings.NewReplacer("%", "%25", "/", "%2F")

// Key joins a kind's name, the subject and the rest of the key's parts with "/", escaping "/" and "%"
// in the parts, so that no two different lists of parts share a key. A key longer than MaxKey is Invalid.
func Key(kind, subject string, rest ...string) (string, error) {
	var b strings.Builder
	b.WriteString(keyEscapes.Replace(kind))
	for _, p := range append([]string{subject}, rest...) {
		b.WriteByte('/')
		b.WriteString(keyEscapes.Replace(p))
	}
	if b.Len() > MaxKey {
		return "", invalid("the job's key has %d bytes, more than %d: shorten its ids", b.Len(), MaxKey)
	}
	return b.String(), nil
}

// Delivery is one SQS message on a lane, and the job that was read from it so far.
type Delivery struct {
	// Message is the message as received.
	Message
	// Lane is the queue from which it came.
	Lane Queue
	// Envelope, Key, Subject and Payload are set once the body is decoded; Key is empty before.
	Envelope Envelope
	Key      string
	Subject  string
	// Payload is the decoded payload, of the kind's own type.
	Payload any
	// Digest is that of the payload, empty until the payload is read.
	Digest string
	// NoRoom says that our own attribute does not fit on the message.
	NoRoom bool
	// Token is this delivery's owner token. Ledger writes for this delivery carry it, so that a repeated call
	// recognises its own first write.
	Token string
}

// Due returns the time at which the job was first meant to take effect: its notBefore, or the time at which it
// was first sent.
func (d Delivery) Due() time.Time {
	if !d.Envelope.NotBefore.IsZero() {
		return d.Envelope.NotBefore
	}
	return d.FirstSent()
}

// Clock returns the time at which the job was due, and its deadline, which may be zero. After a reopening both
// count from there, since the worker is not answerable for the time before.
func (d Delivery) Clock() (due, deadline time.Time) {
	due, deadline = d.Due(), d.Envelope.Deadline
	if moved := d.Memory.Opened.Sub(due); d.Memory.Redrives > 0 && moved > 0 {
		due = d.Memory.Opened
		if !deadline.IsZero() {
			deadline = deadline.Add(moved)
		}
	}
	return due, deadline
}

// OriginalID is the id of the job's first message, as far as this message carries it.
func (d Delivery) OriginalID() string { return cmp.Or(d.Memory.MessageID, d.ID) }

// FirstSent is the time at which the job was first sent, as far as the message carries it. A time after SQS's
// own is wrong, and is ignored.
func (d Delivery) FirstSent() time.Time {
	if first := d.Memory.FirstSent; !first.IsZero() && !first.After(d.SentAt) {
		return d.Memory.FirstSent
	}
	return d.SentAt
}

// Message is an SQS message without any SDK type. All fields except the memory belong to the sender and travel
// on unchanged.
type Message struct {
	ID            string
	ReceiptHandle string
	Body          string
	// Attributes are the sender's message attributes, without our own.
	Attributes map[string]Attribute
	// Memory is our own attribute, decoded; the zero Memory when it is missing or malformed.
	Memory Memory
	// SentAt is SQS's SentTimestamp.
	SentAt time.Time
	// ReceiveCount is SQS's ApproximateReceiveCount.
	ReceiveCount int
	// Group is the message group id, empty when there is none.
	Group string
	// TraceHeader is the AWSTraceHeader system attribute, empty when there is none.
	TraceHeader string
}

// Attribute is one message attribute of any SQS type.
type Attribute struct {
	// Type is the SQS data type: String, Number or Binary, with an optional ".custom" label.
	Type string
	// String is the value of String and Number types.
	String string
	// Binary is the value of Binary types.
	Binary []byte
}

// Queue is one of a stack's queues. A lane is a queue that feeds the worker.
type Queue string

// The lanes, the dead-letter queue, and the name for a queue that is none of them.
const (
	Source   Queue = "source"
	Recovery Queue = "recovery"
	DLQ      Queue = "dlq"
	Unknown  Queue = "unknown"
)
