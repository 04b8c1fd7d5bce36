package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"

	"acklast/internal/capacity"
	"acklast/internal/redrive"
)

const usualCapacity = "capacity --arrivals 40 --failing 0.1 --p50 100ms --p95 400ms --backlog 3000"

func TestCapacityPlansWithoutAStack(t *testing.T) {
	r := offline(t).run(strings.Fields(usualCapacity)...)
	if r.code != 0 {
		t.Errorf("exit code %d: %s", r.code, r.stderr)
	}
	for _, want := range []string{"recovery lane  4.44/s   120/s", "largest safe redrive  82.3/s", "done in 36s"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("it does not say %q:\n%s", want, r.stdout)
		}
	}
}

func TestAPlanThatIsNotPossibleIsRefused(t *testing.T) {
	r := offline(t).run(strings.Fields(usualCapacity + " --within 10s --output json")...)
	if r.code != exitRefused {
		t.Errorf("exit code %d, want %d: %s", r.code, exitRefused, r.stderr)
	}
	var got struct {
		Refused, Needs []string
		DrainSeconds   float64
		Input          struct{ P50, Within string }
	}
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil {
		t.Fatalf("%v: %s", err, r.stdout)
	}
	if len(got.Refused) != 1 || len(got.Needs) != 1 {
		t.Errorf("refused %q, needs %q", got.Refused, got.Needs)
	}
	if got.DrainSeconds < 36 || got.DrainSeconds > 37 {
		t.Errorf("drains in %v s", got.DrainSeconds)
	}
	if got.Input.P50 != "100ms" || got.Input.Within != "10s" {
		t.Errorf("input %+v", got.Input)
	}
}

func TestCapacityNamesWhatIsNotKnown(t *testing.T) {
	offline(t).refused(exitRefused, []string{"give --p50, or --from-stack", "give --p95"}, "capacity", "--arrivals", "40")
}

// The documented example is what the command prints.
func TestTheDocumentedPlanIsCurrent(t *testing.T) {
	text, err := os.ReadFile("../../docs/capacity.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "```sh\nacklast capacity ")
	command, rest, also := strings.Cut(rest, "\n```")
	_, rest, third := strings.Cut(rest, "```text\n")
	want, _, last := strings.Cut(rest, "```")
	if !ok || !also || !third || !last {
		t.Fatal("docs/capacity.md has no command with its answer")
	}
	r := offline(t).run(append([]string{"capacity"}, strings.Fields(strings.ReplaceAll(command, "\\\n", " "))...)...)
	if r.stdout != want {
		t.Errorf("the command prints\n%s\nbut docs/capacity.md says\n%s", r.stdout, want)
	}
}

func TestCapacityDrawsTheBacklog(t *testing.T) {
	for suffix, begins := range map[string]string{".svg": "<svg", ".png": "\x89PNG"} {
		file := filepath.Join(t.TempDir(), "backlog"+suffix)
		offline(t).must(append(strings.Fields(usualCapacity+" --within 10m --plot"), file)...)
		drawn, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(drawn), begins) {
			t.Errorf("%s begins with %.8q", suffix, drawn)
		}
		if suffix == ".svg" {
			contains(t, string(drawn), "Backlog over time", "3000 jobs at 82.3/s", "needed to meet the deadline")
		}
	}
	offline(t).refused(exitRefused, []string{".svg or .png"}, append(strings.Fields(usualCapacity), "--plot", "backlog.gif")...)
}

// cloudWatch answers with durations.
type cloudWatch struct{ values map[string][]float64 }

func (c cloudWatch) GetMetricData(_ context.Context, in *cloudwatch.GetMetricDataInput, _ ...func(*cloudwatch.Options)) (*cloudwatch.GetMetricDataOutput, error) {
	out := &cloudwatch.GetMetricDataOutput{}
	for _, q := range in.MetricDataQueries {
		out.MetricDataResults = append(out.MetricDataResults, cwtypes.MetricDataResult{Id: q.Id, Values: c.values[*q.MetricStat.Stat]})
	}
	return out, nil
}

func TestTheWorkersDurations(t *testing.T) {
	p50, p95, err := durations(t.Context(), cloudWatch{map[string][]float64{"p50": {80.5}, "p95": {300}}}, "s-worker", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if want := 80500 * time.Microsecond; p50 != want {
		t.Errorf("p50 = %v, want %v", p50, want)
	}
	if want := 300 * time.Millisecond; p95 != want {
		t.Errorf("p95 = %v, want %v", p95, want)
	}
	if _, _, err := durations(t.Context(), cloudWatch{}, "s-worker", time.Now(), time.Hour); err == nil {
		t.Error("an idle worker has durations")
	}
}

// On the embedded AWS without a worker there are no attempts, no durations and no mappings. Each flag is named.
func TestCapacityFromAStackWithoutAWorker(t *testing.T) {
	c, _ := embedded(t)
	r := c.run("capacity", "--from-stack")
	if r.code != exitRefused {
		t.Errorf("exit code %d, want %d", r.code, exitRefused)
	}
	contains(t, r.stderr, "give --failing: no attempt was made", "give --batch: Lambda does not tell it", "give --p50: CloudWatch on AWS only")
}

// A plan's time is that of the same calculation.
func TestARedrivePlanShowsTheSameTime(t *testing.T) {
	var out strings.Builder
	printPlan(&out, redrive.Plan{Actions: map[redrive.Action]int{redrive.Redrive: 3000}, RatePerSecond: 7}, time.Now())
	want := rough(capacity.Drain(3000, 7))
	if want != "7m9s" {
		t.Fatalf("3000 jobs at 7 a second take %s", want)
	}
	contains(t, out.String(), "7 per second, about "+want+" after the canary")
}
