package redrive_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"acklast/internal/redrive"
)

// A request that is read is written so that it reads the same.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{`{"action":"status"}`, `{"action":"plan","select":{"all":true},"open":true,"count":3}`, `{"action":"x","format":99,"new":1}`, `{}{}`, `[]`, `{"action":"discard","messages":["a"],"by":"\u0000"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		request, err := redrive.DecodeRequest(raw)
		if err != nil {
			if !reflect.DeepEqual(request, redrive.Request{Action: request.Action}) {
				t.Fatalf("%q is refused and gains %+v", raw, request)
			}
			return
		}
		written, err := json.Marshal(request)
		if err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		again, err := redrive.DecodeRequest(written)
		if err != nil {
			t.Fatalf("%q was read, but not %q: %v", raw, written, err)
		}
		if twice, err := json.Marshal(again); err != nil || string(twice) != string(written) {
			t.Fatalf("%q became %q and then %q", raw, written, twice)
		}
	})
}
