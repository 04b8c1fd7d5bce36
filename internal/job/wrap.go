package job

import (
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// ErrProbe: the body is a service's test message and carries no job. It only needs to be acknowledged.
var ErrProbe = errors.New("a service's test message, not a job")

// probes are the test events that a service sends to a queue when people set the service up to send to it. Such
// a message has no other content.
var probes = map[string]bool{
	"s3:TestEvent":                  true,
	"autoscaling:TEST_NOTIFICATION": true,
}

// The wrappers, as errors name them.
const (
	bySNS         = "SNS notification"
	byEventBridge = "EventBridge event"
)

// wire is one JSON object of any of three forms: a job, a job in a wrapper, or a probe. SNS wraps a job as text
// (unless the subscription has raw delivery), EventBridge as an object.
//
// One name alone does not make an object a wrapper, since a job may have other fields of any name. An object
// with the marks of a wrapper is Invalid if it does not fit the wrapper in every point, or if it could also be
// read as a job. Reading half of it would run another job than the sender meant.
type wire struct {
	Envelope

	// The fields of SNS.
	Type     jsontext.Value `json:"Type"`
	TopicArn jsontext.Value `json:"TopicArn"`
	Message  jsontext.Value `json:"Message"`
	// The fields of EventBridge.
	DetailType jsontext.Value `json:"detail-type"`
	Source     jsontext.Value `json:"source"`
	Detail     jsontext.Value `json:"detail"`
	// The fields of a probe.
	Event jsontext.Value `json:"Event"`
}

func (w *wire) sns() bool {
	if w.TopicArn != nil {
		return true
	}
	switch text(w.Type) {
	case "Notification", "SubscriptionConfirmation", "UnsubscribeConfirmation":
		return w.Message != nil
	}
	return false
}

func (w *wire) eventBridge() bool {
	return w.DetailType != nil || w.Source != nil && w.Detail != nil
}

// unwrap returns the body inside a wrapper, and nil if the object is no wrapper.
func (w *wire) unwrap() (inner []byte, wrapper string, err error) {
	sns, eventBridge, probe := w.sns(), w.eventBridge(), probes[text(w.Event)]
	marks := 0
	for _, is := range []bool{sns, eventBridge, probe, w.Kind != "" || w.Payload != nil} {
		if is {
			marks++
		}
	}
	switch {
	case !sns && !eventBridge && !probe:
		return nil, "", nil
	case marks > 1:
		return nil, "", invalid("body could be read as a job and as a wrapper of one, or as two wrappers: want one of them")
	case probe:
		return nil, "", ErrProbe
	case sns:
		return w.notification()
	}
	return w.event()
}

func (w *wire) notification() (inner []byte, wrapper string, err error) {
	switch kind := text(w.Type); {
	case kind == "SubscriptionConfirmation" || kind == "UnsubscribeConfirmation":
		// People have to decide about the subscription, and the message holds the link to do so. So keep it
		// where they look: on the DLQ.
		return nil, "", invalid("an SNS %s, not a job: open the SubscribeURL in the body if you want the subscription", kind)
	case kind != "Notification":
		return nil, "", invalid("SNS message without the Type Notification")
	case text(w.TopicArn) == "":
		return nil, "", invalid("%s without a TopicArn", bySNS)
	case w.Message.Kind() != '"':
		return nil, "", invalid("%s whose Message is missing or not a text", bySNS)
	}
	return []byte(text(w.Message)), bySNS, nil
}

func (w *wire) event() (inner []byte, wrapper string, err error) {
	switch {
	case text(w.DetailType) == "" || text(w.Source) == "":
		return nil, "", invalid("%s without detail-type or source", byEventBridge)
	case w.Detail.Kind() != '{':
		return nil, "", invalid("%s whose detail is missing or not an object", byEventBridge)
	}
	return w.Detail, byEventBridge, nil
}

// text returns a JSON string's text, and "" for every other value.
func text(v jsontext.Value) string {
	if v.Kind() != '"' {
		return ""
	}
	var s string
	if json.Unmarshal(v, &s) != nil {
		return ""
	}
	return s
}
