package acklast

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"

	"acklast/internal/job"
	"acklast/internal/telemetry"
)

// run makes one attempt at a job of a kind with the metric Weight, and returns the log.
func run(ctx context.Context, t *testing.T, d job.Delivery, body func(j *Job[struct{}])) (out, metrics bytes.Buffer) {
	t.Helper()
	clock := func() time.Time { return time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC) }
	recorder := telemetry.NewRecorder(&metrics, "s", clock)
	kind := Define(Definition[struct{}]{
		Name: "k", Key: func(struct{}) (string, []string) { return "s", nil }, Metrics: []Metric{{Name: "Weight", Unit: NoUnit}},
	}, func(context.Context, Services) (Runner[struct{}], error) {
		return RunnerFunc[struct{}](func(_ context.Context, j *Job[struct{}]) error { body(j); return errors.New("over") }), nil
	})
	running, err := kind.start(ctx, Services{
		Now: clock, Log: slog.New(slog.NewJSONHandler(&out, nil)), core: &core{metric: recorder.Own},
	})
	if err != nil {
		t.Fatal(err)
	}
	d.Payload = struct{}{}
	running.Run(ctx, d)
	if err := recorder.Flush(); err != nil {
		t.Fatal(err)
	}
	return out, metrics
}

func TestAJobsLoggerCarriesItsFields(t *testing.T) {
	ctx := lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{AwsRequestID: "r-1"})
	out, _ := run(ctx, t, job.Delivery{
		Message: job.Message{ID: "m-1", Memory: job.Memory{Attempt: 2}}, Lane: job.Recovery,
		Envelope: job.Envelope{Kind: "k"}, Key: "k/s",
	}, func(j *Job[struct{}]) { j.Log.Info("looked") })
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{
		telemetry.KeyRequestID: "r-1", telemetry.KeyMessageID: "m-1", telemetry.KeyKind: "k", telemetry.KeyJob: "k/s",
		telemetry.KeyLane: "recovery", telemetry.KeyAttempt: 3.0,
	} {
		if line[key] != want {
			t.Errorf("%s = %v, want %v", key, line[key], want)
		}
	}
}

func TestAJobTellsTheServicesTime(t *testing.T) {
	run(t.Context(), t, job.Delivery{}, func(j *Job[struct{}]) {
		if want := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC); !j.Now().Equal(want) {
			t.Errorf("Now() = %v, want %v", j.Now(), want)
		}
	})
}

func TestAJobRecordsOnlyDeclaredMetrics(t *testing.T) {
	for name, tt := range map[string]struct {
		metric   string
		value    float64
		recorded bool
	}{
		"declared":     {"Weight", 2.5, true},
		"not declared": {"Height", 2.5, false},
		"not a number": {"Weight", math.NaN(), false},
	} {
		t.Run(name, func(t *testing.T) {
			out, metrics := run(t.Context(), t, job.Delivery{Envelope: job.Envelope{Kind: "k"}}, func(j *Job[struct{}]) { j.Metric(tt.metric, tt.value) })
			if got := bytes.Contains(metrics.Bytes(), []byte(`"kind":"k","Weight":[2.5]`)); got != tt.recorded {
				t.Errorf("recorded %v, want %v: %s", got, tt.recorded, metrics.String())
			}
			if warned := bytes.Contains(out.Bytes(), []byte("metric dropped")); warned == tt.recorded {
				t.Errorf("warned %v, want %v: %s", warned, !tt.recorded, out.String())
			}
		})
	}
}
