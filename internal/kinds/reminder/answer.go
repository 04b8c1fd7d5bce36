package reminder

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"acklast"
)

// answer is an HTTP answer. Its body is read apart from its status and headers, so that no body can
// change them.
type answer struct {
	status int
	header http.Header
	// bare says that the body is empty or null, and complete.
	bare bool
	// fields are those of a body that is a JSON object, nil for every other body.
	fields map[string]jsontext.Value
}

// maxAnswer bounds the part of an answer's body that is read, in bytes. A longer body names nothing.
const maxAnswer = 64 << 10

// readAnswer reads an answer. A body that is cut off, too long, or no JSON has no fields and is not bare.
func readAnswer(res *http.Response) answer {
	a := answer{status: res.StatusCode, header: res.Header}
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil || len(text) > maxAnswer {
		return a
	}
	text = bytes.TrimSpace(text)
	switch string(text) {
	case "":
		// HTTP/1 without a length ends a body by closing the connection, and so does a server that dies.
		a.bare = res.ContentLength >= 0 || len(res.TransferEncoding) > 0 || res.ProtoMajor > 1
	case "null":
		a.bare = true
	default:
		var fields map[string]jsontext.Value
		if err := json.Unmarshal(text, &fields); err == nil {
			a.fields = fields
		}
	}
	return a
}

// success says whether the status is one of those for success.
func (a answer) success() bool { return a.status >= 200 && a.status < 300 }

// field returns the first field of one of the names, which are in lower case without separators:
// "requestid" finds requestId, request_id and Request-ID.
func field(fields map[string]jsontext.Value, names ...string) jsontext.Value {
	for _, want := range names {
		var found []string
		for name := range fields {
			if plain(name) == want {
				found = append(found, name)
			}
		}
		if len(found) > 0 {
			return fields[slices.Min(found)]
		}
	}
	return nil
}

var separators = strings.NewReplacer("_", "", "-", "", " ", "", ".", "")

// plain is a word in lower case and without separators.
func plain(word string) string { return separators.Replace(strings.ToLower(strings.TrimSpace(word))) }

// named returns the id by which an answer names the request under the key: the provider's own id, or the key if
// the provider repeats it. It returns "" for an answer that names another request or none. denied says that the
// answer says anything else than that the request was accepted.
func (a answer) named(key string) (id string, denied bool) {
	for i, fields := range a.objects() {
		for _, name := range errorNames {
			denied = denied || filled(field(fields, name))
		}
		for _, name := range verdictNames {
			v := field(fields, name)
			wraps := i == 0 && v.Kind() == '{' && slices.Contains(wrappers, name)
			denied = denied || !wraps && !yes(v)
		}
		repeated := text(field(fields, "idempotencykey", "key"))
		if repeated != "" && repeated != key {
			return "", denied
		}
		if id == "" {
			id = scalar(field(fields, idNames...))
		}
		if id == "" {
			id = repeated
		}
	}
	return id, denied
}

// The fields of an answer, in lower case and without separators.
var (
	// idNames are the fields that name a request.
	idNames = []string{"requestid", "messageid", "id", "sid", "messagesid", "uuid", "messageuuid"}
	// errorNames are the fields that an answer about an accepted request has not, or leaves empty.
	errorNames = []string{"error", "errors", "errorcode", "errormessage", "failed", "failure", "rejected", "reason"}
	// verdictNames are the fields that such an answer has not, leaves empty, or fills with a yes. A message in
	// words and a code are about the request's fate, too.
	verdictNames = []string{"status", "state", "result", "success", "ok", "accepted", "found", "exists", "code", "message"}
	// yesWords are the words by which an answer says that a request was accepted.
	yesWords = []string{
		"true", "yes", "ok", "success", "successful", "succeeded", "accepted", "created", "received", "submitted", "scheduled", "pending", "queued",
		"enqueued", "buffered", "processing", "inprogress", "processed", "sending", "sent", "dispatched", "delivered", "opened", "read", "completed", "done",
	}
)

// yes says whether a field is absent or empty, or says that the request was accepted.
func yes(v jsontext.Value) bool {
	switch v.Kind() {
	case '{', '[', 'f':
		return false
	case '0':
		status, err := strconv.Atoi(string(v))
		return err == nil && status >= 200 && status < 300
	}
	word := plain(text(v))
	return word == "" || slices.Contains(yesWords, word)
}

// wrappers are the fields that providers wrap a request in, as an object or as a list of one.
var wrappers = []string{"data", "result", "message", "messages", "request"}

// objects are the answer's object and the objects that providers wrap a request in.
func (a answer) objects() []map[string]jsontext.Value {
	if a.fields == nil {
		return nil
	}
	all := []map[string]jsontext.Value{a.fields}
	for _, name := range wrappers {
		v := field(a.fields, name)
		var inner map[string]jsontext.Value
		var list []map[string]jsontext.Value
		switch v.Kind() {
		case '{':
			if json.Unmarshal(v, &inner) == nil {
				all = append(all, inner)
			}
		case '[':
			if json.Unmarshal(v, &list) == nil && len(list) == 1 {
				all = append(all, list[0])
			}
		}
	}
	return all
}

// scalar reads an id, a string or a number. Zero counts as not filled in.
func scalar(v jsontext.Value) string {
	switch v.Kind() {
	case '"':
		return text(v)
	case '0':
		if n, err := strconv.ParseFloat(string(v), 64); err != nil || n == 0 {
			return ""
		}
		return string(v)
	}
	return ""
}

// text reads a string, and any other scalar as it is written; "" for every other value.
func text(v jsontext.Value) string {
	var s string
	switch v.Kind() {
	case '"':
		if json.Unmarshal(v, &s) != nil {
			return ""
		}
	case 't', 'f', '0':
		s = string(v)
	}
	return strings.TrimSpace(s)
}

// filled says whether a field has a value: not absent, null, false, zero or empty.
func filled(v jsontext.Value) bool {
	switch v.Kind() {
	case '{', '[':
		return len(bytes.TrimSpace(v[1:len(v)-1])) > 0
	case '0':
		return scalar(v) != ""
	}
	return text(v) != "" && v.Kind() != 'f'
}

// code is the error code of the provider's protocol, or "" if the answer has none. A proxy may have written it.
func (a answer) code() string {
	if v := a.fields["error"]; v.Kind() == '"' {
		return text(v)
	}
	return ""
}

// refuses says whether the status is one with which a provider refuses a request. It does not if another request under
// the key may be at work (409), or if the reading of this one was given up (408).
func (a answer) refuses() bool {
	switch a.status {
	case http.StatusRequestTimeout, http.StatusConflict:
		return false
	}
	return a.status >= 400 && a.status < 500 || a.status == http.StatusServiceUnavailable
}

// declined is the outcome of a request that the provider refused for good, or "".
func (a answer) declined() string {
	switch {
	case !a.refuses() || a.status >= 500 || a.status == http.StatusTooManyRequests:
	case a.code() == codeInvalidRecipient:
		return InvalidRecipient
	case a.code() == codeUnsubscribed:
		return Unsubscribed
	}
	return ""
}

// refusal is the error of an answer that is no success. Only the codes that the configuration declares prove that the
// request was not accepted. A service mesh answers 503, and a gateway any other error, also for a request that it has
// passed on, in a body that may look like the provider's own.
func (a answer) refusal(declared []string, now time.Time) error {
	if outcome := a.declined(); outcome != "" {
		return acklast.Declined(outcome)
	}
	own := a.refuses() && slices.Contains(declared, a.code())
	err := fmt.Errorf("provider answered %d", a.status)
	if a.refuses() && a.code() != "" && !own {
		// The code is not quoted, since it may be any text.
		err = fmt.Errorf("%w with an error code that %s does not name", err, EnvRefusals)
	}
	wait := retryAfter(a.header.Get("Retry-After"), now)
	switch {
	case a.status == http.StatusTooManyRequests, a.status == http.StatusServiceUnavailable && wait > 0:
		err = acklast.Throttled(err, wait)
	case !own, a.status == http.StatusServiceUnavailable,
		a.status == http.StatusUnauthorized, a.status == http.StatusForbidden, a.status == http.StatusTooEarly:
		err = acklast.Transient(err)
	default:
		err = acklast.Rejected("%w", err)
	}
	if own {
		return acklast.Unsent(err)
	}
	return err
}

// ofAnyone says whether a code is the text of a status, with which frameworks and proxies answer too. That of 503 is
// one in every spelling: it is the answer of a mesh for a request that it has passed on.
func ofAnyone(code string) bool {
	for status := 400; status < 600; status++ {
		if code == http.StatusText(status) {
			return true
		}
	}
	return plain(code) == plain(http.StatusText(http.StatusServiceUnavailable))
}

// maxRetryAfter bounds the wait that a provider may ask for. People decide about longer waits.
const maxRetryAfter = 24 * time.Hour

// retryAfter reads a Retry-After header: seconds or an HTTP date. A header that is neither counts as none.
func retryAfter(v string, now time.Time) time.Duration {
	v = strings.TrimSpace(v)
	if s, err := strconv.ParseInt(v, 10, 64); err == nil {
		if s > int64(maxRetryAfter/time.Second) {
			return maxRetryAfter
		}
		return max(time.Duration(s)*time.Second, 0)
	}
	if at, err := http.ParseTime(v); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	return 0
}
