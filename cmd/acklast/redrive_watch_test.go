package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"acklast/internal/redrive"
	"acklast/internal/version"
)

// runner is a redrive function with one run. It works on the run when it is invoked for that.
type runner struct {
	mu  sync.Mutex
	run redrive.Run
	// begins, events and polls count the requests to begin, to work, and about the status since the last work.
	begins, events, polls int
	// busy says that the invocation for the run has not started; codes are the halts of its rounds, and then it is done.
	busy  bool
	codes []redrive.Code
	// fails says whether a request fails, and fault how; onEvent is called when the function is to work.
	fails   func(f *runner, r redrive.Request) bool
	fault   int
	onEvent func()
}

func (f *runner) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var req redrive.Request
	if !strings.HasSuffix(r.URL.Path, "/invocations") || json.NewDecoder(r.Body).Decode(&req) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	switch {
	case r.Header.Get("X-Amz-Invocation-Type") == "Event":
		f.events, f.polls = f.events+1, 0
		if f.onEvent != nil {
			f.onEvent()
		}
		w.WriteHeader(http.StatusAccepted)
		return
	case req.Action == "run":
		f.begins++
	default:
		f.polls++
	}
	if f.fails(f, req) {
		code := map[int]string{429: "TooManyRequestsException", 503: "ServiceUnavailableException"}[f.fault]
		w.Header().Set("X-Amzn-Errortype", code)
		w.WriteHeader(f.fault)
		_, _ = io.WriteString(w, `{"message": "try later"}`)
		return
	}
	if f.events > f.run.Rounds && !f.busy { // the invocation works, and is over at once
		f.run.Rounds++
		f.run.State, f.run.Code = redrive.Done, ""
		if n := f.run.Rounds; n <= len(f.codes) {
			f.run.State, f.run.Code = redrive.Halted, f.codes[n-1]
		}
	}
	_ = json.NewEncoder(w).Encode(redrive.Response{Action: req.Action, Version: version.Number, Run: &f.run})
}

func (f *runner) start(t *testing.T) *cli {
	f.run = redrive.Run{ID: someRun, Plan: somePlan, State: redrive.Halted, Code: redrive.HaltNotBegun, Endings: map[redrive.Ending]int{redrive.Succeeded: 1}}
	env := serving(t, f.serve)
	env[envStack] = "fake"
	return &cli{t: t, stack: "fake", env: env}
}

// A function that is throttled for a moment ends no watching: not right after the start, not while the function is slow to
// begin, and not when the run is continued.
func TestAWatcherMissesAnAnswer(t *testing.T) {
	for name, where := range map[string]*runner{
		"the first poll": {fails: func(f *runner, r redrive.Request) bool { return r.Action == "status" && f.events == 1 && f.polls <= 2 }},
		"the check of a slow start": {busy: true, fails: func(f *runner, r redrive.Request) bool {
			f.busy = f.begins < 4
			return r.Action == "run" && (f.begins == 2 || f.begins == 3)
		}},
		"a continuation": {codes: []redrive.Code{redrive.HaltTime}, fails: func(f *runner, r redrive.Request) bool {
			return r.Action == "run" && (f.begins == 2 || f.begins == 3) || r.Action == "status" && f.events == 2 && f.polls == 1
		}},
	} {
		for _, fault := range []int{429, 503} {
			t.Run(name+" "+http.StatusText(fault), func(t *testing.T) {
				t.Parallel()
				f := &runner{fault: fault, busy: where.busy, codes: where.codes, fails: where.fails}
				got := f.start(t).run("redrive", "run", someRun, "--yes")
				if got.code != exitOK || f.run.State != redrive.Done {
					t.Errorf("exit code %d, run %s %s, want it watched to its end\n%s", got.code, f.run.State, f.run.Code, got.stderr)
				}
				contains(t, got.stderr, "no answer (", "asking again")
				if want := len(f.codes) + 1; f.events != want {
					t.Errorf("the function was asked to work %d times, want %d", f.events, want)
				}
			})
		}
	}
}

// A watching that ends while the invocation is under way says that the run goes on, how to watch it and how to stop it.
func TestAnEndOfTheWatchingAtTheStart(t *testing.T) {
	wanted := []string{"The run goes on", "acklast redrive status " + someRun + " --watch", "acklast redrive stop " + someRun}
	t.Run("interrupted", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		f := &runner{busy: true, fails: func(f *runner, _ redrive.Request) bool {
			if f.events == 1 && f.polls == 1 {
				cancel()
			}
			return false
		}}
		got := f.start(t).runContext(ctx, io.Discard, "redrive", "run", someRun, "--yes")
		if got.code != exitFailed {
			t.Errorf("exit code %d, want %d", got.code, exitFailed)
		}
		contains(t, got.stderr, append(wanted, "interrupted")...)
	})
	t.Run("no answer for long", func(t *testing.T) {
		t.Parallel()
		f := &runner{fault: 503, fails: func(f *runner, _ redrive.Request) bool { return f.events == 1 }}
		got := f.start(t).run("redrive", "run", someRun, "--yes")
		if got.code != exitFailed {
			t.Errorf("exit code %d, want %d", got.code, exitFailed)
		}
		contains(t, got.stderr, append(wanted, "try later")...)
	})
	t.Run("no answer to a continuation for long", func(t *testing.T) {
		t.Parallel()
		f := &runner{fault: 429, codes: []redrive.Code{redrive.HaltTime}, fails: func(f *runner, r redrive.Request) bool { return r.Action == "run" && f.begins > 1 }}
		got := f.start(t).run("redrive", "run", someRun, "--yes")
		if got.code != exitFailed {
			t.Errorf("exit code %d, want %d", got.code, exitFailed)
		}
		contains(t, got.stderr, "acklast redrive run "+someRun)
		if strings.Contains(got.stderr, "The run goes on") {
			t.Errorf("it says that a halted run goes on:\n%s", got.stderr)
		}
	})
}
