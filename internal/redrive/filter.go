package redrive

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"acklast/internal/job"
)

// Filter selects messages of the DLQ. Its lists are alternatives, its fields conditions that all hold.
type Filter struct {
	// All says that everything is meant; without any other condition it has to be said.
	All      bool        `json:"all,omitempty"`
	Classes  []job.Class `json:"classes,omitempty"`
	Kinds    []string    `json:"kinds,omitempty"`
	Keys     []string    `json:"keys,omitempty"`
	Subjects []string    `json:"subjects,omitempty"`
	Messages []string    `json:"messages,omitempty"`
	// Fingerprints are errors without what differs from job to job, as a look groups them. ErrorText is a
	// part of the error's text, in any case.
	Fingerprints []string `json:"fingerprints,omitempty"`
	ErrorText    string   `json:"errorText,omitempty"`
	// Attributes are the sender's message attributes, Payload fields of the payload (a.b is b in a), each with
	// the text of its value. Bodies that are not decoded have no payload.
	Attributes map[string]string `json:"attributes,omitempty"`
	Payload    map[string]string `json:"payload,omitempty"`
	// OlderThan and YoungerThan bound the time since the isolation, such as "2h30m" or "7d".
	OlderThan   string `json:"olderThan,omitempty"`
	YoungerThan string `json:"youngerThan,omitempty"`
}

func (f Filter) check() error {
	conditions := len(f.Classes) + len(f.Kinds) + len(f.Keys) + len(f.Subjects) + len(f.Messages) + len(f.Fingerprints) +
		len(f.Attributes) + len(f.Payload)
	if f.ErrorText != "" {
		conditions++
	}
	for name, text := range map[string]string{"olderThan": f.OlderThan, "youngerThan": f.YoungerThan} {
		if text != "" {
			conditions++
			if _, err := parseAge(text); err != nil {
				return refuse("%s is %q, want an age such as 2h30m or 7d", name, text)
			}
		}
	}
	for _, class := range f.Classes {
		if !slices.Contains(classes, class) {
			return refuse("there is no class %q, want one of %s", class, strings.Trim(fmt.Sprint(classes), "[]"))
		}
	}
	switch {
	case conditions == 0 && !f.All:
		return refuse(`the selection is empty: name classes, kinds, keys, subjects, messages, errors or ages, or say "all": true`)
	case conditions > 0 && f.All:
		return refuse(`the selection says "all" and names conditions as well: choose one`)
	}
	return nil
}

var classes = []job.Class{job.Transient, job.Throttled, job.ClassUnknown, job.Invalid, job.Rejected, job.Ambiguous, job.Crashed}

// parseAge reads a duration, which may have days.
func parseAge(text string) (time.Duration, error) {
	days, rest, found := strings.Cut(text, "d")
	if !found {
		days, rest = "0", text
	}
	n, err := strconv.Atoi(days)
	if err != nil {
		return 0, err
	}
	var d time.Duration
	if rest != "" {
		if d, err = time.ParseDuration(rest); err != nil {
			return 0, err
		}
	}
	if d += time.Duration(n) * 24 * time.Hour; d < 0 {
		return 0, errors.New("negative")
	}
	return d, nil
}

// named says whether a message is selected by its id or by its job's key, and not only by what it has in common with
// others.
func (f Filter) named(id, key string) bool {
	return slices.Contains(f.Messages, id) || key != "" && slices.Contains(f.Keys, key)
}

func (f Filter) matches(it item, now time.Time) bool {
	in := func(n int, contains bool) bool { return n == 0 || contains }
	age := now.Sub(it.isolatedAt)
	older, _ := parseAge(f.OlderThan)
	younger, _ := parseAge(f.YoungerThan)
	return it.fits && in(len(f.Classes), slices.Contains(f.Classes, it.class)) &&
		in(len(f.Kinds), slices.Contains(f.Kinds, it.kind)) &&
		in(len(f.Keys), slices.Contains(f.Keys, it.key)) &&
		in(len(f.Subjects), slices.Contains(f.Subjects, it.subject)) &&
		in(len(f.Messages), slices.Contains(f.Messages, it.id)) &&
		in(len(f.Fingerprints), slices.Contains(f.Fingerprints, it.fingerprint)) &&
		strings.Contains(strings.ToLower(it.error), strings.ToLower(f.ErrorText)) &&
		(f.OlderThan == "" || age > older) && (f.YoungerThan == "" || age < younger)
}

// fits checks the conditions on a message that its item does not keep.
func (f Filter) fits(m job.Message, c candidate) bool {
	for name, want := range f.Attributes {
		if a, ok := m.Attributes[name]; !ok || a.String != want {
			return false
		}
	}
	if len(f.Payload) == 0 {
		return true
	}
	var payload any
	if c.readErr != nil || json.Unmarshal(c.read.Envelope.Payload, &payload, json.WithUnmarshalers(exactNumbers)) != nil {
		return false
	}
	for path, want := range f.Payload {
		value := payload
		for name := range strings.SplitSeq(path, ".") {
			object, _ := value.(map[string]any)
			value = object[name]
		}
		if value == nil || fmt.Sprint(value) != want {
			return false
		}
	}
	return true
}

// exactNumbers keeps numbers as they are spelled: an id must not be rounded.
var exactNumbers = json.UnmarshalFromFunc(func(d *jsontext.Decoder, v *any) error {
	if d.PeekKind() != '0' {
		return errors.ErrUnsupported
	}
	token, err := d.ReadValue()
	*v = string(token)
	return err
})
