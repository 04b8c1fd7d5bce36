package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"acklast/internal/awsclient"
	"acklast/internal/dynamo"
	"acklast/internal/local"
	"acklast/internal/local/faults"
	"acklast/internal/topology"
)

// tables are a live ledger and a restored one, with a proxy in front of them.
type tables struct {
	*testing.T
	live, restored string
	db             *dynamodb.Client
	proxy          *faults.Proxy
}

// newTables makes the tables of a stack. All engines of one process have the same tables, so each test has its own stack.
func newTables(t *testing.T, stack string) *tables {
	t.Helper()
	engine, err := local.StartAWS(t.Context(), stack, topology.Scaled(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	proxy := faults.New(engine.Endpoint())
	t.Cleanup(proxy.Close)
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL": proxy.URL(), "AWS_REGION": local.Region, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
	} {
		t.Setenv(name, value)
	}
	db, beside := awsclient.DynamoDB(engine.AWSConfig()), topology.NamesOf(stack+"-restored")
	if err := dynamo.CreateTables(t.Context(), db, beside); err != nil {
		t.Fatal(err)
	}
	return &tables{t, topology.NamesOf(stack).LedgerTable, beside.LedgerTable, db, proxy}
}

// put writes entry number i with a text, and with a TTL unless that is zero.
func (ts *tables) put(table string, i int, text string, ttl int64) {
	ts.Helper()
	entry := key(i)
	entry["text"] = &types.AttributeValueMemberS{Value: text}
	if ttl != 0 {
		entry["ttl"] = &types.AttributeValueMemberN{Value: fmt.Sprint(ttl)}
	}
	if _, err := ts.db.PutItem(ts.Context(), &dynamodb.PutItemInput{TableName: &table, Item: entry}); err != nil {
		ts.Fatal(err)
	}
}

func key(i int) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{
		"subject": &types.AttributeValueMemberS{Value: fmt.Sprint("s-", i%7)}, "key": &types.AttributeValueMemberS{Value: fmt.Sprint("k-", i)},
	}
}

// texts are the texts of the live ledger's entries by their keys.
func (ts *tables) texts() map[string]string {
	ts.Helper()
	found := map[string]string{}
	pages := dynamodb.NewScanPaginator(ts.db, &dynamodb.ScanInput{TableName: &ts.live})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ts.Context())
		if err != nil {
			ts.Fatal(err)
		}
		for _, one := range page.Items {
			found[one["key"].(*types.AttributeValueMemberS).Value] = one["text"].(*types.AttributeValueMemberS).Value
		}
	}
	return found
}

// restore runs the command, which has to succeed and to say all of want.
func (ts *tables) restore(args []string, want ...string) {
	ts.Helper()
	var out bytes.Buffer
	if err := run(ts.Context(), args, &out); err != nil {
		ts.Fatal(err)
	}
	for _, text := range want {
		if !strings.Contains(out.String(), text) {
			ts.Errorf("%q is missing in:\n%s", text, out.String())
		}
	}
}

func (ts *tables) wantTexts(want map[string]string) {
	ts.Helper()
	if got := ts.texts(); !maps.Equal(got, want) {
		ts.Errorf("the live ledger has %v, want %v", got, want)
	}
}

// The live ledger lacks entries on three pages, has one that is newer, one that came after the backup, and has lost one by
// its retention.
func TestCopiesWhatIsMissingAndChangesNothing(t *testing.T) {
	ts := newTables(t, "shop")
	const entries, gone = 250, 200
	later := time.Now().Add(time.Hour).Unix()
	for i := range entries {
		ts.put(ts.restored, i, "old", later)
	}
	ts.put(ts.restored, gone, "old", time.Now().Add(-time.Hour).Unix())
	before := map[string]string{"k-0": "newer", "k-1": "old", "k-250": "after the backup"}
	ts.put(ts.live, 0, "newer", later)
	ts.put(ts.live, 1, "old", later)
	ts.put(ts.live, entries, "after the backup", later)

	ts.restore([]string{ts.restored, ts.live}, "has 250 entries: shop-ledger has 2 of them too, 1 are past their retention, 247 are missing.",
		"Nothing was written", "go run ./infra/restore -write shop-restored-ledger shop-ledger")
	ts.wantTexts(before)

	// It is interrupted: a write on a later page is denied.
	allow := ts.proxy.Add(faults.Rule{Operation: "PutItem", Match: func(body []byte) bool { return bytes.Contains(body, []byte(`"k-123"`)) },
		Fault: faults.Error(400, "AccessDeniedException", "no")})
	err := run(t.Context(), []string{"-write", ts.restored, ts.live}, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "AccessDeniedException") || !strings.Contains(err.Error(), "run it again") {
		t.Errorf("error %v, want the denial, and how to go on", err)
	}
	allow()
	found := len(ts.texts())
	if found < 4 || found >= len(before)+247 {
		t.Errorf("the live ledger has %d entries, want some of the copies", found)
	}
	ts.restore([]string{"-write", ts.restored, ts.live}, fmt.Sprintf("%d are missing", 250-found), fmt.Sprintf("%d were copied to shop-ledger", 250-found))
	want := maps.Clone(before)
	for i := range entries {
		if _, ok := want[fmt.Sprint("k-", i)]; !ok && i != gone {
			want[fmt.Sprint("k-", i)] = "old"
		}
	}
	ts.wantTexts(want)
	ts.restore([]string{"-write", ts.restored, ts.live}, "has 249 of them too", "0 are missing")
	ts.wantTexts(want)
}

// A worker writes an entry between the comparison and the copy.
func TestAnEntryThatComesMeanwhileIsKept(t *testing.T) {
	ts := newTables(t, "meanwhile")
	ts.put(ts.restored, 1, "old", 0)
	ts.proxy.Add(faults.Rule{Operation: "PutItem", Match: func([]byte) bool { ts.put(ts.live, 1, "newer", 0); return false }})
	ts.restore([]string{"-write", ts.restored, ts.live}, "has 1 of them too", "0 are missing")
	ts.wantTexts(map[string]string{"k-1": "newer"})
}

func TestRefusesWhatIsNoPairOfLedgers(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no table":        {nil, "want two tables"},
		"one table":       {[]string{"a"}, "want two tables"},
		"one table twice": {[]string{"a", "a"}, "both tables"},
		"unknown flag":    {[]string{"-force", "a", "b"}, "usage: go run ./infra/restore"},
	} {
		if err := run(t.Context(), c.args, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
	ts := newTables(t, "foreign")
	operations := "foreign-restored-operations"
	if err := run(t.Context(), []string{operations, ts.live}, &bytes.Buffer{}); err != nil {
		t.Errorf("an empty table: %v", err)
	}
	item := map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: "p"}, "sk": &types.AttributeValueMemberS{Value: "s"}}
	if _, err := ts.db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &operations, Item: item}); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), []string{operations, ts.live}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "no entry of a ledger") {
		t.Errorf("error %v, want that it is no ledger", err)
	}
}
