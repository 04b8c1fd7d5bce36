// Package memdb is DynamoDB in memory, for tests that need neither a port nor another process. It answers
// the SDK's own client, through the client's HTTP interface, and has a faster client of its own.
//
// It keeps the promises that the ledger and its kinds rely on. Conditional writes and transactions are atomic
// and happen one after the other. A refused condition returns the item that failed it. A repeated transaction
// is recognised by its ClientRequestToken. Numbers are exact. A request that DynamoDB's documentation forbids
// is refused. Features that it does not have are refused by name and never ignored: parallel scans, PartiQL,
// legacy parameters, and keys that are not strings. It neither throttles nor checks permissions, has no
// reserved words, and transactions never conflict.
package memdb

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

// DB holds tables. It may be used concurrently. The zero DB is not usable; New makes one.
type DB struct {
	mu     sync.Mutex
	tables map[string]*table
	// tokens are the answers to transactions by their ClientRequestToken.
	tokens map[string][]byte
	calls  []Call
	// transactions counts them.
	transactions int
}

// Call is one item of a request, as IAM sees it.
type Call struct {
	// Table is the table's name, Action the IAM action, such as "dynamodb:UpdateItem".
	Table, Action string
	// Wrote says that the item was written: its condition was true, and so were all conditions of its
	// transaction.
	Wrote bool
	// Transaction is the number of the item's transaction, from 1; zero for a single write or a read.
	Transaction int
	// Overwrote says that the write changed an existing attribute without a condition, and that the new value
	// does not depend on the old one.
	Overwrote bool
	// Key is the item's key, for people.
	Key string
}

type table struct {
	name, partition, sort string
	items                 map[key]Item
	indexes               []indexSchema
}

type key struct{ partition, sort string }

// New returns a DB without tables.
func New() *DB { return &DB{tables: map[string]*table{}, tokens: map[string][]byte{}} }

// CreateTable makes a table whose keys are strings. sort is empty when the table has no sort key.
func (db *DB) CreateTable(name, partition, sort string) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.tables[name] = &table{name: name, partition: partition, sort: sort, items: map[key]Item{}}
}

// Calls returns the calls since it was last called.
func (db *DB) Calls() []Call {
	db.mu.Lock()
	defer db.mu.Unlock()
	calls := db.calls
	db.calls = nil
	return calls
}

// Items returns copies of a table's items in the order of their keys.
func (db *DB) Items(name string) []Item {
	db.mu.Lock()
	defer db.mu.Unlock()
	t, err := db.table(name)
	if err != nil {
		return nil
	}
	var items []Item
	for _, k := range t.order() {
		items = append(items, copyItem(t.items[k]))
	}
	return items
}

// Clear removes every item of every table.
func (db *DB) Clear() {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, t := range db.tables {
		clear(t.items)
	}
	clear(db.tokens)
	db.calls = nil
}

func (db *DB) table(name string) (*table, error) {
	t := db.tables[name]
	if t == nil {
		return nil, &fault{code: "ResourceNotFoundException", message: "Requested resource not found: Table: " + name + " not found"}
	}
	return t, nil
}

// order returns the table's keys in order.
func (t *table) order() []key {
	keys := make([]key, 0, len(t.items))
	for k := range t.items {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, key.compare)
	return keys
}

func (k key) compare(other key) int {
	return cmp.Or(strings.Compare(k.partition, other.partition), strings.Compare(k.sort, other.sort))
}

// keyOf reads the key of an item, or of a request's Key if whole says that it has no other attribute.
func (t *table) keyOf(it Item, whole bool) (key, error) {
	var k key
	var err error
	if k.partition, err = text(it[t.partition]); err != nil {
		return k, err
	}
	n := 1
	if t.sort != "" {
		n = 2
		if k.sort, err = text(it[t.sort]); err != nil {
			return k, err
		}
	}
	if whole && len(it) != n {
		return k, invalid("The provided key element does not match the schema")
	}
	return k, nil
}

func (k key) String() string {
	if k.sort == "" {
		return k.partition
	}
	return k.partition + " " + k.sort
}

// maxItem is DynamoDB's limit of an item, in bytes.
const maxItem = 400 << 10

// write is one write of a request or of a transaction. apply makes the new item from the old one; nil
// deletes it, and the old one itself leaves it as it is.
type write struct {
	table     *table
	key       key
	action    string
	condition predicate
	returns   bool // the item that failed a condition
	apply     func(old Item) (Item, error)
	// unconditional says that there is no condition. overwrites says that an attribute gets a value that does
	// not depend on its old one.
	unconditional bool
	overwrites    func(old Item) bool
}

// judge returns the item that the write would make. Its error is a fault.
func (w *write) judge() (next Item, err error) {
	old := w.table.items[w.key]
	if !w.condition(old) {
		f := &fault{code: "ConditionalCheckFailedException", message: "The conditional request failed"}
		if w.returns {
			f.item = copyItem(old)
		}
		return nil, f
	}
	next, err = w.apply(old)
	if err != nil || next == nil {
		return nil, err
	}
	if next, err = next.check(); err != nil {
		return nil, err
	}
	if k, err := w.table.keyOf(next, false); err != nil || k != w.key {
		return nil, invalid("One or more parameter values were invalid: Cannot update attribute of the key. This attribute is part of the key")
	}
	if next.longest() > maxItem && len(encode(next)) > maxItem {
		return nil, invalid("Item size has exceeded the maximum allowed size")
	}
	return next, nil
}

// commit writes what judge returned.
func (w *write) commit(next Item, transaction int) Call {
	old, exists := w.table.items[w.key]
	if next == nil {
		delete(w.table.items, w.key)
	} else {
		w.table.items[w.key] = next
	}
	return Call{
		Table: w.table.name, Action: w.action, Key: w.key.String(), Transaction: transaction,
		Wrote:     w.action != actionCheck,
		Overwrote: exists && w.unconditional && w.overwrites(old),
	}
}

const actionCheck = "dynamodb:ConditionCheckItem"

// refused is the call of a refused write.
func (w *write) refused() Call {
	return Call{Table: w.table.name, Action: w.action, Key: w.key.String()}
}
