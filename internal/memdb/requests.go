package memdb

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
)

// request has all known parameters of a request and of its items. An unknown parameter is refused.
type request struct {
	TableName                           string
	Key, Item                           Item
	ConditionExpression                 *string
	UpdateExpression                    string
	KeyConditionExpression              *string
	FilterExpression                    *string
	ProjectionExpression                *string
	ExpressionAttributeNames            map[string]string
	ExpressionAttributeValues           Item
	ReturnValues                        string
	ReturnValuesOnConditionCheckFailure string
	ConsistentRead                      bool
	ScanIndexForward                    *bool
	Limit                               int
	ExclusiveStartKey                   Item
	Select                              string
	ReturnConsumedCapacity              string
	ReturnItemCollectionMetrics         string

	KeySchema              []keyElement
	AttributeDefinitions   []attributeDefinition
	BillingMode            string
	GlobalSecondaryIndexes []indexSchema
	IndexName              string

	TransactItems      []map[string]request
	ClientRequestToken string
	RequestItems       json.RawMessage
	// writes are the RequestItems of a BatchWriteItem of Client's.
	writes map[string][]map[string]request
}

// answer is the body of every answer.
type answer struct {
	Item             Item           `json:",omitempty"`
	Attributes       Item           `json:",omitempty"`
	Items            []Item         `json:",omitempty"`
	Count            *int           `json:",omitempty"`
	ScannedCount     *int           `json:",omitempty"`
	LastEvaluatedKey Item           `json:",omitempty"`
	Responses        any            `json:",omitempty"`
	UnprocessedItems map[string]any `json:",omitempty"`
	UnprocessedKeys  map[string]any `json:",omitempty"`
	Table            any            `json:",omitempty"`
}

type keyElement struct{ AttributeName, KeyType string }

// indexSchema is a global secondary index. It always holds all attributes, whatever its projection.
type indexSchema struct {
	IndexName  string
	KeySchema  []keyElement
	Projection any
}

type attributeDefinition struct{ AttributeName, AttributeType string }

// reason says why one item of a transaction stopped the transaction.
type reason struct {
	Code    string
	Message string `json:",omitempty"`
	Item    Item   `json:",omitempty"`
}

func (db *DB) answer(operation string, in request) (answer, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	switch operation {
	case "CreateTable":
		return answer{}, db.createTable(in)
	case "DescribeTable":
		return db.describeTable(in)
	case "GetItem":
		return db.get(in)
	case "PutItem", "UpdateItem", "DeleteItem":
		return db.one(operation, in)
	case "Query", "Scan":
		return db.scan(operation, in)
	case "TransactWriteItems":
		return answer{}, db.transact(in)
	case "TransactGetItems":
		return db.transactGet(in)
	case "BatchGetItem":
		return db.batchGet(in)
	case "BatchWriteItem":
		return db.batchWrite(in)
	}
	return answer{}, &fault{code: "UnknownOperationException", message: operation + " is not supported by the DynamoDB in memory"}
}

// createTable makes a table, whose keys must be strings.
func (db *DB) createTable(in request) error {
	if db.tables[in.TableName] != nil {
		return &fault{code: "ResourceInUseException", message: "Table already exists: " + in.TableName}
	}
	for _, d := range in.AttributeDefinitions {
		if d.AttributeType != "S" {
			return invalid("keys that are no strings are not supported by the DynamoDB in memory: %s", d.AttributeName)
		}
	}
	t := &table{name: in.TableName, items: map[key]Item{}, indexes: in.GlobalSecondaryIndexes}
	t.partition, t.sort = keyNames(in.KeySchema)
	db.tables[in.TableName] = t
	return nil
}

func keyNames(schema []keyElement) (partition, sort string) {
	for _, k := range schema {
		if k.KeyType == "HASH" {
			partition = k.AttributeName
		} else {
			sort = k.AttributeName
		}
	}
	return partition, sort
}

func (db *DB) describeTable(in request) (answer, error) {
	t, err := db.table(in.TableName)
	if err != nil {
		return answer{}, err
	}
	schema := []keyElement{{t.partition, "HASH"}}
	if t.sort != "" {
		schema = append(schema, keyElement{t.sort, "RANGE"})
	}
	return answer{Table: map[string]any{"TableName": t.name, "TableStatus": "ACTIVE", "KeySchema": schema, "GlobalSecondaryIndexes": t.indexes}}, nil
}

func (in request) placeholders() *placeholders {
	return &placeholders{names: in.ExpressionAttributeNames, values: in.ExpressionAttributeValues, used: map[string]bool{}}
}

func (db *DB) read(t *table, k key, action string) Item {
	db.calls = append(db.calls, Call{Table: t.name, Action: action, Key: k.String()})
	return copyItem(t.items[k])
}

func (db *DB) get(in request) (answer, error) {
	it, err := db.getAs(in, "dynamodb:GetItem")
	return answer{Item: it}, err
}

func (db *DB) getAs(in request, action string) (Item, error) {
	t, err := db.table(in.TableName)
	if err != nil {
		return nil, err
	}
	k, err := t.keyOf(in.Key, true)
	if err != nil {
		return nil, err
	}
	project, err := projection(in)
	if err != nil {
		return nil, err
	}
	return project(db.read(t, k, action)), nil
}

// projection reads a ProjectionExpression of top-level attributes, which must be the request's only one.
func projection(in request) (func(Item) Item, error) {
	ph := in.placeholders()
	project, err := projectionOf(in, ph)
	if err != nil {
		return nil, err
	}
	return project, ph.check()
}

func projectionOf(in request, ph *placeholders) (func(Item) Item, error) {
	if in.ProjectionExpression == nil {
		return func(it Item) Item { return it }, nil
	}
	p := newParser("ProjectionExpression", *in.ProjectionExpression, ph)
	var names []string
	for more := true; more && p.err == nil; more = p.accept(",") {
		at := p.path()
		if len(at) > 1 {
			return nil, invalid("a projection of nested attributes is not supported by the DynamoDB in memory")
		}
		names = append(names, at[0].name)
	}
	return func(it Item) Item {
		out := Item{}
		for _, n := range names {
			if v, ok := it[n]; ok {
				out[n] = v
			}
		}
		return out
	}, p.end()
}

// prepare reads one write.
func (db *DB) prepare(operation string, in request) (*write, error) {
	t, err := db.table(in.TableName)
	if err != nil {
		return nil, err
	}
	source, whole := in.Key, true
	if operation == "PutItem" || operation == "Put" {
		source, whole = in.Item, false
	}
	w := &write{
		table: t, returns: in.ReturnValuesOnConditionCheckFailure == "ALL_OLD",
		unconditional: in.ConditionExpression == nil, overwrites: func(Item) bool { return true },
	}
	if w.key, err = t.keyOf(source, whole); err != nil {
		return nil, err
	}
	ph := in.placeholders()
	if w.condition, err = condition("ConditionExpression", in.ConditionExpression, ph); err != nil {
		return nil, err
	}
	switch operation {
	case "PutItem", "Put":
		w.action = "dynamodb:PutItem"
		w.apply = func(Item) (Item, error) { return copyItem(in.Item), nil }
	case "DeleteItem", "Delete":
		w.action = "dynamodb:DeleteItem"
		w.apply = func(Item) (Item, error) { return nil, nil }
	case "ConditionCheck":
		if in.ConditionExpression == nil {
			return nil, invalid("a ConditionCheck needs a ConditionExpression")
		}
		w.action = actionCheck
		w.apply = func(old Item) (Item, error) { return old, nil }
	default:
		w.action = "dynamodb:UpdateItem"
		if err := w.update(in, ph); err != nil {
			return nil, err
		}
	}
	return w, ph.check()
}

func (w *write) update(in request, ph *placeholders) error {
	changes, err := update(in.UpdateExpression, ph)
	if err != nil {
		return err
	}
	w.overwrites = func(old Item) bool {
		return slices.ContainsFunc(changes, func(c change) bool {
			_, exists := c.at.get(old)
			return exists && !c.relative
		})
	}
	w.apply = func(old Item) (Item, error) {
		next := copyItem(old)
		if next == nil {
			next = copyItem(in.Key)
		}
		for _, c := range changes {
			if err := c.apply(old, next); err != nil {
				return nil, err
			}
		}
		return next, nil
	}
	return nil
}

// one makes a single write.
func (db *DB) one(operation string, in request) (answer, error) {
	w, err := db.prepare(operation, in)
	if err != nil {
		return answer{}, err
	}
	next, err := w.judge()
	if err != nil {
		db.calls = append(db.calls, w.refused())
		return answer{}, err
	}
	var a answer
	switch in.ReturnValues {
	case "", "NONE":
	case "ALL_OLD":
		a.Attributes = w.table.items[w.key]
	case "ALL_NEW":
		a.Attributes = copyItem(next)
	default:
		return answer{}, invalid("ReturnValues %s is not supported by the DynamoDB in memory", in.ReturnValues)
	}
	db.calls = append(db.calls, w.commit(next, 0))
	return a, nil
}

const maxTransaction = 100

func (db *DB) transact(in request) error {
	token := in.ClientRequestToken
	var sent []byte
	if token != "" {
		in.ClientRequestToken = ""
		sent = encode(in)
	}
	if before, ok := db.tokens[token]; ok {
		if !bytes.Equal(before, sent) {
			return &fault{code: "IdempotentParameterMismatchException", message: "the token was used with another request"}
		}
		return nil
	}
	if n := len(in.TransactItems); n == 0 || n > maxTransaction {
		return invalid("a transaction has %d items, want 1 to %d", n, maxTransaction)
	}
	var writes []*write
	for _, one := range in.TransactItems {
		for operation, part := range one {
			w, err := db.prepare(operation, part)
			if err != nil {
				return err
			}
			for _, other := range writes {
				if other.table == w.table && other.key == w.key {
					return invalid("Transaction request cannot include multiple operations on one item")
				}
			}
			writes = append(writes, w)
		}
	}
	next, reasons := make([]Item, len(writes)), make([]reason, len(writes))
	codes, refused := make([]string, len(writes)), false
	for i, w := range writes {
		var err error
		next[i], err = w.judge()
		reasons[i].Code = "None"
		if f := (*fault)(nil); errors.As(err, &f) {
			refused = true
			reasons[i] = reason{Code: "ValidationError", Message: f.message, Item: f.item}
			if f.code == "ConditionalCheckFailedException" {
				reasons[i].Code = "ConditionalCheckFailed"
			}
		}
		codes[i] = reasons[i].Code
	}
	if refused {
		for _, w := range writes {
			db.calls = append(db.calls, w.refused())
		}
		return &fault{code: "TransactionCanceledException", reasons: reasons,
			message: "Transaction cancelled, please refer cancellation reasons for specific reasons [" + strings.Join(codes, ", ") + "]"}
	}
	db.transactions++
	for i, w := range writes {
		db.calls = append(db.calls, w.commit(next[i], db.transactions))
	}
	if token != "" {
		db.tokens[token] = sent
	}
	return nil
}

func (db *DB) transactGet(in request) (answer, error) {
	var found []map[string]Item
	for _, one := range in.TransactItems {
		it, err := db.getAs(one["Get"], "dynamodb:GetItem")
		if err != nil {
			return answer{}, err
		}
		found = append(found, map[string]Item{"Item": it})
	}
	return answer{Responses: found}, nil
}

func (db *DB) batchGet(in request) (answer, error) {
	var tables map[string]struct {
		Keys           []Item
		ConsistentRead bool
	}
	if err := strict(in.RequestItems, &tables); err != nil {
		return answer{}, err
	}
	found := map[string][]Item{}
	for name, t := range tables {
		found[name] = []Item{}
		for _, k := range t.Keys {
			it, err := db.getAs(request{TableName: name, Key: k}, "dynamodb:BatchGetItem")
			if err != nil {
				return answer{}, err
			}
			if it != nil {
				found[name] = append(found[name], it)
			}
		}
	}
	return answer{Responses: found, UnprocessedKeys: map[string]any{}}, nil
}

func (db *DB) batchWrite(in request) (answer, error) {
	tables := in.writes
	if tables == nil {
		if err := strict(in.RequestItems, &tables); err != nil {
			return answer{}, err
		}
	}
	for name, list := range tables {
		for _, one := range list {
			for operation, part := range one {
				part.TableName = name
				w, err := db.prepare(strings.TrimSuffix(operation, "Request"), part)
				if err != nil {
					return answer{}, err
				}
				next, err := w.judge()
				if err != nil {
					return answer{}, err
				}
				w.action = "dynamodb:BatchWriteItem"
				db.calls = append(db.calls, w.commit(next, 0))
			}
		}
	}
	return answer{UnprocessedItems: map[string]any{}}, nil
}
