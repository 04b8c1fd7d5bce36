package memdb

import (
	"slices"
)

// scan answers Query and Scan.
func (db *DB) scan(operation string, in request) (answer, error) {
	t, err := db.table(in.TableName)
	if err != nil {
		return answer{}, err
	}
	if operation == "Query" && in.KeyConditionExpression == nil {
		return answer{}, invalid("Either the KeyConditions or KeyConditionExpression parameter must be specified in the request.")
	}
	ph := in.placeholders()
	ofKey, err := condition("KeyConditionExpression", in.KeyConditionExpression, ph)
	if err != nil {
		return answer{}, err
	}
	filter, err := condition("FilterExpression", in.FilterExpression, ph)
	if err != nil {
		return answer{}, err
	}
	project, err := projectionOf(in, ph)
	if err != nil {
		return answer{}, err
	}
	if err := ph.check(); err != nil {
		return answer{}, err
	}
	rows, err := t.rows(in.IndexName)
	if err != nil {
		return answer{}, err
	}
	order := row.compare
	if in.ScanIndexForward != nil && !*in.ScanIndexForward {
		order = func(a, b row) int { return row.compare(b, a) }
	}
	slices.SortFunc(rows, order)
	if in.ExclusiveStartKey != nil {
		start, err := t.row(in.IndexName, in.ExclusiveStartKey)
		if err != nil {
			return answer{}, err
		}
		rows = slices.DeleteFunc(rows, func(r row) bool { return order(r, start) <= 0 })
	}
	a := answer{Items: []Item{}}
	scanned := 0
	for _, r := range rows {
		// A condition on the key may name only the key's attributes.
		if !ofKey(r.key) {
			continue
		}
		if in.Limit > 0 && scanned == in.Limit {
			break
		}
		scanned++
		if filter(r.item) {
			a.Items = append(a.Items, project(copyItem(r.item)))
		}
		if in.Limit > 0 && scanned == in.Limit {
			a.LastEvaluatedKey = r.key
		}
	}
	db.calls = append(db.calls, Call{Table: t.name, Action: "dynamodb:" + operation})
	count := len(a.Items)
	a.Count, a.ScannedCount = &count, &scanned
	if in.Select == "COUNT" {
		a.Items = nil
	}
	return a, nil
}

// row is an item in a table or an index, with its key and its place in the order.
type row struct {
	item   Item
	key    Item
	values []string
}

func (r row) compare(other row) int { return slices.Compare(r.values, other.values) }

// rows returns the items of a table, or those of an index.
func (t *table) rows(index string) ([]row, error) {
	var rows []row
	if _, err := t.row(index, nil); err != nil {
		return nil, err
	}
	for _, k := range t.order() {
		if r, err := t.row(index, t.items[k]); err == nil {
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// row reads the keys of an item. Its error says that the index does not exist, or that the item is not in it.
func (t *table) row(index string, it Item) (row, error) {
	names := []string{t.partition, t.sort}
	if index != "" {
		i := slices.IndexFunc(t.indexes, func(x indexSchema) bool { return x.IndexName == index })
		if i < 0 {
			return row{}, invalid("The table does not have the specified index: %s", index)
		}
		partition, sort := keyNames(t.indexes[i].KeySchema)
		names = append([]string{partition, sort}, names...)
	}
	r := row{item: it, key: Item{}}
	if it == nil {
		return r, nil
	}
	for _, name := range names {
		if name == "" {
			continue
		}
		s, err := text(it[name])
		if err != nil {
			return row{}, err
		}
		r.key[name], r.values = it[name], append(r.values, s)
	}
	return r, nil
}
