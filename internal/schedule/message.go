package schedule

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"acklast/internal/job"
)

// maxInput is the largest input of a schedule, in bytes.
const maxInput = 256 << 10

// Message is what a schedule sends: a body, all attributes including our own, a message group and a trace
// header, both of which may be empty.
type Message struct {
	Body        string
	Attributes  map[string]job.Attribute
	Group       string
	TraceHeader string
}

// UnfitError: no schedule can carry the message unchanged.
type UnfitError struct {
	// Reason completes the sentence "the message cannot be scheduled: ...".
	Reason string
}

func (e *UnfitError) Error() string { return "the message cannot be scheduled: " + e.Reason }

func unfit(format string, args ...any) error { return &UnfitError{fmt.Sprintf(format, args...)} }

// Fits says whether a schedule can carry the message unchanged; if not, the error is an *UnfitError. The queue's URL is a
// part of the input, and counts.
func (m Message) Fits(queueURL string) error {
	_, err := m.input(queueURL)
	return err
}

// input returns the schedule's input. encoding/json escapes "<" in every string, and all of the input that is
// not ours is in strings.
func (m Message) input(queueURL string) (string, error) {
	in := job.ScheduledSend{QueueURL: queueURL, MessageBody: m.Body, MessageGroupID: m.Group}
	if !utf8.ValidString(m.Body) {
		return "", unfit("its body is not UTF-8")
	}
	for name, a := range m.Attributes {
		switch {
		case strings.HasPrefix(a.Type, "Binary"):
			return "", unfit("its attribute %q is binary", name)
		case !utf8.ValidString(a.String):
			return "", unfit("its attribute %q is not UTF-8", name)
		}
		if in.MessageAttributes == nil {
			in.MessageAttributes = make(map[string]job.ScheduledText, len(m.Attributes))
		}
		in.MessageAttributes[name] = job.ScheduledText{DataType: a.Type, StringValue: a.String}
	}
	if m.TraceHeader != "" {
		in.MessageSystemAttributes = map[string]job.ScheduledText{job.TraceHeader: {DataType: "String", StringValue: m.TraceHeader}}
	}
	encoded, err := json.Marshal(in)
	switch {
	case err != nil:
		return "", unfit("%v", err)
	case len(encoded) > maxInput:
		return "", unfit("its input has %d bytes, more than %d", len(encoded), maxInput)
	}
	return string(encoded), nil
}

// queueOf returns the queue that a schedule's input names, empty if it names none.
func queueOf(input string) string {
	var in job.ScheduledSend
	if err := json.Unmarshal([]byte(input), &in); err != nil {
		return ""
	}
	return in.QueueURL
}
