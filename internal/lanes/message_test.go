package lanes_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"pgregory.net/rapid"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/topology"
)

func TestSplit(t *testing.T) {
	sender := map[string]job.Attribute{"a": {Type: "String", String: "1"}, "Acklast": {Type: "String", String: "not ours"}}
	with := func(own job.Attribute) map[string]job.Attribute {
		m := maps.Clone(sender)
		m[job.MemoryAttribute] = own
		return m
	}
	valid, err := job.Memory{Attempt: 2, Contentions: 1}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		in      map[string]job.Attribute
		sender  map[string]job.Attribute
		memory  job.Memory
		wantErr bool
	}{
		{"none", nil, nil, job.Memory{}, false},
		{"without ours", sender, sender, job.Memory{}, false},
		{"with ours", with(valid), sender, job.Memory{Attempt: 2, Contentions: 1}, false},
		{"only ours", map[string]job.Attribute{job.MemoryAttribute: valid}, nil, job.Memory{Attempt: 2, Contentions: 1}, false},
		{"malformed", with(job.Attribute{Type: "String", String: `{"attempt":"x"}`}), sender, job.Memory{}, true},
		{"wrong type", with(job.Attribute{Type: "Binary", Binary: []byte("{}")}), sender, job.Memory{}, true},
		{"forged count", with(job.Attribute{Type: "String", String: `{"attempt":-1}`}), sender, job.Memory{}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := maps.Clone(c.in)
			got, memory, err := lanes.Split(c.in)
			if fmt.Sprint(got) != fmt.Sprint(c.sender) || memory != c.memory || (err != nil) != c.wantErr {
				t.Errorf("got %v, %+v, %v", got, memory, err)
			}
			if fmt.Sprint(before) != fmt.Sprint(c.in) {
				t.Errorf("the input was changed to %v", c.in)
			}
		})
	}
}

func TestReadSystem(t *testing.T) {
	for _, c := range []struct {
		in   map[string]string
		want job.Message
	}{
		{nil, job.Message{}},
		{map[string]string{"SentTimestamp": "1764583200123", "ApproximateReceiveCount": "3", "MessageGroupId": "g", "AWSTraceHeader": "t"},
			job.Message{SentAt: time.UnixMilli(1764583200123).UTC(), ReceiveCount: 3, Group: "g", TraceHeader: "t"}},
		{map[string]string{"SentTimestamp": "soon", "ApproximateReceiveCount": ""}, job.Message{}},
	} {
		var m job.Message
		lanes.ReadSystem(&m, c.in)
		if fmt.Sprintf("%+v", m) != fmt.Sprintf("%+v", c.want) {
			t.Errorf("%v: got %+v, want %+v", c.in, m, c.want)
		}
	}
}

// recorder is an API that records its requests and lets a function make the answers.
type recorder struct {
	lanes.API
	calls  [][]types.SendMessageBatchRequestEntry
	answer func(call int, e []types.SendMessageBatchRequestEntry) (*sqs.SendMessageBatchOutput, error)
}

func (r *recorder) SendMessageBatch(_ context.Context, in *sqs.SendMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.SendMessageBatchOutput, error) {
	r.calls = append(r.calls, in.Entries)
	if r.answer == nil {
		out := &sqs.SendMessageBatchOutput{}
		for _, e := range in.Entries {
			out.Successful = append(out.Successful, types.SendMessageBatchResultEntry{Id: e.Id})
		}
		return out, nil
	}
	return r.answer(len(r.calls)-1, in.Entries)
}

// wireSize counts the size of an entry as SQS does, from the request itself.
func wireSize(e types.SendMessageBatchRequestEntry) int {
	n := len(*e.MessageBody)
	for name, a := range e.MessageAttributes {
		n += len(name) + len(*a.DataType) + len(aws.ToString(a.StringValue)) + len(a.BinaryValue)
	}
	return n
}

func sendOne(t *testing.T, m job.Message) types.SendMessageBatchRequestEntry {
	t.Helper()
	r := &recorder{}
	if err := lanes.New(r, urls).Send(t.Context(), job.DLQ, []lanes.Move{{Message: m}})[0]; err != nil {
		t.Fatal(err)
	}
	return r.calls[0][0]
}

// The memory of a DLQ message, with an error text of full length.
var memory = job.Memory{Attempt: 4, MessageID: "m-0", Class: job.Transient, Cause: job.CauseAttempts, Error: strings.Repeat("e", 512)}

func ownSize(t *testing.T, m job.Memory) int {
	t.Helper()
	a, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return len(job.MemoryAttribute) + len(a.Type) + len(a.String)
}

func TestOurAttributeYieldsToTheSender(t *testing.T) {
	short := memory
	short.Error = ""
	full, least := ownSize(t, memory), ownSize(t, short)
	attributes := func(n int) map[string]job.Attribute {
		m := map[string]job.Attribute{}
		for i := range n {
			m[fmt.Sprint("a", i)] = job.Attribute{Type: "Binary.x", Binary: []byte{1}}
		}
		return m
	}
	const each = 2 + 8 + 1 // name, type, value
	for _, c := range []struct {
		name  string
		body  int
		attrs int
		want  job.Memory
	}{
		{"room for all of it", topology.MaxMessageBytes - full, 0, memory},
		{"a byte short: without the error text", topology.MaxMessageBytes - full + 1, 0, short},
		{"room without the error text", topology.MaxMessageBytes - least, 0, short},
		{"a byte short: without ours", topology.MaxMessageBytes - least + 1, 0, job.Memory{}},
		{"no room", topology.MaxMessageBytes, 0, job.Memory{}},
		{"nine attributes", 10, 9, memory},
		{"ten attributes", 10, 10, job.Memory{}},
		{"attributes count as bytes", topology.MaxMessageBytes - 9*each - full, 9, memory},
		{"attributes count as bytes, a byte short", topology.MaxMessageBytes - 9*each - least + 1, 9, job.Memory{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := job.Message{Body: strings.Repeat("x", c.body), Attributes: attributes(c.attrs), Memory: memory}
			e := sendOne(t, m)
			own, ok := e.MessageAttributes[job.MemoryAttribute]
			if fits := lanes.Fits(m); fits != ok || fits != (c.want != job.Memory{}) {
				t.Errorf("Fits says %v, sent is %v", fits, ok)
			}
			size, err := lanes.SizeOf(short)
			if err != nil {
				t.Fatal(err)
			}
			if room := lanes.HasRoom(m, size); room != ok {
				t.Errorf("HasRoom says %v for %d bytes, sent is %v", room, size, ok)
			}
			var got job.Memory
			if ok {
				got, err = job.ParseMemory(job.Attribute{Type: *own.DataType, String: *own.StringValue})
			}
			if err != nil || got != c.want {
				t.Errorf("memory is %+v: %v", got, err)
			}
			if *e.MessageBody != m.Body || len(e.MessageAttributes) != c.attrs+map[bool]int{true: 1}[ok] {
				t.Errorf("body of %d bytes, %d attributes", len(*e.MessageBody), len(e.MessageAttributes))
			}
			if n := wireSize(e); n > topology.MaxMessageBytes {
				t.Errorf("%d bytes were sent", n)
			}
		})
	}
}

func TestNothingToRememberAlwaysFits(t *testing.T) {
	m := job.Message{Body: strings.Repeat("x", topology.MaxMessageBytes)}
	if !lanes.Fits(m) {
		t.Error("a message without memory does not fit")
	}
	if e := sendOne(t, m); e.MessageAttributes != nil {
		t.Errorf("attributes are %v", e.MessageAttributes)
	}
	// Our own attribute among the sender's is not counted: it is replaced.
	m = job.Message{Body: "x", Memory: memory, Attributes: map[string]job.Attribute{
		job.MemoryAttribute: {Type: "Binary", Binary: make([]byte, topology.MaxMessageBytes)}}}
	if !lanes.Fits(m) {
		t.Error("a stale attribute of ours was counted")
	}
	if e := sendOne(t, m); len(e.MessageAttributes) != 1 || *e.MessageAttributes[job.MemoryAttribute].DataType != "String" {
		t.Errorf("attributes are %v", e.MessageAttributes)
	}
}

// A forged memory that SQS would refuse must not keep its message from being sent.
func TestAMemoryThatSQSWouldRefuseStaysBehind(t *testing.T) {
	for _, run := range []string{"\uFFFE", "\uFFFF", "\xff"} {
		m := job.Message{Body: "x", Memory: job.Memory{Attempt: 1, Run: run}}
		if lanes.Fits(m) {
			t.Errorf("%q fits", run)
		}
		if e := sendOne(t, m); e.MessageAttributes != nil {
			t.Errorf("%q was sent", run)
		}
	}
	for _, run := range []string{"\t\n\x7f", "\uFFFD", "𝄞", "\u2028"} {
		m := job.Message{Body: "x", Memory: job.Memory{Attempt: 1, Run: run}}
		a := sendOne(t, m).MessageAttributes[job.MemoryAttribute]
		got, err := job.ParseMemory(job.Attribute{Type: aws.ToString(a.DataType), String: aws.ToString(a.StringValue)})
		if err != nil || got.Run != run || strings.ContainsFunc(*a.StringValue, func(r rune) bool { return r < 0x20 }) {
			t.Errorf("%q became %q: %v", run, got.Run, err)
		}
	}
}

func TestSendStopsAtACancelledContext(t *testing.T) {
	r := &recorder{answer: func(int, []types.SendMessageBatchRequestEntry) (*sqs.SendMessageBatchOutput, error) {
		return nil, fmt.Errorf("operation: %w", context.DeadlineExceeded)
	}}
	errs := lanes.New(r, urls).Send(t.Context(), job.DLQ, bodies(2))
	for _, err := range errs {
		if !errors.Is(err, lanes.ErrUnsent) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error is %v", err)
		}
	}
}

// For any moves and any answers of SQS: every call keeps SQS's limits, the order is that of the input, the
// sender's bytes are untouched, and each result belongs to its own message.
func TestSendProperties(t *testing.T) {
	big := strings.Repeat("x", topology.MaxMessageBytes+2)
	size := rapid.OneOf(
		rapid.IntRange(0, 400),
		rapid.IntRange(80_000, 400_000),
		rapid.IntRange(topology.MaxMessageBytes-1200, topology.MaxMessageBytes+2),
	)
	attribute := rapid.Custom(func(t *rapid.T) job.Attribute {
		a := job.Attribute{Type: rapid.SampledFrom([]string{"String", "Number", "Number.int", "Binary", "Binary.png", "String.x", "Binaryish"}).Draw(t, "type")}
		n := rapid.OneOf(rapid.IntRange(1, 20), rapid.IntRange(1, 60_000)).Draw(t, "bytes")
		if a.Type == "Binary" || a.Type == "Binary.png" {
			a.Binary = []byte(big[:n])
		} else {
			a.String = big[:n]
		}
		return a
	})
	move := rapid.Custom(func(t *rapid.T) lanes.Move {
		m := job.Message{
			Body:        big[:size.Draw(t, "body")],
			Group:       rapid.SampledFrom([]string{"", "g"}).Draw(t, "group"),
			TraceHeader: rapid.SampledFrom([]string{"", "Root=1-a-b"}).Draw(t, "trace"),
			Attributes:  map[string]job.Attribute{},
		}
		for i := range rapid.IntRange(0, 11).Draw(t, "attributes") {
			m.Attributes[fmt.Sprint("a", i)] = attribute.Draw(t, "attribute")
		}
		if rapid.Bool().Draw(t, "stale") {
			m.Attributes[job.MemoryAttribute] = attribute.Draw(t, "own")
		}
		if rapid.Bool().Draw(t, "memory") {
			m.Memory = job.Memory{Attempt: rapid.IntRange(0, 20).Draw(t, "attempt"), Error: big[:rapid.IntRange(0, 600).Draw(t, "error")]}
		}
		return lanes.Move{Message: m, Delay: time.Duration(rapid.Int64Range(-1, 2000_000).Draw(t, "ms")) * time.Millisecond}
	})
	rapid.Check(t, func(t *rapid.T) {
		moves := rapid.SliceOfN(move, 0, 25).Draw(t, "moves")
		// The group may have any value, so here it is the index of the input.
		for i := range moves {
			moves[i].Message.Group = fmt.Sprint(i)
		}
		confirmed, refused := map[string]bool{}, map[string]string{}
		r := &recorder{}
		r.answer = func(_ int, entries []types.SendMessageBatchRequestEntry) (*sqs.SendMessageBatchOutput, error) {
			if rapid.IntRange(0, 5).Draw(t, "call") == 0 {
				for _, e := range entries {
					refused[*e.MessageGroupId] = "call"
				}
				return nil, errors.New("call")
			}
			out := &sqs.SendMessageBatchOutput{}
			for _, e := range entries {
				id := *e.MessageGroupId
				switch fate := rapid.SampledFrom([]string{"", "", "", "failed", lanes.CodeUnanswered}).Draw(t, "fate"); fate {
				case "":
					confirmed[id] = true
					out.Successful = append(out.Successful, types.SendMessageBatchResultEntry{Id: e.Id})
				case "failed":
					refused[id] = "no-" + id
					out.Failed = append(out.Failed, types.BatchResultErrorEntry{Id: e.Id, Code: aws.String("no-" + id)})
				default:
					refused[id] = fate
				}
			}
			return out, nil
		}
		errs := lanes.New(r, urls).Send(context.Background(), job.Recovery, moves)
		if len(errs) != len(moves) {
			t.Fatalf("%d results for %d moves", len(errs), len(moves))
		}
		last := -1
		for k, call := range r.calls {
			total, seen := 0, map[string]bool{}
			for _, e := range call {
				total += wireSize(e)
				if seen[*e.Id] {
					t.Fatalf("id %s stands twice in one call", *e.Id)
				}
				seen[*e.Id] = true
				var i int
				if _, err := fmt.Sscan(*e.MessageGroupId, &i); err != nil || i <= last {
					t.Fatalf("entry %s after %d: order is lost, or it was sent twice", *e.MessageGroupId, last)
				}
				last = i
				checkEntry(t, moves[i], e)
			}
			if len(call) == 0 || len(call) > topology.MaxSendBatch || total > topology.MaxMessageBytes {
				t.Fatalf("a call has %d entries and %d bytes", len(call), total)
			}
			// There are as few calls as the limits allow for messages that keep their order.
			if k > 0 && len(r.calls[k-1]) < topology.MaxSendBatch {
				before := wireSize(call[0])
				for _, e := range r.calls[k-1] {
					before += wireSize(e)
				}
				if before <= topology.MaxMessageBytes {
					t.Fatalf("call %d would have had room for the next entry", k-1)
				}
			}
		}
		for i, err := range errs {
			id := fmt.Sprint(i)
			var e *lanes.Error
			switch {
			case confirmed[id] != (err == nil):
				t.Fatalf("move %d: confirmed is %v, error is %v", i, confirmed[id], err)
			case err == nil:
			case !errors.Is(err, lanes.ErrUnsent) || !errors.As(err, &e):
				t.Fatalf("move %d: error is %v", i, err)
			case refused[id] != "" && !strings.HasSuffix(err.Error(), refused[id]):
				t.Fatalf("move %d: error is %v, want %s", i, err, refused[id])
			case refused[id] == "" && legal(moves[i].Message):
				t.Fatalf("move %d was never sent: %v", i, err)
			}
		}
	})
}

// legal says whether SQS would take the message without our attribute.
func legal(m job.Message) bool {
	n, count := len(m.Body), 0
	for name, a := range m.Attributes {
		if name != job.MemoryAttribute {
			n += len(name) + len(a.Type) + len(a.String) + len(a.Binary)
			count++
		}
	}
	return m.Body != "" && n <= topology.MaxMessageBytes && count <= topology.MaxAttributes
}

func checkEntry(t *rapid.T, mv lanes.Move, e types.SendMessageBatchRequestEntry) {
	m := mv.Message
	if *e.MessageBody != m.Body || aws.ToString(e.MessageSystemAttributes["AWSTraceHeader"].StringValue) != m.TraceHeader {
		t.Fatalf("entry %s: body or trace header changed", *e.MessageGroupId)
	}
	if d := time.Duration(e.DelaySeconds) * time.Second; d < min(mv.Delay, topology.MaxDelay) || d > topology.MaxDelay || d >= max(mv.Delay, 0)+time.Second {
		t.Fatalf("entry %s: %v became %v", *e.MessageGroupId, mv.Delay, d)
	}
	if len(e.MessageAttributes) > topology.MaxAttributes {
		t.Fatalf("entry %s has %d attributes", *e.MessageGroupId, len(e.MessageAttributes))
	}
	for name, a := range m.Attributes {
		if name == job.MemoryAttribute {
			continue
		}
		got, ok := e.MessageAttributes[name]
		if !ok || *got.DataType != a.Type || aws.ToString(got.StringValue) != a.String || string(got.BinaryValue) != string(a.Binary) {
			t.Fatalf("entry %s: attribute %s changed", *e.MessageGroupId, name)
		}
	}
	_, sent := e.MessageAttributes[job.MemoryAttribute]
	if want := lanes.Fits(m) && m.Memory != (job.Memory{}); sent != want {
		t.Fatalf("entry %s: our attribute was sent: %v, want %v", *e.MessageGroupId, sent, want)
	}
}
