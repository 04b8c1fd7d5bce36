package job

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

const plain = `{"kind":"k","notBefore":"2026-12-01T10:00:00Z","payload":{"n":9007199254740993,"s":"ü\"\\"}}`

// bySNSOf returns the body that SNS puts into a queue for a message, without raw delivery.
func bySNSOf(message string) string {
	text, err := json.Marshal(message)
	if err != nil {
		panic(err)
	}
	return `{"Type":"Notification","MessageId":"22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324",` +
		`"TopicArn":"arn:aws:sns:eu-central-1:123456789012:jobs","Subject":"a job","Message":` + string(text) + `,` +
		`"Timestamp":"2026-12-01T09:59:00.000Z","SignatureVersion":"1","Signature":"x","SigningCertURL":"https://x","UnsubscribeURL":"https://x",` +
		`"MessageAttributes":{"tenant":{"Type":"String","Value":"12"}}}`
}

// byEventBridgeOf returns the body that an EventBridge rule puts into a queue for an event.
func byEventBridgeOf(detail string) string {
	return `{"version":"0","id":"17793124-05d4-b198-2fde-7ededc63b103","detail-type":"hold placed","source":"booking",` +
		`"account":"123456789012","time":"2026-12-01T09:59:00Z","region":"eu-central-1","resources":[],"detail":` + detail + `}`
}

const testEvent = `{"Service":"Amazon S3","Event":"s3:TestEvent","Time":"2026-12-01T09:59:00.000Z","Bucket":"b","RequestId":"5582815E1AEA5ADF","HostId":"8cLeGAmw098X5cv4Zkwcmo8vvZa3eH3eKxsPzbB9wrR"}`

func TestAWrappedJobIsTheJob(t *testing.T) {
	want, err := Decode([]byte(plain))
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string]string{"SNS": bySNSOf(plain), "EventBridge": byEventBridgeOf(plain), "SNS, spaced": bySNSOf(" " + plain + "\n")} {
		got, err := Decode([]byte(body))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got.Kind != want.Kind || !got.NotBefore.Equal(want.NotBefore) || string(got.Payload) != string(want.Payload) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// A sender's own fields may have any name, as long as they do not look like a wrapper.
func TestFieldsOfTheSendersAreNoWrapper(t *testing.T) {
	for _, field := range []string{
		`"Message":"x"`, `"source":"booking"`, `"detail":{"a":1}`, `"Type":"Notification"`, `"Type":7`, `"Event":"held"`, `"Event":null`, `"Service":"Amazon S3"`,
	} {
		if _, err := Decode([]byte(`{"kind":"k","payload":{},` + field + `}`)); err != nil {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestProbesAreNoJobs(t *testing.T) {
	scaling := `{"Service":"AWS Auto Scaling","Event":"autoscaling:TEST_NOTIFICATION","AccountId":"123456789012","AutoScalingGroupName":"g"}`
	for _, body := range []string{testEvent, scaling, bySNSOf(testEvent), byEventBridgeOf(scaling)} {
		if e, err := Decode([]byte(body)); !errors.Is(err, ErrProbe) || e.Kind != "" {
			t.Errorf("%.60s: %+v, %v", body, e, err)
		}
	}
}

func TestHalfAndDoubleWrappedAreInvalid(t *testing.T) {
	without := func(body, field string) string {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal([]byte(body), &fields); err != nil || fields[field] == nil {
			t.Fatalf("%s has no %s: %v", body, field, err)
		}
		delete(fields, field)
		b, _ := json.Marshal(fields)
		return string(b)
	}
	with := func(body, member string) string { return strings.Replace(body, "{", "{"+member+",", 1) }
	sns, bridge := bySNSOf(plain), byEventBridgeOf(plain)
	tests := []struct{ name, body, want string }{
		{"SNS in SNS", bySNSOf(sns), "wrapped once"},
		{"EventBridge through SNS", bySNSOf(bridge), "an EventBridge event in an SNS notification"},
		{"SNS through EventBridge", byEventBridgeOf(sns), "wrapped once"},
		{"three times", bySNSOf(bySNSOf(sns)), "wrapped once"},
		{"SNS, no Type", without(sns, "Type"), "without the Type"},
		{"SNS, no TopicArn", without(sns, "TopicArn"), "without a TopicArn"},
		{"SNS, no Message", without(sns, "Message"), "Message is missing"},
		{"SNS, Message an object", strings.Replace(without(sns, "Message"), "{", `{"Message":`+plain+",", 1), "not a text"},
		{"SNS, not a job", bySNSOf("hello"), "in the SNS notification: body is not a JSON object"},
		{"SNS, empty", bySNSOf(""), "body is empty"},
		{"SNS, cut off", bySNSOf(plain[:20]), "not valid JSON"},
		{"SNS, text that is no Unicode", strings.Replace(sns, `"Message":"`, `"Message":"\ud800`, 1), "not valid JSON"},
		{"SNS, a confirmation", strings.Replace(sns, `"Notification"`, `"SubscriptionConfirmation"`, 1), "SubscribeURL"},
		{"SNS, beside a job", with(sns, `"kind":"k","payload":{}`), "could be read as"},
		{"SNS, beside half a job", with(sns, `"payload":null`), "could be read as"},
		{"SNS and EventBridge", with(sns, `"detail-type":"x"`), "could be read as"},
		{"SNS and probe", with(sns, `"Event":"s3:TestEvent"`), "could be read as"},
		{"probe and job", with(testEvent, `"kind":"k","payload":{}`), "could be read as"},
		{"EventBridge, no detail", without(bridge, "detail"), "detail is missing"},
		{"EventBridge, no detail-type", without(bridge, "detail-type"), "without detail-type"},
		{"EventBridge, no source", without(bridge, "source"), "without detail-type or source"},
		{"EventBridge, detail a text", byEventBridgeOf(`"x"`), "not an object"},
		{"EventBridge, detail empty", byEventBridgeOf(`{}`), "in the EventBridge event: kind is missing"},
		{"EventBridge, beside a job", with(bridge, `"kind":"k"`), "could be read as"},
		{"a wrapper in the payload", `{"kind":"k","payload":` + sns + `,"TopicArn":"x"}`, "could be read as"},
		{"duplicate names inside", byEventBridgeOf(`{"kind":"k","kind":"l","payload":{}}`), "stands twice"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Decode([]byte(tt.body))
			var f *Failure
			if !errors.As(err, &f) || f.Class != Invalid || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s\n%v, want an invalid failure that says %q", tt.body, err, tt.want)
			}
		})
	}
}
