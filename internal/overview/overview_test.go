package overview_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/overview"
	"acklast/internal/redrive"
	"acklast/internal/telemetry"
	"acklast/internal/topology"
)

var start = time.Date(2026, 12, 1, 10, 0, 30, 0, time.UTC)

// world is everything that a Reader reads, and counts its calls.
type world struct {
	mu       sync.Mutex
	now      time.Time
	depths   map[job.Queue]lanes.Depth
	isolated []ledger.IsolatedJob
	standing redrive.Standing
	paused   map[string]bool // by queue ARN
	metrics  []*cloudwatch.GetMetricDataOutput
	asked    *cloudwatch.GetMetricDataInput
	fail     map[string]error
	calls    map[string]int
}

func newWorld() *world {
	return &world{now: start, depths: map[job.Queue]lanes.Depth{}, paused: map[string]bool{}, fail: map[string]error{}, calls: map[string]int{}}
}

func (w *world) call(name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[name]++
	return w.fail[name]
}

type fakeLanes struct{ *world }

func (w fakeLanes) Depth(_ context.Context, q job.Queue) (lanes.Depth, error) {
	return w.depths[q], w.fail["depth"]
}

func (w fakeLanes) Describe(_ context.Context, q job.Queue) (lanes.Queue, error) {
	return lanes.Queue{ARN: "arn:" + string(q), Retention: 14 * 24 * time.Hour}, w.call("describe")
}

type fakeLedger struct{ *world }

func (w fakeLedger) Isolated(_ context.Context, from, to time.Time, each func([]ledger.IsolatedJob) error) error {
	if err := w.call("isolated"); err != nil {
		return err
	}
	for _, j := range w.isolated {
		if j.At.Before(from) || !j.At.Before(to) {
			continue
		}
		if err := each([]ledger.IsolatedJob{j}); err != nil {
			return err
		}
	}
	return nil
}

type fakeOperations struct{ *world }

func (w fakeOperations) Standing(context.Context, time.Time) (redrive.Standing, error) {
	return w.standing, w.fail["standing"]
}

type fakeSchedules struct{ *world }

func (w fakeSchedules) Count(context.Context, int) (int, error) { return 7, w.call("schedules") }

type fakeLambda struct{ *world }

func (w fakeLambda) ListEventSourceMappings(_ context.Context, in *lambda.ListEventSourceMappingsInput, _ ...func(*lambda.Options)) (*lambda.ListEventSourceMappingsOutput, error) {
	state := "Enabled"
	if w.paused[*in.EventSourceArn] {
		state = "Disabling"
	}
	other := types.EventSourceMappingConfiguration{EventSourceArn: in.EventSourceArn, FunctionArn: aws.String("arn:aws:lambda:r:1:function:other"), State: aws.String("Disabled")}
	ours := types.EventSourceMappingConfiguration{EventSourceArn: in.EventSourceArn, FunctionArn: aws.String("arn:aws:lambda:r:1:function:s-worker:live"), State: &state}
	return &lambda.ListEventSourceMappingsOutput{EventSourceMappings: []types.EventSourceMappingConfiguration{other, ours}}, w.call("mappings")
}

type fakeCloudWatch struct{ *world }

func (w fakeCloudWatch) GetMetricData(_ context.Context, in *cloudwatch.GetMetricDataInput, _ ...func(*cloudwatch.Options)) (*cloudwatch.GetMetricDataOutput, error) {
	if err := w.call("metrics"); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = in
	if len(w.metrics) == 0 {
		return &cloudwatch.GetMetricDataOutput{}, nil
	}
	out := w.metrics[0]
	w.metrics = w.metrics[1:]
	return out, nil
}

func (w *world) config() overview.Config {
	return overview.Config{
		Names: topology.NamesOf("s"), Place: "here", Lanes: fakeLanes{w}, Ledger: fakeLedger{w}, Operations: fakeOperations{w},
		Schedules: fakeSchedules{w}, Mappings: fakeLambda{w}, Now: func() time.Time { return w.now }, Explain: error.Error,
	}
}

func (w *world) read(t *testing.T, r *overview.Reader) overview.Snapshot {
	t.Helper()
	s, err := r.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func same[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestSnapshot(t *testing.T) {
	w := newWorld()
	w.depths[job.Source] = lanes.Depth{Visible: 1, InFlight: 2, Delayed: 3}
	w.depths[job.DLQ] = lanes.Depth{Visible: 5, InFlight: 6, Delayed: 7}
	w.paused["arn:recovery"] = true
	w.standing = redrive.Standing{
		Switch: redrive.Switch{On: true, By: "ada"}, Run: &redrive.Run{ID: "r-1"},
		Paused: []redrive.KindState{{Kind: "k", Paused: &redrive.Pause{By: "grace"}}},
	}
	s := w.read(t, overview.New(w.config()))
	same(t, "source", s.Lanes[0], overview.Lane{Lane: job.Source, Queue: "s-source", Scheduled: 3, Ready: 1, InFlight: 2, RetentionSeconds: 1209600, Mapping: "Enabled"})
	same(t, "recovery", s.Lanes[1], overview.Lane{Lane: job.Recovery, Queue: "s-recovery", RetentionSeconds: 1209600, Mapping: "Disabling", Paused: true})
	same(t, "DLQ", s.DLQ, overview.DLQ{Queue: "s-dlq", Isolated: 18, InFlight: 6, RetentionSeconds: 1209600})
	same(t, "schedules", s.InScheduler, 7)
	same(t, "switch", *s.Switch, redrive.Switch{On: true, By: "ada"})
	same(t, "run", s.Run.ID, "r-1")
	same(t, "paused kind", s.Kinds[0].Paused.By, "grace")
	same(t, "time", s.At, start)
	same(t, "oldest", s.OldestNotTold, "the age of the oldest message is known to CloudWatch on AWS only")
}

// The redrive function knows all kinds. If it does not answer, the paused ones are still told.
func TestKindsOfTheFunction(t *testing.T) {
	w := newWorld()
	w.standing.Paused = []redrive.KindState{{Kind: "paused"}}
	c := w.config()
	var refused error
	c.Kinds = func(context.Context) ([]redrive.KindState, error) {
		return []redrive.KindState{{Kind: "a"}, {Kind: "paused"}}, refused
	}
	r := overview.New(c)
	same(t, "kinds", len(w.read(t, r).Kinds), 2)
	refused = errors.New("denied")
	s := w.read(t, r)
	same(t, "kinds without the function", len(s.Kinds), 1)
	same(t, "why", s.KindsNotTold, "the redrive function did not tell: denied")
}

// Only the queues are required: every other part says why it is missing, and comes back.
func TestAPartMayBeMissing(t *testing.T) {
	w := newWorld()
	c := w.config()
	c.CloudWatch = fakeCloudWatch{w}
	c.History, c.Window = overview.CloudWatch{API: fakeCloudWatch{w}, Names: c.Names}, 5*time.Minute
	for _, part := range []string{"isolated", "standing", "schedules", "mappings", "metrics"} {
		w.fail[part] = errors.New(part + " is down")
	}
	r := overview.New(c)
	s := w.read(t, r)
	same(t, "isolated", s.IsolatedNotTold, "the ledger did not tell: isolated is down")
	same(t, "redrive", s.RedriveNotTold, "the operations table did not tell: standing is down")
	same(t, "kinds", s.KindsNotTold, s.RedriveNotTold)
	same(t, "scheduler", s.SchedulerNotTold, "EventBridge Scheduler did not tell: schedules is down")
	same(t, "lanes", s.LanesNotTold, "Lambda did not tell whether the lanes are paused: list event source mappings of arn:source: mappings is down")
	same(t, "oldest", s.OldestNotTold, "CloudWatch did not tell: metrics is down")
	same(t, "history", s.Series.NoHistory, "no history: metrics is down")
	same(t, "switch", s.Switch, nil)
	clear(w.fail)
	s = w.read(t, r)
	same(t, "all told", s.IsolatedNotTold+s.RedriveNotTold+s.KindsNotTold+s.SchedulerNotTold+s.LanesNotTold+s.OldestNotTold+s.Series.NoHistory, "")

	w.fail["depth"] = errors.New("no queue")
	if _, err := r.Read(t.Context()); !errors.Is(err, w.fail["depth"]) {
		t.Errorf("error %v, want %v", err, w.fail["depth"])
	}
}

func TestIsolated(t *testing.T) {
	w := newWorld()
	at := func(ago time.Duration) time.Time { return start.Add(-ago) }
	w.isolated = []ledger.IsolatedJob{
		{Key: "deleted", Class: job.Transient, Kind: "k", At: at(15 * 24 * time.Hour)},
		{Key: "k/1/a", Class: job.Transient, Kind: "k", Cause: job.CauseAttempts, Fingerprint: "f", At: at(3 * time.Hour)},
		{Key: "k/2/a", Class: job.Transient, Kind: "k", Cause: job.CauseAttempts, Fingerprint: "f", At: at(2 * time.Hour)},
		{Key: "k/3/a", Class: job.Ambiguous, Kind: "k", At: at(time.Hour)},
		{Key: "k/4/a", Class: job.Ambiguous, Kind: "k", At: at(time.Minute), Decided: ledger.Sent},
		{Key: "k/5/a", Class: job.Ambiguous, Kind: "k", At: at(time.Minute), Fingerprint: "other"},
	}
	i := w.read(t, overview.New(w.config())).Isolated
	same(t, "jobs", i.Jobs, 5)
	same(t, "oldest", i.OldestAt, at(3*time.Hour))
	same(t, "deleted", i.DeletedAt, at(3*time.Hour).Add(14*24*time.Hour))
	same(t, "groups", len(i.Groups), 3)
	first, second := i.Groups[0], i.Groups[1]
	same(t, "undecided of the first group", first.Undecided, 1)
	same(t, "class of the second group", second.Class, job.Transient)
	same(t, "cause of the second group", second.Cause, job.CauseAttempts)
	same(t, "count of the second group", second.Count, 2)
	same(t, "oldest of the second group", second.OldestAt, at(3*time.Hour))
	same(t, "newest of the second group", second.NewestAt, at(2*time.Hour))
	if want := []string{"k/1/a", "k/2/a"}; !slices.Equal(second.Jobs, want) {
		t.Errorf("jobs are %q, want %q", second.Jobs, want)
	}
	if want := []overview.Class{{job.Ambiguous, 3}, {job.Transient, 2}}; !slices.Equal(i.Classes(), want) {
		t.Errorf("classes are %v, want %v", i.Classes(), want)
	}
	same(t, "more", i.More, false)
}

// Jobs whose entries a newer version wrote are counted and named, and the others are grouped as always.
func TestNewerEntriesAreNamed(t *testing.T) {
	w := newWorld()
	w.isolated = []ledger.IsolatedJob{
		{Key: "k/1/a", At: start.Add(-2 * time.Hour), Newer: 2},
		{Key: "k/2/a", Class: job.Transient, Kind: "k", At: start.Add(-time.Hour)},
		{Key: "k/3/a", At: start.Add(-time.Minute), Newer: 3},
	}
	c := w.config()
	c.Explain = func(err error) string { return "(" + err.Error() + ")" }
	s := w.read(t, overview.New(c))
	same(t, "jobs", s.Isolated.Jobs, 3)
	same(t, "oldest", s.Isolated.OldestAt, start.Add(-2*time.Hour))
	same(t, "groups", len(s.Isolated.Groups), 1)
	same(t, "class of the group", s.Isolated.Groups[0].Class, job.Transient)
	same(t, "count of the group", s.Isolated.Groups[0].Count, 1)
	same(t, "what is not told", s.IsolatedNotTold,
		"2 of 3 isolated jobs are in no group: ("+(&job.NewerError{What: "entry k/1/a", Format: 2, Known: ledger.Format}).Error()+")")
	w.isolated = w.isolated[1:2]
	same(t, "without them", w.read(t, overview.New(c)).IsolatedNotTold, "")
}

func TestManyIsolated(t *testing.T) {
	w := newWorld()
	for range overview.IsolatedCounted {
		w.isolated = append(w.isolated, ledger.IsolatedJob{Class: job.Transient, At: start})
	}
	same(t, "more than the limit", w.read(t, overview.New(w.config())).Isolated.More, false)
	w.isolated = append(w.isolated, w.isolated[0])
	i := w.read(t, overview.New(w.config())).Isolated
	same(t, "more than the limit", i.More, true)
	same(t, "jobs", i.Jobs, overview.IsolatedCounted)
}

// What costs money is kept for a while. The isolated jobs are read again as soon as the DLQ counts another number.
func TestSlowParts(t *testing.T) {
	w := newWorld()
	c := w.config()
	c.Slow = time.Minute
	c.CloudWatch = fakeCloudWatch{w}
	c.History, c.Window = overview.CloudWatch{API: fakeCloudWatch{w}, Names: c.Names}, 5*time.Minute
	r := overview.New(c)
	steps := []struct {
		after                           time.Duration
		dlq                             int
		describe, isolated, slow, cloud int
	}{
		{0, 0, 3, 1, 1, 2},
		{59 * time.Second, 0, 3, 1, 1, 2},
		{59 * time.Second, 1, 3, 2, 1, 2},
		{time.Minute, 1, 3, 3, 2, 4},
	}
	for _, step := range steps {
		w.now = start.Add(step.after)
		w.depths[job.DLQ] = lanes.Depth{Visible: step.dlq}
		s := w.read(t, r)
		same(t, "schedules are kept", s.InScheduler, 7)
		same(t, "mapping is kept", s.Lanes[1].Mapping, "Enabled")
		want := map[string]int{"describe": step.describe, "isolated": step.isolated, "schedules": step.slow, "mappings": 2 * step.slow, "metrics": step.cloud}
		if !maps.Equal(w.calls, want) {
			t.Errorf("after %v: calls are %v, want %v", step.after, w.calls, want)
		}
	}
}

func result(id string, newest time.Time, values ...float64) cwtypes.MetricDataResult {
	r := cwtypes.MetricDataResult{Id: &id, Values: values}
	for i := range values {
		r.Timestamps = append(r.Timestamps, newest.Add(-time.Duration(i)*time.Minute))
	}
	return r
}

// The newest figure of each queue counts. A queue without a figure has none in the result.
func TestOldest(t *testing.T) {
	w := newWorld()
	w.metrics = []*cloudwatch.GetMetricDataOutput{
		{NextToken: aws.String("more"), MetricDataResults: []cwtypes.MetricDataResult{
			result("q0", start.Add(-2*time.Minute), 90, 30), result("q1", start), result("stranger", start, 5)}},
		{MetricDataResults: []cwtypes.MetricDataResult{result("q0", start.Add(-9*time.Minute), 7), result("q2", start.Add(-time.Minute), 0)}},
	}
	c := w.config()
	c.CloudWatch = fakeCloudWatch{w}
	s := w.read(t, overview.New(c))
	same(t, "source", *s.Lanes[0].Oldest, overview.Oldest{AgeSeconds: 90, At: start.Add(-2 * time.Minute)})
	same(t, "recovery", s.Lanes[1].Oldest, nil)
	same(t, "DLQ", *s.DLQ.Oldest, overview.Oldest{AgeSeconds: 0, At: start.Add(-time.Minute)})
	same(t, "told", s.OldestNotTold, "")
	q := w.asked.MetricDataQueries[1].MetricStat
	same(t, "queue", *q.Metric.Dimensions[0].Value, "s-recovery")
	same(t, "metric", *q.Metric.MetricName, "ApproximateAgeOfOldestMessage")
}

func TestSeriesOfCloudWatch(t *testing.T) {
	w := newWorld()
	at := start.Truncate(time.Minute)
	w.metrics = []*cloudwatch.GetMetricDataOutput{
		{NextToken: aws.String("more"), MetricDataResults: []cwtypes.MetricDataResult{result("s0", at, 4, 2), result("stranger", at, 9)}},
		{MetricDataResults: []cwtypes.MetricDataResult{result("s0", at.Add(-2*time.Minute), 1), result("s7", at, 3)}},
	}
	h := overview.CloudWatch{API: fakeCloudWatch{w}, Names: topology.NamesOf("s")}
	s := overview.Read(t.Context(), h, start.Add(-2*time.Minute), start, time.Minute, error.Error)
	same(t, "source", s.Source, "CloudWatch")
	same(t, "from", s.From, at.Add(-2*time.Minute))
	same(t, "no history", s.NoHistory, "")
	if got, want := s.Periods(), []time.Time{at.Add(-2 * time.Minute), at.Add(-time.Minute), at}; !slices.Equal(got, want) {
		t.Errorf("periods are %v, want %v", got, want)
	}
	for name, want := range map[overview.Name][]float64{overview.Acknowledged: {1, 2, 4}, overview.Fresh: {0, 0, 3}, overview.Retried: {0, 0, 0}} {
		if got := s.Counts[name]; !slices.Equal(got, want) {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	// Two and a half minutes, since the last one is not over.
	rate, ok := s.PerMinute(overview.Acknowledged)
	same(t, "rate", rate, 7/2.5)
	same(t, "rate is known", ok, true)
	// Nine metrics on each of two pages, a hundred thousandth of a dollar each.
	if want := 18 * 0.00001; s.CostUSD < want*0.999 || s.CostUSD > want*1.001 {
		t.Errorf("cost is %v, want %v", s.CostUSD, want)
	}
	first, last := w.asked.MetricDataQueries[0].MetricStat, w.asked.MetricDataQueries[8].MetricStat
	same(t, "metric", *first.Metric.Namespace+" "+*first.Metric.MetricName+" "+*first.Metric.Dimensions[0].Value, "acklast Acknowledged s")
	same(t, "metric", *last.Metric.MetricName+" "+*last.Metric.Dimensions[0].Value, "NumberOfMessagesDeleted s-recovery")
	same(t, "statistic", *first.Stat, "Sum")
	same(t, "period", *first.Period, 60)
}

// Another engine answers GetMetricData without having recorded anything: that is no history and not a plot of zeros.
func TestNoHistory(t *testing.T) {
	w := newWorld()
	h := overview.CloudWatch{API: fakeCloudWatch{w}, Names: topology.NamesOf("s"), Local: true}
	s := overview.Read(t.Context(), h, start.Add(-time.Hour), start, time.Minute, error.Error)
	same(t, "no history", s.NoHistory, "no history here: neither CloudWatch nor acklast local records it")
	same(t, "counts", len(s.Counts), 0)
	_, ok := s.PerMinute(overview.Acknowledged)
	same(t, "rate is known", ok, false)

	code := telemetry.TallyCode
	w.metrics = []*cloudwatch.GetMetricDataOutput{{Messages: []cwtypes.MessageData{{Code: &code}}}}
	s = overview.Read(t.Context(), h, start.Add(-time.Hour), start, time.Minute, error.Error)
	same(t, "source", s.Source, "acklast local")
	same(t, "minutes", len(s.Counts[overview.Retried]), 61)
	same(t, "cost", s.CostUSD, 0)
}
