package acklast

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/aws/aws-lambda-go/lambdacontext"

	"acklast/internal/job"
	"acklast/internal/telemetry"
)

// A job's own lines have the fields of the worker's line, whichever way they are written.
func TestAJobsLinesHaveItsFields(t *testing.T) {
	var out bytes.Buffer
	s := Services{Log: telemetry.NewLogger(&out, 0)}
	ctx := lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{AwsRequestID: "request-1"})
	d := job.Delivery{Message: job.Message{ID: "m1", Memory: job.Memory{Attempt: 2}}, Key: "order.close/o-1", Lane: job.Source, Envelope: job.Envelope{Kind: "order.close"}}
	log := s.logger(ctx, d)
	log.Info("plain", "own", "x")
	log.With("own", "x").Info("with")
	log.WithGroup("group").Info("group", "own", "x")
	lines := 0
	for line := range bytes.Lines(out.Bytes()) {
		lines++
		var got map[string]any
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatal(err)
		}
		own := got["own"]
		if group, ok := got["group"].(map[string]any); ok {
			own = group["own"]
		}
		for name, want := range map[string]any{
			telemetry.KeyRequestID: "request-1", telemetry.KeyMessageID: "m1", telemetry.KeyKind: "order.close",
			telemetry.KeyJob: "order.close/o-1", telemetry.KeyLane: "source", telemetry.KeyAttempt: 3.0,
		} {
			if got[name] != want {
				t.Errorf("%s: %s is %v, want %v", got["message"], name, got[name], want)
			}
		}
		if own != "x" {
			t.Errorf("%s: its own attribute is %v", got["message"], own)
		}
	}
	if lines != 3 {
		t.Errorf("%d lines, want 3", lines)
	}
}
