package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aws/aws-lambda-go/events"

	"acklast"
	"acklast/internal/job"
	"acklast/internal/kinds"
	"acklast/internal/ledger"
)

// Every sample in events/ is valid: a batch goes through the handler, a job is read by the catalogue.
func TestSampleEvents(t *testing.T) {
	files, err := filepath.Glob("../../events/*.json")
	if err != nil || len(files) < 2 {
		t.Fatalf("samples %v, %v", files, err)
	}
	if !kinds.Registered("reservation.expire", "reminder.send") {
		t.Skip("events/ shows the sample kinds, and this stack has them no more")
	}
	var reading []job.Kind
	for _, k := range kinds.All() {
		reading = append(reading, job.Kind{Description: acklast.Describe(k)[0], Read: func(payload []byte) (job.Contents, error) {
			key, err := k.KeyOf(jsontext.Value(payload))
			subject, _ := job.SubjectOf(key)
			return job.Contents{Key: key, Subject: subject}, err
		}})
	}
	catalogue := job.NewCatalogue(reading...)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(filepath.Base(file), "batch") {
				_, err := catalogue.Read(string(raw))
				if want := strings.Contains(file, "probe"); errors.Is(err, job.ErrProbe) != want || err != nil && !want {
					t.Error(err)
				}
				return
			}
			var event events.SQSEvent
			if err := json.Unmarshal(raw, &event); err != nil {
				t.Fatal(err)
			}
			if len(event.Records) == 0 {
				t.Fatal("the sample has no records")
			}
			b := newBench(t)
			running := catalogue.Kinds()
			for i := range running {
				running[i].Run = func(_ context.Context, d job.Delivery) job.Result { return b.ledger.commit(d, b.Rules, b.now) }
			}
			b.Kinds = job.NewCatalogue(running...)
			failed, err := b.handle(event.Records...)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, len(failed), 0, "the number of records that were left")
			for _, r := range event.Records {
				read, err := catalogue.Read(r.Body)
				if err != nil {
					b.last(job.DLQ, 1)
				} else {
					equal(t, b.ledger.entries[read.Key].Status, ledger.Done, "the status of %s", read.Key)
				}
			}
			if got := b.wires.sent[job.DLQ][0].Message; got.Body != event.Records[1].Body {
				t.Errorf("isolated %q", got.Body)
			}
		})
	}
}
