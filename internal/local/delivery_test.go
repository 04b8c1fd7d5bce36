package local

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"acklast/internal/job"
	"acklast/internal/topology"
)

func TestSuccessIsDeletedAndSeenOnce(t *testing.T) {
	t.Parallel()
	f := start(t, patient())
	var ids []string
	for n := range 25 {
		ids = append(ids, f.send(job.Source, fmt.Sprint("ok ", n))...)
	}
	ids = append(ids, f.send(job.Recovery, "ok recovery")...)
	f.awaitEmpty(job.Source)
	f.awaitEmpty(job.Recovery)
	for _, id := range ids {
		if n := len(f.of(id)); n != 1 {
			t.Errorf("message %s seen %d times", id, n)
		}
	}
}

func TestOnlyWhatFailedComesBack(t *testing.T) {
	t.Parallel()
	f := start(t, quick())
	ids := f.send(job.Source, "ok 1", "fail 2", "ok 3")
	first := f.await(t, ids[1], 1)
	if len(first.records) != 3 {
		t.Fatalf("a batch of %d, want 3", len(first.records))
	}
	f.awaitIdle(10 * time.Second)
	if waiting, inFlight := f.counts(job.Source); waiting != 0 || inFlight != 1 {
		t.Fatalf("%d waiting and %d in flight, want the failed one in flight", waiting, inFlight)
	}
	second := f.await(t, ids[1], 2)
	if len(second.records) != 1 || second.records[0].Attributes["ApproximateReceiveCount"] != "2" {
		t.Errorf("came back as %+v", second.records)
	}
	// SQS counts from the receive, which is earlier than the sighting: allow for that.
	if after := second.at.Sub(first.at); after < 5*time.Second {
		t.Errorf("came back after %v, before its visibility timeout", after)
	}
}

func TestResponsesThatConfirmNothingAndAll(t *testing.T) {
	t.Parallel()
	f := start(t, patient())
	for _, tt := range []struct {
		body string
		left int
	}{
		{`raw null`, 0},
		{`raw {}`, 0},
		{`raw {"batchItemFailures":null}`, 0},
		{`raw `, 0}, // an empty response
		{`raw oops`, 2},
		{`raw {"batchItemFailures":[{"itemIdentifier":""}]}`, 2},
		{`raw {"batchItemFailures":[{"itemIdentifier":"not-mine"}]}`, 2},
		{`error`, 2},
		{`panic`, 2},
	} {
		_, before := f.counts(job.Source)
		ids := f.send(job.Source, tt.body, "ok")
		f.await(t, ids[1], 1)
		f.awaitIdle(10 * time.Second)
		if waiting, after := f.counts(job.Source); waiting != 0 || after-before != tt.left {
			t.Errorf("%s: %d of 2 left, want %d", tt.body, after-before, tt.left)
		}
	}
}

func TestAttributesArriveExactly(t *testing.T) {
	t.Parallel()
	f := start(t, patient())
	binary := []byte{0, 1, 0x7f, 0x80, 0xff, '"', '\\'}
	sent := map[string]types.MessageAttributeValue{
		"text":          {DataType: aws.String("String"), StringValue: aws.String("grüß \"Gott\"\n<&> \U0001f600")},
		"text.label":    {DataType: aws.String("String.custom"), StringValue: aws.String("x")},
		"number":        {DataType: aws.String("Number"), StringValue: aws.String("-00012345678901234567890.50")},
		"number.label":  {DataType: aws.String("Number.int"), StringValue: aws.String("7")},
		"binary":        {DataType: aws.String("Binary"), BinaryValue: binary},
		"binary.gzip":   {DataType: aws.String("Binary.gzip"), BinaryValue: bytes.Repeat([]byte{0xfe}, 1000)},
		"acklast":       {DataType: aws.String("String"), StringValue: aws.String(`{"attempt":3}`)},
		"seven":         {DataType: aws.String("String"), StringValue: aws.String(" ")},
		"eight":         {DataType: aws.String("String"), StringValue: aws.String("8")},
		"attribute_ten": {DataType: aws.String("String"), StringValue: aws.String("10")},
	}
	body := "ok \t\r\n\"\\ <script>& \u2028 \U0001f600 \ufffd"
	before := time.Now()
	out, err := f.sqs.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: f.url(job.Source), MessageBody: &body, MessageAttributes: sent})
	if err != nil {
		t.Fatal(err)
	}
	got := f.await(t, *out.MessageId, 1).records[0]
	if got.Body != body {
		t.Errorf("body %q, want %q", got.Body, body)
	}
	want := map[string]events.SQSMessageAttribute{}
	for name, a := range sent {
		want[name] = events.SQSMessageAttribute{StringValue: a.StringValue, BinaryValue: a.BinaryValue,
			DataType: *a.DataType, StringListValues: []string{}, BinaryListValues: [][]byte{}}
	}
	if !reflect.DeepEqual(got.MessageAttributes, want) {
		t.Errorf("attributes\n%+v\nwant\n%+v", got.MessageAttributes, want)
	}
	if got.EventSource != "aws:sqs" || got.AWSRegion != Region || got.ReceiptHandle == "" || got.Md5OfBody != *out.MD5OfMessageBody ||
		!strings.HasSuffix(got.EventSourceARN, ":"+f.Names().SourceQueue) {
		t.Errorf("record %+v", got)
	}
	ms, _ := strconv.ParseInt(got.Attributes["SentTimestamp"], 10, 64)
	if age := time.UnixMilli(ms).Sub(before); got.Attributes["ApproximateReceiveCount"] != "1" || age < -time.Second || age > 10*time.Second {
		t.Errorf("system attributes %v", got.Attributes)
	}
	f.awaitEmpty(job.Source)
}

func TestDelayedMessageIsNotSeenEarly(t *testing.T) {
	t.Parallel()
	f := start(t, patient())
	before := time.Now()
	out, err := f.sqs.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: f.url(job.Recovery), MessageBody: aws.String("ok"), DelaySeconds: 2})
	if err != nil {
		t.Fatal(err)
	}
	at := f.await(t, *out.MessageId, 1).at
	if after := at.Sub(before); after < 2*time.Second {
		t.Errorf("seen after %v, want 2 s or more", after)
	}
}

func TestLargeBatchIsSplit(t *testing.T) {
	t.Parallel()
	f := start(t, patient())
	bodies := slices.Repeat([]string{"ok " + strings.Repeat("x", 900<<10)}, 10)
	ids := f.send(job.Source, bodies...)
	f.awaitEmpty(job.Source)
	seen := map[string]int{}
	for _, s := range f.sightings() {
		if len(s.raw) > topology.MaxPayloadBytes {
			t.Errorf("an event of %d bytes", len(s.raw))
		}
		for _, m := range s.records {
			seen[m.MessageId]++
		}
	}
	if len(f.sightings()) != 2 {
		t.Errorf("%d events, want 6 + 4 messages in two", len(f.sightings()))
	}
	for _, id := range ids {
		if seen[id] != 1 {
			t.Errorf("message %s seen %d times", id, seen[id])
		}
	}
}

func TestBatchWindowGathersMoreThanOneReceive(t *testing.T) {
	t.Parallel()
	s := patient()
	s.BatchSize, s.BatchWindow = 15, 10*time.Second
	s.LaneVisibility += s.BatchWindow
	f := start(t, s)
	began := time.Now()
	ids := f.send(job.Source, slices.Repeat([]string{"ok"}, 12)...)
	late := f.send(job.Source, "ok late")
	got := f.await(t, ids[0], 1)
	if len(got.records) != 13 || len(f.of(late[0])) != 1 {
		t.Errorf("a batch of %d, want all 13", len(got.records))
	}
	if waited := got.at.Sub(began); waited < s.BatchWindow-100*time.Millisecond {
		t.Errorf("the batch left after %v, before its window ended", waited)
	}
	// A full batch does not wait for the window.
	began = time.Now()
	full := f.send(job.Source, slices.Repeat([]string{"ok"}, 15)...)
	got = f.await(t, full[0], 1)
	if waited := got.at.Sub(began); len(got.records) != 15 || waited >= s.BatchWindow {
		t.Errorf("a batch of %d after %v, want 15 before the window of %v ends", len(got.records), waited, s.BatchWindow)
	}
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	f := start(t, patient(), processes(1)) // so that the poller waits for it when the lane is paused
	blocked := f.send(job.Source, "block")
	f.await(t, blocked[0], 1)
	f.Pause(job.Source)
	f.Pause(job.Source) // twice is once
	out, err := f.sqs.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: f.url(job.Source), MessageBody: aws.String("ok waits")})
	if err != nil {
		t.Fatal(err)
	}
	f.release()
	eventually(t, "the invocation in flight finishes", func() bool { _, n := f.counts(job.Source); return n == 0 })
	// A recovery message goes through: the other lane has its turns.
	other := f.send(job.Recovery, "ok other")
	f.await(t, other[0], 1)
	for range 20 { // longer than any idle time of the poller
		time.Sleep(maxIdle / 10)
		if waiting, inFlight := f.counts(job.Source); waiting != 1 || inFlight != 0 {
			t.Fatalf("paused lane: %d waiting and %d in flight, want 1 and 0", waiting, inFlight)
		}
	}
	f.Resume(job.Source)
	f.Resume(job.Source)
	f.await(t, *out.MessageId, 1)
	f.awaitEmpty(job.Source)
}

func TestCapsHoldAndRecoveryLeavesRoomForSource(t *testing.T) {
	t.Parallel()
	s := patient()
	s.BatchSize, s.SourceConcurrency, s.RecoveryConcurrency = 1, 3, 2
	f := start(t, s, processes(3))
	source, recovery := f.arns.Source, f.arns.Recovery

	f.send(job.Recovery, slices.Repeat([]string{"block"}, 6)...)
	eventually(t, "recovery reaches its cap", func() bool { return f.blockedNow()[recovery] == 2 })
	fresh := f.send(job.Source, "ok fresh")
	f.await(t, fresh[0], 1) // while recovery is full and blocked

	f.send(job.Source, slices.Repeat([]string{"block"}, 6)...)
	eventually(t, "source fills what is left", func() bool { return f.blockedNow()[source] == 1 })
	// Let the pollers run on, so that a late error would show.
	for range 20 {
		time.Sleep(maxIdle / 5)
		if now := f.blockedNow(); now[source] > 1 || now[recovery] > 2 {
			t.Fatalf("in flight %v with 3 processes", now)
		}
	}
	if _, inFlight := f.counts(job.Source); inFlight > 1 {
		t.Errorf("%d messages of source taken, though only one could be worked on", inFlight)
	}
	f.release()
	f.awaitEmpty(job.Source)
	f.awaitEmpty(job.Recovery)
	if r := f.peakOf(recovery); r != 2 {
		t.Errorf("recovery peaked at %d, cap 2", r)
	}
}

func TestSourceCap(t *testing.T) {
	t.Parallel()
	s := patient()
	s.BatchSize, s.SourceConcurrency, s.RecoveryConcurrency = 1, 2, 2
	f := start(t, s, processes(3))
	f.send(job.Source, slices.Repeat([]string{"block"}, 5)...)
	eventually(t, "source reaches its cap", func() bool { return f.blockedNow()[f.arns.Source] == 2 })
	other := f.send(job.Recovery, "ok")
	f.await(t, other[0], 1)
	f.release()
	f.awaitEmpty(job.Source)
	if p := f.peakOf(f.arns.Source); p != 2 {
		t.Errorf("source peaked at %d, cap 2", p)
	}
}

func TestOneProcessServesBothLanesInTurn(t *testing.T) {
	t.Parallel()
	s := patient()
	s.BatchSize = 1
	f := start(t, s, processes(1))
	f.Pause(job.Source)
	f.Pause(job.Recovery)
	for range 20 {
		for _, lane := range []job.Queue{job.Source, job.Recovery} {
			if _, err := f.sqs.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: f.url(lane), MessageBody: aws.String("ok")}); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.Resume(job.Source)
	f.Resume(job.Recovery)
	f.awaitEmpty(job.Source)
	f.awaitEmpty(job.Recovery)
	run, longest, last := 0, 0, ""
	for _, s := range f.sightings() {
		if arn := s.records[0].EventSourceARN; arn != last {
			run, last = 0, arn
		}
		run++
		longest = max(longest, run)
	}
	// The first and the last few may come without competition.
	if longest > 8 {
		t.Errorf("one lane was served %d times running while the other waited", longest)
	}
}
