package job

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestDescriptionsSurviveTheirEncoding(t *testing.T) {
	want := []Description{
		{
			Name: "voucher.expire", Late: ExpireLate, Volatile: []string{"traceId"}, Masked: []string{"recipient"},
			Attempts:    Attempts{Most: 3, BackoffBase: time.Second, BackoffCap: time.Minute, Time: 1500 * time.Millisecond},
			Tables:      []Table{{Name: "vouchers", PartitionKey: "voucher_id", SortKey: "part", TTL: "ttl"}},
			Environment: []Variable{{Name: "SHOP_URL", Help: "where the shop is"}},
			Samples:     []Sample{{Name: "voucher-expire", Body: `{"kind":"voucher.expire","payload":{"voucherId":"<v>"}}`}},
		},
		{Name: "plain"},
	}
	encoded, err := EncodeDescriptions(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeDescriptions(encoded)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v\nwant %+v", got, want)
	}
}

func TestDescriptionsOfAnotherFormatAreRefused(t *testing.T) {
	for encoded, want := range map[string]string{
		`{"format":2,"kinds":[]}`:        "format 2",
		`{"kinds":[]}`:                   "format 0",
		`{"format":1,"kinds":[{"name":`:  "read the kinds' descriptions",
		`usage: bootstrap`:               "read the kinds' descriptions",
		`{"format":1,"kinds":"nothing"}`: "read the kinds' descriptions",
	} {
		_, err := DecodeDescriptions([]byte(encoded))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", encoded, err, want)
		}
	}
}

func TestASampleHasItsKey(t *testing.T) {
	type payload struct {
		ID string `json:"id"`
	}
	k := Define(Definition[payload]{
		Name: "test.kind", Key: func(p payload) (string, []string) { return p.ID, []string{"rest"} },
		Samples: []Sample{
			{Name: "good", Body: `{"kind":"test.kind","payload":{"id":"a/b"}}`},
			{Name: "no id", Body: `{"kind":"test.kind","payload":{"id":""}}`},
			{Name: "another kind", Body: `{"kind":"test.other","payload":{"id":"a"}}`},
			{Name: "no job", Body: `null`},
		},
	})
	want := map[string]string{"good": "test.kind/a%2Fb/rest", "no id": "", "another kind": "", "no job": ""}
	for _, s := range k.Samples {
		if s.Key != want[s.Name] {
			t.Errorf("%s: the key is %q, want %q", s.Name, s.Key, want[s.Name])
		}
	}
}
