//go:build bench && linux

package e2e_test

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/redrive"
	"acklast/internal/topology"
)

// kib reads a figure of a process, such as VmRSS or VmHWM, in KiB.
func kib(t *testing.T, pid int, figure string) float64 {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), figure+":"); ok {
			n, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("process %d has no %s", pid, figure)
	return 0
}

// The resident memory of one worker process after 10,000 jobs and after 100,000. Most are copies of jobs
// that are done, since the embedded engine slows down with the size of its tables and queues.
func TestWorkerMemory(t *testing.T) {
	e := newEmbeddedWith(t, topology.Scaled(), 1)
	pid := e.env.PIDs()[0]
	var body string
	for i := range 100 {
		h := e.place(e.hold(fmt.Sprint("memory-", i), 1, 0))
		body = e.body(h)
	}
	const step = 5000
	moves := make([]lanes.Move, step)
	for i := range moves {
		moves[i] = lanes.Move{Message: job.Message{Body: body}}
	}
	var early float64
	for jobs := step; jobs <= 100_000; jobs += step {
		for _, err := range e.queues.Send(t.Context(), job.Source, moves) {
			if err != nil {
				t.Fatal(err)
			}
		}
		e.dry()
		if jobs == 10_000 {
			early = kib(t, pid, "VmRSS")
		}
	}
	late := kib(t, pid, "VmRSS")
	if e.env.PIDs()[0] != pid {
		t.Fatal("the process was replaced on the way")
	}
	report("WorkerMemory", early/1024, "MiB-after-10000", late/1024, "MiB-after-100000", late/early, "x-growth")
	if late > 1.3*early {
		t.Errorf("it grew to %.2f times", late/early)
	}
}

// The highest resident memory of a redrive process that plans 100 messages, and of one that plans 10,000. The collector runs
// often, as in the redrive's BenchmarkMemory: the figure is about what a message needs, and not about when the collector came.
func TestRedriveMemory(t *testing.T) {
	measure := func(t *testing.T, n int) float64 {
		numbers := topology.ScaledRedrive()
		numbers.Timeout, numbers.ScanTime, numbers.ScanMessages = 60*time.Second, 50*time.Second, 20_000
		g := newGovernedOf(t, numbers, 1, "GOGC=10")
		moves := make([]lanes.Move, n)
		for i := range moves {
			h := g.hold(fmt.Sprint("many-", i), 1, 0)
			moves[i] = lanes.Move{Message: job.Message{Body: g.body(h),
				Memory: job.Memory{Class: job.Transient, Cause: job.CauseAttempts, Error: "down", At: time.Now().UTC()}}}
		}
		for _, err := range g.queues.Send(t.Context(), job.DLQ, moves) {
			if err != nil {
				t.Fatal(err)
			}
		}
		plan := g.ask(redrive.Request{Action: "plan", Select: &redrive.Filter{All: true}}).Plan
		if plan == nil || plan.Selected < n*99/100 { // the engine loses an answer now and then; the scan reports it
			t.Fatalf("plan %+v", plan)
		}
		return kib(t, g.env.FunctionPIDs(g.name)[0], "VmHWM")
	}
	var base, full float64
	t.Run("planning", func(t *testing.T) { // returns when both parallel subtests have ended
		t.Run("100", func(t *testing.T) { base = measure(t, 100) })
		t.Run("10000", func(t *testing.T) { full = measure(t, 10_000) })
	})
	if t.Failed() {
		return
	}
	each := (full - base) * 1024 / 10_000
	report("RedriveMemory", base/1024, "MiB-of-100", full/1024, "MiB-of-10000", each, "B/message")
	if each > 2048 {
		t.Errorf("%.0f bytes a message, want at most 2048", each)
	}
}
