package stack

import (
	"errors"
	"fmt"
	"time"

	"acklast/infra/cloudwatch"
	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/redrive"
)

// traffic is how many jobs come. A job of the simulation stands for weight jobs.
type traffic struct {
	name   string
	every  time.Duration
	weight float64
}

var traffics = []traffic{
	{"one an hour", time.Hour, 1},
	{"one in ten minutes", 10 * time.Minute, 1},
	{"one a second", 10 * time.Second, 10},
	{"a thousand a second", 10 * time.Second, 10000},
}

// scenario is something that happens an hour after the world begins, just before a job is sent.
type scenario struct {
	name string
	// prepare, if given, does things when the world begins.
	prepare func(w *world)
	happens func(w *world)
	// thousand, if given, is the last of the traffics in another resolution.
	thousand *traffic
	// rings are the alarms that fire with any traffic, and more those that fire only with the traffic of that
	// index. All others stay quiet.
	rings []string
	more  map[int][]string
	// within is by when the first of rings is on, in minutes since the scenario began.
	within int
}

// ofEveryTable is a metric of each table.
func ofEveryTable(metric string) []cloudwatch.Series {
	var all []cloudwatch.Series
	for _, table := range []string{"ledger", "operations", "reservations", "resources", "subscriptions"} {
		all = append(all, cloudwatch.SeriesOf("AWS/DynamoDB", metric, "TableName=acklast-"+table))
	}
	return all
}

func rejected() *job.Failure { return &job.Failure{Class: job.Rejected, Err: errors.New("no record")} }

func always(class job.Class) func(string, job.Delivery) *job.Failure {
	return func(string, job.Delivery) *job.Failure { return &job.Failure{Class: class, Err: errDown} }
}

func of(kind string, class job.Class) func(string, job.Delivery) *job.Failure {
	return func(k string, _ job.Delivery) *job.Failure {
		if k != kind {
			return nil
		}
		return &job.Failure{Class: class, Err: errDown}
	}
}

// lasts sets something wrong for a time, and lets the world go on for some more.
func lasts(d time.Duration, wrong func(f *faults), after time.Duration) func(*world) {
	return func(w *world) {
		w.set(wrong)
		time.Sleep(d)
		w.set(func(f *faults) { *f = faults{} })
		time.Sleep(after)
	}
}

// isolated puts jobs on the DLQ that were isolated so long ago, in the name of n jobs, with a message or without.
func (w *world) isolated(n int, age time.Duration, message bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := time.Now().Add(-age)
	for i := range max(1, n/int(w.weight)) {
		id := fmt.Sprint("isolated-", i)
		body := fmt.Sprintf(`{"kind":%q,"deadline":%q,"payload":{"ID":%q}}`, plainKind, at.UTC().Add(budget).Format(time.RFC3339), id)
		e := ledger.Entry{
			Key: plainKind + "/" + id, Subject: id, Kind: plainKind, Status: ledger.Isolated, Version: 1, Attempts: 10,
			LastClass: job.Transient, LastError: "down", Cause: job.CauseAttempts, IsolatedAt: at, FirstSent: at.Add(-budget),
		}
		m := w.put(job.DLQ, job.Message{Body: body}, 0)
		e.IsolatedMessageID = "original-" + id
		m.SentAt, m.Memory = at, e.Memory(job.Memory{FirstSent: e.FirstSent, MessageID: e.IsolatedMessageID})
		w.entries[e.Key] = e
		if !message {
			m.gone = true
			delete(w.queues[job.DLQ].byID, m.ID)
		}
	}
}

// redrives plans, approves and runs everything on the DLQ, as the runbook says.
func (w *world) redrives() *redrive.Run {
	plan := w.ask(redrive.Request{Action: "plan", Select: &redrive.Filter{All: true}, By: "ada", Reason: "mended"})
	if plan.Plan == nil {
		w.t.Fatalf("no plan: %s", plan.Refused)
	}
	if plan.Plan.Approval != "" {
		w.ask(redrive.Request{Action: "approve", Plan: plan.Plan.ID, By: "grace", Reason: "looked"})
	}
	for {
		got := w.ask(redrive.Request{Action: "run", Plan: plan.Plan.ID})
		switch {
		case got.Run == nil:
			w.t.Fatalf("no run: %s", got.Refused)
		case got.Run.Code != "time":
			return got.Run
		}
	}
}

// measure lets series have a value every minute for a time.
func (w *world) measure(d time.Duration, n float64, series ...cloudwatch.Series) {
	for range int(d / time.Minute) {
		w.mu.Lock()
		for _, s := range series {
			w.metrics.Put(s, time.Now(), n, 1)
		}
		w.mu.Unlock()
		time.Sleep(time.Minute)
	}
}

// backlog makes as many jobs wait on a lane as its cap works off in a time.
func (w *world) backlog(lane job.Queue, limit int, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	takes := usual
	if w.weight < 100 { // else it would be millions
		takes = 25 * time.Second
		w.fault.takes = takes
	}
	rate := float64(limit*w.numbers.BatchSize) / takes.Seconds() / w.weight
	if lane == job.Source {
		rate -= 1 / w.every.Seconds()
	}
	for i := range int(rate * d.Seconds()) {
		id := fmt.Sprint("backlog-", i)
		body := fmt.Sprintf(`{"kind":%q,"deadline":%q,"payload":{"ID":%q}}`, plainKind, time.Now().UTC().Add(budget).Format(time.RFC3339), id)
		memory := job.Memory{}
		if lane == job.Recovery {
			memory = job.Memory{FirstSent: time.Now().UTC(), MessageID: id}
		}
		w.put(lane, job.Message{Body: body, Memory: memory}, 0)
	}
}

var scenarios = []scenario{
	{
		name:    "nothing is wrong",
		happens: func(*world) { time.Sleep(4 * time.Hour) },
	}, {
		name:    "quiet weekend, no jobs",
		happens: lasts(48*time.Hour, func(f *faults) { f.silent = true }, time.Hour),
	}, {
		name: "idle for six hours, then one job",
		happens: func(w *world) {
			w.set(func(f *faults) { f.silent = true })
			time.Sleep(7 * time.Hour)
			w.mu.Lock()
			w.send("")
			w.mu.Unlock()
			time.Sleep(time.Hour)
		},
	}, {
		name:    "the ledger is down for four hours",
		rings:   []string{"ledger-outage", "late", "expired-by-outage"},
		more:    map[int][]string{2: {"slow"}, 3: {"slow", "source-saturated", "source-waiting"}},
		within:  5,
		happens: lasts(4*time.Hour, func(f *faults) { f.ledger = fmt.Errorf("%w: down", ledger.ErrUnavailable) }, time.Hour),
	}, {
		name:    "one kind's table is denied for two hours",
		rings:   []string{"dlq-arrivals", "dlq-depth"},
		more:    map[int][]string{2: {"failing"}, 3: {"failing", "recovery-saturated", "recovery-waiting", "late", "slow"}},
		within:  25,
		happens: lasts(2*time.Hour, func(f *faults) { f.fails = of(reminderKind, job.ClassUnknown) }, time.Hour),
	}, {
		name:    "the provider is down for two hours",
		rings:   []string{"dlq-arrivals", "dlq-depth"},
		more:    map[int][]string{2: {"failing"}, 3: {"failing", "recovery-saturated", "recovery-waiting", "late", "slow"}},
		within:  25,
		happens: lasts(2*time.Hour, func(f *faults) { f.fails = of(reminderKind, job.Transient) }, time.Hour),
	}, {
		name:   "jobs are rejected for a minute, and SQS denies sends to the DLQ for an hour",
		rings:  []string{"left", "dlq-arrivals", "dlq-depth"},
		more:   map[int][]string{0: {"worker-errors"}, 1: {"worker-errors"}, 3: {"worker-errors"}},
		within: 5,
		happens: func(w *world) {
			w.set(func(f *faults) {
				f.fails = always(job.Rejected)
				f.refuse = func(to job.Queue) error {
					if to == job.DLQ {
						return errDown
					}
					return nil
				}
			})
			time.Sleep(time.Minute)
			w.set(func(f *faults) { f.fails = nil })
			time.Sleep(59 * time.Minute)
			w.set(func(f *faults) { *f = faults{} })
			time.Sleep(time.Hour)
		},
	}, {
		name:    "the worker cannot start for half an hour",
		rings:   []string{"worker-errors", "late"},
		more:    map[int][]string{2: {"slow"}, 3: {"slow"}},
		within:  5,
		happens: lasts(30*time.Minute, func(f *faults) { f.cannotStart = true }, time.Hour),
	}, {
		name:   "one job crashes the worker",
		rings:  []string{"worker-errors", "dlq-arrivals", "dlq-depth"},
		within: 5,
		happens: func(w *world) {
			w.set(func(f *faults) { f.crashes = func(d job.Delivery) bool { return d.Subject == "poison" } })
			w.mu.Lock()
			w.send("poison")
			w.mu.Unlock()
			time.Sleep(2 * time.Hour)
		},
	}, {
		name:    "the source lane is paused and forgotten for three hours",
		rings:   []string{"source-stalled", "late"},
		more:    map[int][]string{3: {"slow", "source-waiting", "source-saturated"}},
		within:  6,
		happens: lasts(3*time.Hour, func(f *faults) { f.paused = map[job.Queue]bool{job.Source: true} }, time.Hour),
	}, {
		name:   "both lanes are paused for 60 hours, with jobs in the first hour",
		rings:  []string{"source-stalled", "source-age", "recovery-stalled", "recovery-age"},
		within: 6,
		happens: func(w *world) {
			w.set(func(f *faults) { f.paused = map[job.Queue]bool{job.Source: true, job.Recovery: true} })
			w.mu.Lock()
			w.put(job.Recovery, job.Message{Body: `{"kind":"plain","payload":{"ID":"retried"}}`}, 0)
			w.mu.Unlock()
			time.Sleep(time.Hour)
			w.set(func(f *faults) { f.silent = true })
			time.Sleep(59 * time.Hour)
		},
	}, {
		name:   "first attempts fail, and the recovery lane's mapping is disabled for an hour",
		rings:  []string{"recovery-stalled", "late"},
		more:   map[int][]string{2: {"failing"}, 3: {"failing", "recovery-saturated", "recovery-waiting"}},
		within: 6,
		happens: lasts(time.Hour, func(f *faults) {
			f.paused = map[job.Queue]bool{job.Recovery: true}
			f.fails = func(_ string, d job.Delivery) *job.Failure {
				if d.Memory.Attempt > 0 {
					return nil
				}
				return &job.Failure{Class: job.Transient, Err: errDown}
			}
		}, time.Hour),
	}, {
		name:    "a kind is paused and forgotten for five hours",
		rings:   []string{"kind-paused", "late"},
		more:    map[int][]string{1: {"slow"}, 2: {"slow"}, 3: {"recovery-saturated", "recovery-waiting"}},
		within:  190,
		happens: lasts(5*time.Hour, func(f *faults) { f.pausedKinds = []string{plainKind} }, 4*time.Hour),
	}, {
		name:    "Lambda throttles the worker for half an hour",
		rings:   []string{"worker-throttles", "late"},
		more:    map[int][]string{2: {"slow"}, 3: {"slow"}},
		within:  5,
		happens: lasts(30*time.Minute, func(f *faults) { f.throttled = true }, time.Hour),
	}, {
		name:   "a backlog that takes 20 minutes, with 15 until the deadline",
		rings:  []string{"source-waiting", "slow", "source-saturated", "late"},
		within: 5,
		happens: func(w *world) {
			w.backlog(job.Source, w.numbers.SourceConcurrency, 20*time.Minute)
			time.Sleep(90 * time.Minute)
		},
	}, {
		name:   "jobs for 20 minutes are put on the recovery lane at once",
		rings:  []string{"recovery-waiting", "recovery-saturated", "late"},
		more:   map[int][]string{0: {"slow"}, 1: {"slow"}, 2: {"slow"}},
		within: 5,
		happens: func(w *world) {
			w.backlog(job.Recovery, w.numbers.RecoveryConcurrency, 20*time.Minute)
			time.Sleep(90 * time.Minute)
		},
	}, {
		name:     "a redrive of 5,000 jobs of yesterday, done right",
		rings:    []string{"dlq-depth"},
		thousand: &traffic{"", 200 * time.Millisecond, 200},
		prepare:  func(w *world) { w.isolated(5000, 24*time.Hour, true) },
		happens: func(w *world) {
			if run := w.redrives(); run.State != redrive.Done {
				w.t.Errorf("the run is %s: %s", run.State, run.Why)
			}
			time.Sleep(30 * time.Minute)
		},
	}, {
		name:    "a redrive whose jobs fail again",
		rings:   []string{"redrive-stopped", "dlq-arrivals", "dlq-depth"},
		within:  3,
		prepare: func(w *world) { w.isolated(50*int(w.weight), 24*time.Hour, true) },
		happens: func(w *world) {
			w.set(func(f *faults) {
				f.fails = func(_ string, d job.Delivery) *job.Failure {
					if d.Memory.Redrives == 0 {
						return nil
					}
					return rejected()
				}
			})
			if run := w.redrives(); run.State != redrive.Halted {
				w.t.Errorf("the run is %s", run.State)
			}
			time.Sleep(time.Hour)
		},
	}, {
		name:    "people look at the DLQ every five minutes",
		rings:   []string{"dlq-depth"},
		prepare: func(w *world) { w.isolated(20, time.Hour, true) },
		happens: func(w *world) {
			for range 24 {
				w.ask(redrive.Request{Action: "inspect"})
				time.Sleep(5 * time.Minute)
			}
		},
	}, {
		name:    "a person receives the DLQ's messages by hand, for an hour",
		rings:   []string{"dlq-depth"},
		prepare: func(w *world) { w.isolated(20*int(w.weight), time.Hour, true) },
		happens: func(w *world) {
			w.mu.Lock()
			w.receive(job.DLQ, 20, time.Hour)
			w.mu.Unlock()
			time.Sleep(2 * time.Hour)
		},
	}, {
		name:   "an ambiguous job stays for three days, and others are isolated after one and two",
		rings:  []string{"dlq-arrivals", "dlq-depth"},
		within: 3,
		happens: func(w *world) {
			w.set(func(f *faults) {
				f.silent = true // days of healthy jobs would only take time
				f.fails = func(_ string, d job.Delivery) *job.Failure {
					switch d.Subject {
					case "ambiguous":
						return &job.Failure{Class: job.Ambiguous, Err: errDown}
					case "other-1", "other-2":
						return rejected()
					}
					return nil
				}
			})
			for _, id := range []string{"ambiguous", "other-1", "other-2"} {
				w.mu.Lock()
				w.send(id)
				w.mu.Unlock()
				time.Sleep(24 * time.Hour)
			}
		},
	}, {
		name:    "isolated jobs, three days from deletion",
		rings:   []string{"dlq-age", "dlq-depth"},
		within:  310,
		prepare: func(w *world) { w.isolated(20, 11*24*time.Hour, true) },
		happens: lasts(36*time.Hour, func(f *faults) { f.silent = true }, time.Minute),
	}, {
		name:   "SQS moved a message itself, and nobody looks",
		rings:  []string{"dlq-arrivals", "dlq-depth", "dlq-unrecorded"},
		within: 3,
		happens: func(w *world) {
			w.mu.Lock()
			w.put(job.DLQ, job.Message{Body: "{}"}, 0)
			w.mu.Unlock()
			lasts(36*time.Hour, func(f *faults) { f.silent = true }, time.Minute)(w)
		},
	}, {
		name:    "somebody purged the DLQ",
		rings:   []string{"dlq-missing"},
		within:  310,
		prepare: func(w *world) { w.isolated(20, time.Hour, false) },
		happens: lasts(36*time.Hour, func(f *faults) { f.silent = true }, time.Minute),
	}, {
		name:    "SQS deleted isolated jobs unseen",
		rings:   []string{"dlq-deleted"},
		within:  310,
		prepare: func(w *world) { w.isolated(20, 14*24*time.Hour, false) },
		happens: lasts(60*time.Hour, func(f *faults) { f.silent = true }, time.Minute),
	}, {
		name:   "a producer sends an isolated job again",
		rings:  []string{"copies", "dlq-arrivals", "dlq-depth"},
		within: 63,
		happens: func(w *world) {
			w.set(func(f *faults) {
				f.fails = func(_ string, d job.Delivery) *job.Failure {
					if d.Subject == "twice" {
						return rejected()
					}
					return nil
				}
			})
			for range 2 {
				w.mu.Lock()
				w.put(job.Source, job.Message{Body: `{"kind":"plain","payload":{"ID":"twice"}}`}, 0)
				w.mu.Unlock()
				time.Sleep(time.Hour)
			}
		},
	}, {
		name:   "two payloads come under one key",
		rings:  []string{"conflicts", "dlq-arrivals", "dlq-depth"},
		within: 4,
		happens: func(w *world) {
			w.set(func(f *faults) {
				f.fails = func(_ string, d job.Delivery) *job.Failure {
					if d.Subject == "same" {
						return &job.Failure{Class: job.Transient, Err: errDown, RetryAfter: 5 * time.Minute}
					}
					return nil
				}
			})
			for _, more := range []string{"", `,"more":1`} {
				w.mu.Lock()
				w.put(job.Source, job.Message{Body: `{"kind":"plain","payload":{"ID":"same"` + more + `}}`}, 0)
				w.mu.Unlock()
				time.Sleep(time.Minute)
			}
			w.set(func(f *faults) { *f = faults{} })
			time.Sleep(time.Hour)
		},
	}, {
		name:   "DynamoDB throttles writes to every table for half an hour",
		rings:  []string{"ledger-throttles", "operations-throttles", "reservations-throttles", "resources-throttles", "subscriptions-throttles"},
		within: 5,
		happens: func(w *world) {
			w.measure(30*time.Minute, 1, ofEveryTable(writeThrottles)...)
			time.Sleep(time.Hour)
		},
	}, {
		name:   "DynamoDB throttles reads of every table for half an hour",
		rings:  []string{"ledger-throttles", "operations-throttles", "reservations-throttles", "resources-throttles", "subscriptions-throttles"},
		within: 5,
		happens: func(w *world) {
			w.measure(30*time.Minute, 1, ofEveryTable(readThrottles)...)
			time.Sleep(time.Hour)
		},
	}, {
		name:   "DynamoDB throttles the ledger's index for half an hour",
		rings:  []string{"ledger-throttles"},
		within: 5,
		happens: func(w *world) {
			w.measure(30*time.Minute, 1, cloudwatch.SeriesOf("AWS/DynamoDB", writeThrottles, "TableName=acklast-ledger", "GlobalSecondaryIndexName=isolated"))
			time.Sleep(time.Hour)
		},
	}, {
		name:   "Scheduler cannot send a job, and puts it on the DLQ",
		rings:  []string{"schedule-undelivered", "dlq-arrivals", "dlq-depth"},
		within: 3,
		happens: func(w *world) {
			w.mu.Lock()
			w.put(job.DLQ, job.Message{Body: "{}"}, 0)
			w.mu.Unlock()
			w.measure(time.Minute, 1, cloudwatch.SeriesOf("AWS/Scheduler", scheduleToDLQ, "ScheduleGroup=acklast-scheduled"))
			time.Sleep(time.Hour)
		},
	}, {
		name:   "Scheduler loses a job, since its role may send nowhere",
		rings:  []string{"schedule-lost"},
		within: 3,
		happens: func(w *world) {
			w.measure(time.Minute, 1, cloudwatch.SeriesOf("AWS/Scheduler", scheduleLost, "ScheduleGroup=acklast-scheduled"))
			time.Sleep(26 * time.Hour)
		},
	}, {
		name:   "EventBridge cannot start the census",
		rings:  []string{"census-failed"},
		within: 3,
		happens: func(w *world) {
			w.measure(time.Minute, 1, cloudwatch.SeriesOf("AWS/Events", ruleFailed, "RuleName="+w.rule))
			time.Sleep(time.Hour)
		},
	}, {
		name:   "the redrive function times out once",
		rings:  []string{"redrive-errors"},
		within: 3,
		happens: func(w *world) {
			w.measure(time.Minute, 1, cloudwatch.SeriesOf("AWS/Lambda", lambdaErrors, "FunctionName=acklast-redrive"))
			time.Sleep(time.Hour)
		},
	}, {
		name:   "a new version of the worker fails what it gets, until CodeDeploy rolls it back",
		rings:  []string{"new-version-errors", "worker-errors"},
		within: 4,
		happens: func(w *world) {
			w.measure(4*time.Minute, 1, cloudwatch.SeriesOf("AWS/Lambda", lambdaErrors, "FunctionName=acklast-worker"),
				cloudwatch.SeriesOf("AWS/Lambda", lambdaErrors, "FunctionName=acklast-worker", "Resource=acklast-worker:live", "ExecutedVersion="+w.version))
			time.Sleep(time.Hour)
		},
	}, {
		name:   "Lambda drops the census",
		rings:  []string{"census-failed"},
		within: 3,
		happens: func(w *world) {
			w.measure(time.Minute, 1, cloudwatch.SeriesOf("AWS/Lambda", lambdaDropped, "FunctionName=acklast-redrive"))
			time.Sleep(time.Hour)
		},
	},
}
