package e2e_test

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"testing"
)

// The search of every test's logs would find what it searches for.
func TestTheSearchOfTheLogsFinds(t *testing.T) {
	needsEmbedded(t) // whose logs are searched; elsewhere nothing is
	recipient := "x-" + recipientMark + "@example.test"
	body := `{"kind":"k","payload":{"id":"1"}}`
	for name, log := range map[string]string{
		"recipient": "sent to " + recipient, "recipient in a URL": url.QueryEscape(recipient), "recipient in base64": base64.StdEncoding.EncodeToString([]byte(recipient)),
		"body": "got " + body, "body in JSON": fmt.Sprintf("%q", body), "body in JSON in JSON": fmt.Sprintf("%q", fmt.Sprintf("%q", body)),
	} {
		if len(secrets(log)) != 1 {
			t.Errorf("%s: found %q in %s", name, secrets(log), log)
		}
	}
	if found := secrets(`{"message":"delivery","key":"reminder.send/r-1","error":"payload: commandId is missing"}`); found != nil {
		t.Errorf("found %q where nothing is", found)
	}
}
