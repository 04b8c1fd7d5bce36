package main

import (
	"encoding/json"
	"strings"
	"testing"
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
