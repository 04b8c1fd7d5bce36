package telemetry_test

import (
	"bytes"
	"maps"
	"strings"
	"testing"
	"time"

	"acklast/internal/job"
	"acklast/internal/telemetry"
)

func TestCensusMetrics(t *testing.T) {
	var out bytes.Buffer
	telemetry.NewRedriveRecorder(&out, "acklast", now).Census(telemetry.Census{
		Jobs: 10, Classes: map[job.Class]int{job.Ambiguous: 4, job.Crashed: 6},
		DaysLeft:  map[int]int{0: 1, 1: 1, 2: 1, 3: 1, 6: 1, 7: 2, 13: 3},
		OldestAge: time.Hour + time.Millisecond, Deleted: 1, Unrecorded: 2, Missing: 3,
	})
	got := map[string]float64{}
	for line := range strings.Lines(out.String()) {
		d, err := parseEMF(strings.TrimSuffix(line, "\n"))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		for name, n := range d.counts {
			got[d.series()+" "+name] = n
		}
		for name, numbers := range d.values {
			got[d.series()+" "+name] = numbers[0]
			if d.units[name] != "Seconds" {
				t.Errorf("%s is in %s", name, d.units[name])
			}
		}
	}
	want := map[string]float64{
		"stack=acklast CensusJobs": 10, "stack=acklast CensusOldestAge": 3600, "stack=acklast CensusDeleted": 1,
		"stack=acklast CensusUnrecorded": 2, "stack=acklast CensusMissing": 3,
		"daysLeft=0,stack=acklast CensusJobs": 1, "daysLeft=1-2,stack=acklast CensusJobs": 2,
		"daysLeft=3-6,stack=acklast CensusJobs": 2, "daysLeft=7+,stack=acklast CensusJobs": 5,
	}
	// Zeros are written too, so that the last figure does not stay when a state is over.
	for _, class := range telemetry.Classes {
		want["class="+string(class)+",stack=acklast CensusJobs"] = 0
	}
	want["class=ambiguous,stack=acklast CensusJobs"], want["class=crashed,stack=acklast CensusJobs"] = 4, 6
	for name, n := range want {
		if v, ok := got[name]; !ok || v != n {
			t.Errorf("%s is %v (%v), want %v", name, v, ok, n)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("%d metrics, want %d", len(got), len(want))
	}
}
