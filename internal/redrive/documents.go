package redrive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Record is one document of the operations table.
type Record struct {
	PK, SK string
	// Doc is the document, JSON.
	Doc []byte
	// Version counts the writes; 0 is a document that does not exist yet.
	Version int64
	// TTL is when the document may be deleted.
	TTL time.Time
}

// ErrChanged: the document is not the version that was read.
var ErrChanged = errors.New("document has changed")

// Table is the operations table.
type Table interface {
	// Get reads consistently; a document that is missing has Version 0.
	Get(ctx context.Context, pk, sk string) (Record, error)
	// Put writes on condition that the stored version is the record's, and returns the record as it
	// then is, or ErrChanged.
	Put(ctx context.Context, r Record) (Record, error)
	// Append writes documents whose keys nobody else uses.
	Append(ctx context.Context, records []Record) error
	// Query calls each for every document of a partition whose sort key has the prefix, in order.
	Query(ctx context.Context, pk, prefix string, each func(Record) error) error
	// QueryAfter is Query for every document whose sort key comes after the given one.
	QueryAfter(ctx context.Context, pk, after string, each func(Record) error) error
}

// The keys of the operations table's documents.
const (
	skPlan = "plan"
	skRun  = "run"
	skPart = "part#"

	pkIndex  = "index"
	pkSwitch = SwitchKey
	pkLock   = "lock"
)

// SwitchKey is the partition of the kill switch and of the lines about those who threw it directly, and of nothing else:
// operators may write it directly.
const SwitchKey = "switch"

func pkPlan(id string) string { return "plan#" + id }

func pkRun(id string) string { return "run#" + id }

// create writes a new document. One that is there already is ErrChanged.
func (s *Service) create(ctx context.Context, pk, sk string, v any) error {
	_, err := s.put(ctx, Record{PK: pk, SK: sk}, v)
	return err
}

// put replaces a document by v, on condition that it is still as rec says.
func (s *Service) put(ctx context.Context, rec Record, v any) (Record, error) {
	var err error
	if rec.Doc, err = encode(v); err != nil {
		return rec, err
	}
	rec.TTL = s.now().Add(s.numbers.Retention)
	return s.table.Put(ctx, rec)
}

// Format is the newest form of requests and documents that this version reads, and the one it writes.
const Format = 1

// stored is a document as it is stored: with the number of its form, so that an older version refuses a
// newer document instead of misreading it.
type stored[T any] struct {
	Format int `json:"format"`
	Doc    T   `json:"doc"`
}

func encode(v any) ([]byte, error) { return json.Marshal(stored[any]{Format, v}) }

func decode[T any](r Record) (v T, err error) {
	var doc stored[json.RawMessage]
	if err = json.Unmarshal(r.Doc, &doc); err != nil {
		return v, fmt.Errorf("read %s %s: %w", r.PK, r.SK, err)
	}
	if doc.Format > Format {
		return v, refuse("%s has format %d, and this redrive function reads up to %d: a newer version wrote it, deploy that one", r.PK, doc.Format, Format)
	}
	if err = json.Unmarshal(doc.Doc, &v); err != nil {
		err = fmt.Errorf("read %s %s: %w", r.PK, r.SK, err)
	}
	return v, err
}

// indexed is a line of the index that list reads. A discard has no plan.
type indexed struct {
	Run  string    `json:"run"`
	Plan string    `json:"plan,omitempty"`
	At   time.Time `json:"at"`
}

// lock is the document that one run at a time holds.
type lock struct {
	Run   string    `json:"run"`
	Owner string    `json:"owner"`
	Until time.Time `json:"until"`
}

func (l lock) live(now time.Time) bool { return l.Owner != "" && now.Before(l.Until) }

func (s *Service) readLock(ctx context.Context) (lock, Record, error) { return readLock(ctx, s.table) }

func readLock(ctx context.Context, table Table) (lock, Record, error) {
	rec, err := table.Get(ctx, pkLock, pkLock)
	if err != nil || rec.Version == 0 {
		return lock{}, rec, err
	}
	l, err := decode[lock](rec)
	return l, rec, err
}

// Switch is the kill switch. While it is on, nothing is redriven.
type Switch struct {
	On     bool      `json:"on"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at,omitzero"`
}

// readSwitch reads the kill switch. A caller that cannot read it has to treat it as on.
func (s *Service) readSwitch(ctx context.Context) (Switch, error) { return readSwitch(ctx, s.table) }

func readSwitch(ctx context.Context, table Table) (Switch, error) {
	rec, err := table.Get(ctx, pkSwitch, pkSwitch)
	if err != nil || rec.Version == 0 {
		return Switch{}, err
	}
	return decode[Switch](rec)
}
