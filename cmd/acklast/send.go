package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"acklast/internal/awsclient"
	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/topology"
)

const (
	// sendsInFlight is how many SendMessageBatch calls are made at once.
	sendsInFlight = 8
	// finishGrace is how long calls in flight may take after an interruption, so that the report says exactly
	// which jobs were sent.
	finishGrace = 5 * time.Second
	// progressEvery is how often progress is shown.
	progressEvery = 250 * time.Millisecond
	// namedFailures is how many failures are printed, keptFailures how many the answer has.
	namedFailures, keptFailures = 10, 1000
)

// sendReport is the answer of send.
type sendReport struct {
	// Queue is the queue sent to.
	Queue string `json:"queue"`
	// Sent counts the jobs that SQS confirmed, Failed the others.
	Sent   int `json:"sent"`
	Failed int `json:"failed"`
	// Failures are the errors of the first thousand of them.
	Failures []sendFailure `json:"failures,omitempty"`
	// NextLine is the line from which to continue if sending ended early; absent if it did not.
	NextLine int `json:"nextLine,omitzero"`
	// Job describes the job if the input was only one.
	Job *sentJob `json:"job,omitempty"`
}

// sendFailure is one job that SQS did not confirm. It may have arrived in spite of that.
type sendFailure struct {
	Line  int    `json:"line"`
	Error string `json:"error"`
}

// sentJob is one job that was sent.
type sentJob struct {
	Kind string `json:"kind"`
	// NotBefore is the earliest time of its effect; absent when that is at once.
	NotBefore time.Time `json:"notBefore,omitzero"`
}

func newSend(a *app) *cobra.Command {
	var (
		file       string
		from       int
		attributes []string
		group      string
	)
	cmd := &cobra.Command{
		Use:   "send [job | -]",
		Short: "Send jobs to the source lane",
		Long: `Send one job, given as an argument, or the jobs of a file or of standard input (-).

The input is either one JSON document or NDJSON, one job in each line; blank lines are skipped. Every
job is checked before any is sent: the form of its envelope, SQS's size and characters, and that its
notBefore lies at most 400 days ahead. If one is bad, its line is printed and nothing is sent. An input that
can be read only once, such as a pipe, is checked in parts of 32 MiB, each before it is sent. The worker
checks kind and payload: it isolates a job that it cannot read, and "acklast dlq" shows why.

A job that is not due yet is sent with SQS's delay, at most 15 minutes; after that the worker defers it
until it is due, or hands it to EventBridge Scheduler if that is hours ahead. You do nothing but set notBefore.
Without Scheduler, the worker isolates a job that is due more than 24 h ahead. Sending a job twice is safe: its
effect happens once.

An interruption (Ctrl-C) waits for the calls in flight, then prints how many jobs SQS has confirmed, and the
command that sends the rest.`,
		Example: `  acklast send '{"kind":"reservation.expire","payload":{"reservationId":"r-1","commandId":"hold-1","resourceId":"room-7","units":1}}'
  acklast send --file jobs.ndjson
  acklast send --file jobs.ndjson --from-line 1204
  generate | acklast send - --attribute tenant=t-7 --group t-7`,
		Args:              someArgs(0, 1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.starting(func(cmd *cobra.Command, args []string) error {
			attributes, err := readAttributes(attributes)
			if err != nil {
				return refuse("%w", err)
			}
			if err := lanes.CheckGroup(group); err != nil {
				return refuse("--group: %w", err)
			}
			if from < 1 {
				return refuse("--from-line is %d, but lines count from 1", from)
			}
			c := &checker{attributes: attributes, group: group, maxAhead: topology.Default().ScheduleAhead, now: a.now}
			ctx := cmd.Context()
			var jobs *source
			switch {
			case file != "" && len(args) > 0:
				return refuse("give either a job or --file")
			case file == "" && len(args) == 0:
				return refuse("give a job, --file FILE, or - for standard input")
			case file != "" || args[0] == "-":
				if file == "" {
					file = "-"
				}
				jobs, err = c.open(ctx, file, a.stdin, from, func(s string) { say(a.stderr, "%s\n", s) })
			default:
				jobs, err = c.single(args[0])
			}
			if err != nil {
				return err
			}
			defer jobs.close()
			return a.send(ctx, c, jobs, file)
		}),
	}
	flags := cmd.Flags()
	flags.StringVarP(&file, "file", "f", "", "file to read jobs from, - for standard input")
	flags.IntVar(&from, "from-line", 1, "line of the input to begin with")
	flags.StringArrayVar(&attributes, "attribute", nil, "message attribute name=value of type String for every job; may be repeated")
	flags.StringVar(&group, "group", "", "message group id for every job (fair queues)")
	return cmd
}

// send sends jobs that were checked, and prints the answer. file is their source, "" for an argument.
func (a *app) send(ctx context.Context, c *checker, jobs *source, file string) error {
	t, err := a.connect(ctx)
	if err != nil {
		return err
	}
	client, err := t.lanes(ctx, job.Source)
	if err != nil {
		return err
	}
	a.announce(ctx, t)
	s := &sending{api: client, explain: t.explain, checker: c, stderr: a.stderr, terminal: isTerminal(a.stderr), total: jobs.total}
	s.report.Queue = t.names.SourceQueue
	stopped := s.run(ctx, jobs.next)
	s.progress(true)

	r := s.report
	if hidden := r.Failed - namedFailures; hidden > 0 {
		say(a.stderr, "and %d more jobs are not confirmed\n", hidden)
	}
	if err := a.answer(r, func(w io.Writer) { printSent(w, r) }); err != nil {
		return err
	}
	if stopped != nil && file != "" {
		say(a.stderr, "acklast: %v\n", stopped)
		_, _ = io.WriteString(a.stderr, visible(a.goOn(file, r)))
		return &toldError{exitFailed}
	}
	if stopped != nil {
		return stopped
	}
	if r.Failed > 0 {
		return fmt.Errorf("%d of %d jobs are not confirmed as sent; sending them again does no harm", r.Failed, r.Failed+r.Sent)
	}
	return nil
}

func printSent(w io.Writer, r sendReport) {
	if j := r.Job; j != nil && r.Sent == 1 {
		due := "at once"
		if !j.NotBefore.IsZero() {
			due = stamp(j.NotBefore)
		}
		row(w, "KIND", "DUE", "QUEUE")
		row(w, j.Kind, due, r.Queue)
		return
	}
	row(w, "QUEUE", "SENT", "NOT CONFIRMED")
	row(w, r.Queue, r.Sent, r.Failed)
}

// goOn says how many jobs were sent, and prints the command that continues.
func (a *app) goOn(file string, r sendReport) string {
	args := slices.Clone(a.args)
	for i, s := range args {
		if s == "--from-line" && i+1 < len(args) {
			args = slices.Delete(args, i, i+2)
			break
		}
		if strings.HasPrefix(s, "--from-line=") {
			args = slices.Delete(args, i, i+1)
			break
		}
	}
	args = append(args, "--from-line", strconv.Itoa(r.NextLine))
	input := ""
	if file == "-" {
		input = ", with the same input"
	}
	return fmt.Sprintf("SQS has confirmed %d jobs; the first one it has not confirmed is in line %d or later. Go on%s:\n  %s\n",
		r.Sent, r.NextLine, input, shellWords(args))
}

// sending sends jobs in windows. The calls of a window are made at the same time, and the next window begins
// when all are answered. So there is always one line before which every job was tried.
type sending struct {
	api interface {
		Send(ctx context.Context, to job.Queue, moves []lanes.Move) []error
	}
	// explain puts an error of a call into words.
	explain  func(error) error
	checker  *checker
	stderr   io.Writer
	terminal bool
	total    int

	report sendReport
	shown  time.Time
}

// run sends the jobs of next until io.EOF. Its error says why it ended before; then NextLine is set.
func (s *sending) run(ctx context.Context, next func() (entry, error)) error {
	// Calls in flight may finish when ctx ends. If they were cut off, nobody would know which messages arrived.
	calls, cancel := outliving(ctx, finishGrace)
	defer cancel()
	last := 0
	for {
		window, end := fillWindow(next)
		if len(window) > 0 {
			if ctx.Err() != nil {
				s.report.NextLine = window[0].line
				return errors.New("interrupted")
			}
			last = window[len(window)-1].line
			errs := s.window(calls, window)
			if err := s.settle(ctx, window, errs); err != nil {
				return err
			}
			s.progress(false)
		}
		switch {
		case errors.Is(end, io.EOF):
			return nil
		case end != nil:
			s.report.NextLine = last + 1
			if ctx.Err() != nil {
				return errors.New("interrupted")
			}
			return end
		}
	}
}

func fillWindow(next func() (entry, error)) (window []entry, end error) {
	for len(window) < sendsInFlight*topology.MaxSendBatch {
		e, err := next()
		if err != nil {
			return window, err
		}
		window = append(window, e)
	}
	return window, nil
}

// window sends up to sendsInFlight batches at once.
func (s *sending) window(ctx context.Context, window []entry) []error {
	now := s.checker.now()
	moves := make([]lanes.Move, len(window))
	for i, e := range window {
		moves[i] = s.checker.move(e.body, e.envelope.NotBefore, now)
	}
	errs := make([]error, 0, len(window))
	batches := slices.Collect(slices.Chunk(moves, topology.MaxSendBatch))
	results := make([][]error, len(batches))
	var wait sync.WaitGroup
	for i, batch := range batches {
		wait.Go(func() { results[i] = s.api.Send(ctx, job.Source, batch) })
	}
	wait.Wait()
	for _, r := range results {
		errs = append(errs, r...)
	}
	return errs
}

// move makes the move of a job's message. The queue delays it as long as SQS allows.
func (c *checker) move(body string, notBefore, now time.Time) lanes.Move {
	return lanes.Move{
		Message: job.Message{Body: body, Attributes: c.attributes, Group: c.group},
		Delay:   min(max(notBefore.Sub(now), 0), topology.MaxDelay),
	}
}

// settle counts a window. It returns an error if sending should stop: calls were cut off by an interruption, or
// no job of a whole window was confirmed.
func (s *sending) settle(ctx context.Context, window []entry, errs []error) error {
	confirmed, first := 0, -1
	for i, err := range errs {
		switch {
		case err == nil:
			confirmed++
		case first < 0:
			first = i
		}
	}
	s.report.Sent += confirmed
	if s.total == 1 {
		e := window[0].envelope
		s.report.Job = &sentJob{Kind: e.Kind, NotBefore: e.NotBefore}
	}
	switch {
	case first < 0:
		return nil
	case ctx.Err() != nil:
		s.report.NextLine = window[first].line
		return errors.New("interrupted")
	case confirmed == 0 && s.total != 1:
		s.report.NextLine = window[0].line
		return fmt.Errorf("nothing is confirmed of lines %d to %d: %w", window[0].line, window[len(window)-1].line, s.explain(errs[0]))
	}
	for i, err := range errs {
		if err == nil {
			continue
		}
		why := unsent(err)
		s.report.Failed++
		if s.report.Failed <= namedFailures {
			s.progress(true)
			say(s.stderr, "line %d: %s\n", window[i].line, why)
		}
		if s.report.Failed <= keptFailures {
			s.report.Failures = append(s.report.Failures, sendFailure{Line: window[i].line, Error: why})
		}
	}
	return nil
}

// unsent says why one job is not confirmed.
func unsent(err error) string {
	if p, ok := awsclient.ProblemOf(err); ok {
		return lanes.ErrUnsent.Error() + ": " + p.String()
	}
	return err.Error()
}

// progress shows the progress on a terminal; done removes it.
func (s *sending) progress(done bool) {
	if !s.terminal || !done && time.Since(s.shown) < progressEvery {
		return
	}
	s.shown = time.Now()
	switch {
	case done:
		_, _ = io.WriteString(s.stderr, clearLine)
	case s.total > 0:
		_, _ = fmt.Fprintf(s.stderr, "\r%d of %d jobs sent", s.report.Sent, s.total)
	default:
		_, _ = fmt.Fprintf(s.stderr, "\r%d jobs sent", s.report.Sent)
	}
}

// outliving returns a context that ends some time after ctx does.
func outliving(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	c, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(grace):
			cancel()
		case <-c.Done():
		}
	})
	return c, func() { stop(); cancel() }
}
