package job

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

func TestHideTakesMaskedValuesOutOfAnError(t *testing.T) {
	d := Description{Masked: []string{"recipient", "address", "absent"}}
	payload := []byte(`{"id":"o-1","recipient":"Mia \"M\" <mia+7@example.test>","address":{"Street":["Elm Street 7"],"zip":12345},"short":"abc"}`)
	const recipient = `Mia "M" <mia+7@example.test>`
	for name, text := range map[string]string{
		"plain": recipient, "quoted": fmt.Sprintf("%q", recipient), "lower case": strings.ToLower(recipient), "query": url.QueryEscape(recipient), "path": url.PathEscape(recipient),
		"base64": base64.StdEncoding.EncodeToString([]byte(recipient)), "list in an object": "Elm Street 7", "number": "12345",
	} {
		got := d.Hide(payload, &Failure{Class: Rejected, Err: fmt.Errorf("no mailbox %s for o-1", text)})
		if want := "no mailbox (masked)"; !strings.HasPrefix(strings.ReplaceAll(strings.ReplaceAll(got.Error(), `"`, ""), "==", ""), want) {
			t.Errorf("%s: %v", name, got)
		}
		if !strings.HasSuffix(got.Error(), " for o-1") {
			t.Errorf("%s: %v lost what is not masked", name, got)
		}
		if AsFailure(got).Class != Rejected {
			t.Errorf("%s: class %s, want that of the error", name, AsFailure(got).Class)
		}
	}
	for _, text := range []string{string(payload), fmt.Sprintf("%q", payload), base64.StdEncoding.EncodeToString(payload)} {
		if got := d.Hide(payload, errors.New(text)).Error(); !strings.Contains(got, "(payload)") || strings.Contains(got, "o-1") {
			t.Errorf("the whole payload: %s", got)
		}
	}
}

func TestHideLeavesOtherErrorsAlone(t *testing.T) {
	d := Description{Masked: []string{"recipient"}}
	err := errors.New("abc is down")
	for _, payload := range []string{`{"recipient":"abc"}`, `{"recipient":true}`, `{"recipient":{"abc is down":1}}`, `{"other":"abc is down"}`, `[`, ``} {
		if got := d.Hide([]byte(payload), err); !errors.Is(got, err) || got.Error() != err.Error() {
			t.Errorf("%s: %v", payload, got)
		}
	}
	if d.Hide(nil, nil) != nil {
		t.Error("no error became one")
	}
}
