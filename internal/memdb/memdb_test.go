package memdb_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"acklast/internal/memdb"
)

// The tests of internal/dynamo, which every engine passes, cover the requests of the ledger's store. The tests
// here cover the rest of DynamoDB's documentation of expressions and requests.

type item = map[string]types.AttributeValue

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
func num(s string) types.AttributeValue  { return &types.AttributeValueMemberN{Value: s} }

func client(db *memdb.DB) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		Region: "us-east-1", HTTPClient: db, RetryMaxAttempts: 1,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "a", SecretAccessKey: "s"}, nil
		}),
	})
}

// example is an item with a value of every type.
func example() item {
	return item{
		"id": text("a"), "n": num("7"), "s": text("hello"), "yes": &types.AttributeValueMemberBOOL{Value: true},
		"none": &types.AttributeValueMemberNULL{Value: true},
		"set":  &types.AttributeValueMemberSS{Value: []string{"x", "y"}},
		"nums": &types.AttributeValueMemberNS{Value: []string{"1", "2.50"}},
		"list": &types.AttributeValueMemberL{Value: []types.AttributeValue{text("p"), num("2"), text("r")}},
		"map":  &types.AttributeValueMemberM{Value: item{"in": item2("deep", text("d")), "k": num("1")}},
	}
}

func item2(name string, v types.AttributeValue) types.AttributeValue {
	return &types.AttributeValueMemberM{Value: item{name: v}}
}

func newTable(t *testing.T) (*memdb.DB, *dynamodb.Client) {
	t.Helper()
	db := memdb.New()
	db.CreateTable("t", "id", "")
	c := client(db)
	if _, err := c.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String("t"), Item: example()}); err != nil {
		t.Fatal(err)
	}
	return db, c
}

// used returns the values that an expression mentions, because others would be refused.
func used(expression string) item {
	all := item{
		":seven": num("7"), ":eight": num("8"), ":ten": num("10.0"), ":hello": text("hello"), ":hel": text("hel"), ":x": text("x"), ":z": text("z"),
		":N": text("N"), ":two": num("2"), ":true": &types.AttributeValueMemberBOOL{Value: true}, ":setxz": &types.AttributeValueMemberSS{Value: []string{"x", "z"}},
		":setxy": &types.AttributeValueMemberSS{Value: []string{"y", "x"}}, ":list": &types.AttributeValueMemberL{Value: []types.AttributeValue{text("q")}},
		":big": num("0.1"), ":map": item2("deep", text("e")),
	}
	values := item{}
	for name, v := range all {
		for _, word := range strings.FieldsFunc(expression, func(r rune) bool { return strings.ContainsRune(" ,()[].=<>+-", r) }) {
			if word == name {
				values[name] = v
			}
		}
	}
	if len(values) == 0 {
		return nil
	}
	return values
}

func TestConditions(t *testing.T) {
	_, c := newTable(t)
	for condition, want := range map[string]bool{
		"n = :seven":                            true,
		"n = :hello":                            false,
		"n <> :seven":                           false,
		"missing = :seven":                      false,
		"missing <> :seven":                     false,
		"n < :eight AND n >= :seven":            true,
		"n < :ten":                              true, // as numbers, not as text
		"s > :hel":                              true,
		"s < :seven":                            false, // no order between types
		"n BETWEEN :seven AND :eight":           true,
		"n BETWEEN :eight AND :ten":             false,
		"s IN (:x, :hello)":                     true,
		"s IN (:x, :z)":                         false,
		"NOT s = :x":                            true,
		"NOT (s = :x OR n = :seven)":            false,
		"s = :x OR n = :seven AND yes = :true":  true, // AND binds more tightly
		"(s = :x OR n = :seven) AND s = :x":     false,
		"(n) = :seven":                          true,
		"attribute_exists(map.in.deep)":         true,
		"attribute_exists(map.out)":             false,
		"attribute_not_exists(list[3])":         true,
		"attribute_exists(list[2])":             true,
		"attribute_not_exists(missing)":         true,
		"attribute_exists(none)":                true,
		"attribute_type(n, :N)":                 true,
		"attribute_type(s, :N)":                 false,
		"begins_with(s, :hel)":                  true,
		"begins_with(s, :x)":                    false,
		"contains(s, :hel)":                     true,
		"contains(set, :x)":                     true,
		"contains(set, :z)":                     false,
		"contains(list, :two)":                  true,
		"size(list) > :two":                     true,
		"size(s) < :seven":                      true,
		"set = :setxy":                          true, // a set has no order
		"set = :setxz":                          false,
		"list[1] = :two and not list[0] = :two": true, // keywords in lower case
		"map.in = :map":                         false,
	} {
		t.Run(condition, func(t *testing.T) {
			_, err := c.PutItem(t.Context(), &dynamodb.PutItemInput{
				TableName: aws.String("t"), Item: example(), ConditionExpression: &condition, ExpressionAttributeValues: used(condition),
			})
			var failed *types.ConditionalCheckFailedException
			if got := err == nil; got != want {
				t.Errorf("holds %v, want %v (%v)", got, want, err)
			}
			if err != nil && !errors.As(err, &failed) {
				t.Errorf("error is %v, want a failed condition", err)
			}
		})
	}
}

func TestUpdates(t *testing.T) {
	for update, want := range map[string]string{
		"SET n = n + :eight":                      `n 15`,
		"SET n = :eight - n":                      `n 1`,
		"SET n = n + :big":                        `n 7.1`,
		"SET n = if_not_exists(n, :eight)":        ``,
		"SET m = if_not_exists(m, :eight) + :big": `m 8.1`,
		"SET a = s, s = :x":                       `a hello, s x`, // both read the item as it was
		"SET list = list_append(list, :list)":     `list [p 2 r q]`,
		"SET list[1] = :x, map.in.deep = :z":      `list [p x r], map {in:{deep:z} k:1}`,
		"SET list[9] = :x":                        `list [p 2 r x]`,
		"REMOVE list[0], list[1]":                 `list [r]`,
		"REMOVE s":                                `s gone`,
		"REMOVE missing":                          ``,
		"SET n = :eight REMOVE s, map.in ADD c :two DELETE set :setxz": `c 2, map {k:1}, n 8, s gone, set [y]`,
		"ADD n :eight":      `n 15`,
		"ADD set :setxz":    `set [x y z]`,
		"DELETE set :setxy": `set gone`,
	} {
		t.Run(update, func(t *testing.T) {
			_, c := newTable(t)
			out, err := c.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
				TableName: aws.String("t"), Key: item{"id": text("a")}, UpdateExpression: &update,
				ExpressionAttributeValues: used(update), ReturnValues: types.ReturnValueAllNew,
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := changes(example(), out.Attributes); got != want {
				t.Errorf("changed %q, want %q", got, want)
			}
		})
	}
}

// changes describes how two items differ.
func changes(before, after item) string {
	var all []string
	for _, name := range []string{"a", "c", "list", "m", "map", "n", "none", "nums", "s", "set", "yes"} {
		b, a := show(before[name]), show(after[name])
		switch a {
		case b:
		case "":
			all = append(all, name+" gone")
		default:
			all = append(all, name+" "+a)
		}
	}
	return strings.Join(all, ", ")
}

func show(v types.AttributeValue) string {
	switch v := v.(type) {
	case nil:
		return ""
	case *types.AttributeValueMemberS:
		return v.Value
	case *types.AttributeValueMemberN:
		return v.Value
	case *types.AttributeValueMemberSS:
		return fmt.Sprint(v.Value)
	case *types.AttributeValueMemberL:
		var all []string
		for _, e := range v.Value {
			all = append(all, show(e))
		}
		return fmt.Sprint(all)
	case *types.AttributeValueMemberM:
		var all []string
		for _, name := range []string{"in", "deep", "k"} {
			if e, ok := v.Value[name]; ok {
				all = append(all, name+":"+show(e))
			}
		}
		return "{" + strings.Join(all, " ") + "}"
	case *types.AttributeValueMemberNS:
		return strings.ReplaceAll(fmt.Sprint(v.Value), "2.50", "2.5") // one form for one number
	}
	b, _ := json.Marshal(v)
	return string(b)
}

// A request that DynamoDB documents as an error is refused here too, and changes nothing.
func TestRefusals(t *testing.T) {
	update := func(expression string, names map[string]string, values item) func(*dynamodb.Client) error {
		return func(c *dynamodb.Client) error {
			_, err := c.UpdateItem(context.Background(), &dynamodb.UpdateItemInput{
				TableName: aws.String("t"), Key: item{"id": text("a")}, UpdateExpression: &expression,
				ExpressionAttributeNames: names, ExpressionAttributeValues: values,
			})
			return err
		}
	}
	put := func(it item) func(*dynamodb.Client) error {
		return func(c *dynamodb.Client) error {
			_, err := c.PutItem(context.Background(), &dynamodb.PutItemInput{TableName: aws.String("t"), Item: it})
			return err
		}
	}
	for name, tt := range map[string]struct {
		call func(*dynamodb.Client) error
		code string
	}{
		"unused value":      {update("SET n = :v", nil, item{":v": num("1"), ":w": num("1")}), "ValidationException"},
		"unused name":       {update("SET n = :v", map[string]string{"#x": "x"}, item{":v": num("1")}), "ValidationException"},
		"undefined value":   {update("SET n = :w", nil, item{":v": num("1")}), "ValidationException"},
		"undefined name":    {update("SET #n = :v", nil, item{":v": num("1")}), "ValidationException"},
		"clause twice":      {update("SET n = :v SET s = :v", nil, item{":v": num("1")}), "ValidationException"},
		"paths overlap":     {update("SET map.k = :v REMOVE map", nil, item{":v": num("1")}), "ValidationException"},
		"missing operand":   {update("SET n = missing", nil, nil), "ValidationException"},
		"missing in a sum":  {update("SET n = missing + :v", nil, item{":v": num("1")}), "ValidationException"},
		"text in a sum":     {update("SET n = s + :v", nil, item{":v": num("1")}), "ValidationException"},
		"path into nothing": {update("SET missing.a = :v", nil, item{":v": num("1")}), "ValidationException"},
		"the key":           {update("SET id = :v", nil, item{":v": text("b")}), "ValidationException"},
		"trailing words":    {update("SET n = :v n", nil, item{":v": num("1")}), "ValidationException"},
		"no number":         {update("SET n = :v", nil, item{":v": num("1x")}), "ValidationException"},
		"too many digits":   {update("SET n = :v", nil, item{":v": num(strings.Repeat("9", 39))}), "ValidationException"},
		"no key":            {put(item{"n": num("1")}), "ValidationException"},
		"empty key":         {put(item{"id": text("")}), "ValidationException"},
		"number as key":     {put(item{"id": num("1")}), "ValidationException"},
		"value twice":       {put(item{"id": text("a"), "set": &types.AttributeValueMemberSS{Value: []string{"x", "x"}}}), "ValidationException"},
		"too large":         {put(item{"id": text("a"), "s": text(strings.Repeat("x", 401<<10))}), "ValidationException"},
		"no table": {func(c *dynamodb.Client) error {
			_, err := c.GetItem(context.Background(), &dynamodb.GetItemInput{TableName: aws.String("u"), Key: item{"id": text("a")}})
			return err
		}, "ResourceNotFoundException"},
		"key and more": {func(c *dynamodb.Client) error {
			_, err := c.GetItem(context.Background(), &dynamodb.GetItemInput{TableName: aws.String("t"), Key: item{"id": text("a"), "n": num("7")}})
			return err
		}, "ValidationException"},
		"legacy parameter": {func(c *dynamodb.Client) error {
			_, err := c.GetItem(context.Background(), &dynamodb.GetItemInput{TableName: aws.String("t"), Key: item{"id": text("a")}, AttributesToGet: []string{"n"}})
			return err
		}, "ValidationException"},
		"PartiQL": {func(c *dynamodb.Client) error {
			_, err := c.ExecuteStatement(context.Background(), &dynamodb.ExecuteStatementInput{Statement: aws.String("SELECT * FROM t")})
			return err
		}, "ValidationException"},
		"one item twice in a transaction": {func(c *dynamodb.Client) error {
			d := types.TransactWriteItem{Delete: &types.Delete{TableName: aws.String("t"), Key: item{"id": text("a")}}}
			_, err := c.TransactWriteItems(context.Background(), &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{d, d}})
			return err
		}, "ValidationException"},
	} {
		t.Run(name, func(t *testing.T) {
			db, c := newTable(t)
			before := fmt.Sprint(encoded(db))
			var api smithy.APIError
			if err := tt.call(c); !errors.As(err, &api) || api.ErrorCode() != tt.code {
				t.Errorf("error %v, want %s", err, tt.code)
			}
			if after := encoded(db); after != before {
				t.Errorf("the table is %s, was %s", after, before)
			}
		})
	}
}

func encoded(db *memdb.DB) string {
	b, err := json.Marshal(db.Items("t"))
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestTransactionWritesAllOrNothing(t *testing.T) {
	db, c := newTable(t)
	before := encoded(db)
	_, err := c.TransactWriteItems(t.Context(), &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{
		{Put: &types.Put{TableName: aws.String("t"), Item: item{"id": text("b")}}},
		{Update: &types.Update{
			TableName: aws.String("t"), Key: item{"id": text("a")}, UpdateExpression: aws.String("SET n = :n"),
			ConditionExpression: aws.String("n = :n"), ExpressionAttributeValues: item{":n": num("8")},
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}},
	}})
	var cancelled *types.TransactionCanceledException
	if !errors.As(err, &cancelled) {
		t.Fatalf("error %v, want a cancelled transaction", err)
	}
	if got := aws.ToString(cancelled.CancellationReasons[0].Code); got != "None" {
		t.Errorf("reason of the first item = %q", got)
	}
	if got := aws.ToString(cancelled.CancellationReasons[1].Code); got != "ConditionalCheckFailed" {
		t.Errorf("reason of the second item = %q", got)
	}
	if got := show(cancelled.CancellationReasons[1].Item["n"]); got != "7" {
		t.Errorf("the condition met n = %q, want 7", got)
	}
	if after := encoded(db); after != before {
		t.Errorf("the table is %s, was %s", after, before)
	}
}

func TestQueryPagesInTheOrderOfKeys(t *testing.T) {
	db := memdb.New()
	db.CreateTable("t", "p", "s")
	c := client(db)
	for _, s := range []string{"3", "1", "2", "20"} {
		if _, err := c.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String("t"), Item: item{"p": text("p"), "s": text(s), "odd": text(s)}}); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		condition, filter *string
		backwards         bool
		want              string
	}{
		"all":       {aws.String("p = :p"), nil, false, "1 2 20 3"},
		"backwards": {aws.String("p = :p"), nil, true, "3 20 2 1"},
		"prefix":    {aws.String("p = :p AND begins_with(s, :two)"), nil, false, "2 20"},
		"filter":    {aws.String("p = :p"), aws.String("odd <> :two"), false, "1 20 3"},
	} {
		t.Run(name, func(t *testing.T) {
			values := item{":p": text("p")}
			if strings.Contains(aws.ToString(tt.condition)+aws.ToString(tt.filter), ":two") {
				values[":two"] = text("2")
			}
			var got []string
			pages := dynamodb.NewQueryPaginator(c, &dynamodb.QueryInput{
				TableName: aws.String("t"), KeyConditionExpression: tt.condition, FilterExpression: tt.filter,
				ScanIndexForward: aws.Bool(!tt.backwards), ExpressionAttributeValues: values, Limit: aws.Int32(1),
			})
			for pages.HasMorePages() {
				page, err := pages.NextPage(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, it := range page.Items {
					got = append(got, show(it["s"]))
				}
			}
			if s := strings.Join(got, " "); s != tt.want {
				t.Errorf("got %s, want %s", s, tt.want)
			}
		})
	}
}

func TestCallsSayWhatWasWritten(t *testing.T) {
	db, c := newTable(t)
	db.Calls()
	update := func(expression, condition string, values item) {
		in := &dynamodb.UpdateItemInput{TableName: aws.String("t"), Key: item{"id": text("a")}, UpdateExpression: &expression, ExpressionAttributeValues: values}
		if condition != "" {
			in.ConditionExpression = &condition
		}
		_, _ = c.UpdateItem(t.Context(), in) // one of them is refused on purpose
	}
	for name, tt := range map[string]struct {
		update, condition string
		want              memdb.Call
	}{
		"on a condition":    {"SET n = :v", "n <> :v", memdb.Call{Wrote: true}},
		"refused":           {"SET n = :v", "attribute_not_exists(n)", memdb.Call{}},
		"overwrites":        {"SET n = :v", "", memdb.Call{Wrote: true, Overwrote: true}},
		"a new attribute":   {"SET fresh = :v", "", memdb.Call{Wrote: true}},
		"relative":          {"SET n = n + :v", "", memdb.Call{Wrote: true}},
		"added":             {"ADD n :v", "", memdb.Call{Wrote: true}},
		"removes":           {"REMOVE s SET fresh = :v", "", memdb.Call{Wrote: true, Overwrote: true}},
		"kept if it exists": {"SET n = if_not_exists(n, :v)", "", memdb.Call{Wrote: true}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := c.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String("t"), Item: example()}); err != nil {
				t.Fatal(err)
			}
			db.Calls()
			update(tt.update, tt.condition, item{":v": num("8")})
			tt.want.Table, tt.want.Action, tt.want.Key = "t", "dynamodb:UpdateItem", "a"
			got := db.Calls()
			if len(got) != 1 || got[0] != tt.want {
				t.Errorf("calls %+v, want %+v", got, tt.want)
			}
		})
	}
}
