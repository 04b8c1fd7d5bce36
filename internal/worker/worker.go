// Package worker turns an SQS batch into outcomes.
//
// Every record of a batch is attempted beside the others and ends in exactly one outcome. What has to
// move to another queue is sent at the end, and only what is confirmed is acknowledged: everything
// else is reported as failed, so that SQS delivers it again. A record is never acknowledged before its
// commit or its hand-over is confirmed.
//
//	records ─▶ attempt (side by side) ─▶ hand over (one batch per queue) ─▶ back off what is left ─▶ batchItemFailures
//
// Deliveries that came back again and again are suspected of killing the process and run alone; see
// suspects.
package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"golang.org/x/sync/errgroup"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/retry"
	"acklast/internal/telemetry"
)

// Ledger is what the worker uses of the ledger's store.
type Ledger interface {
	Get(ctx context.Context, key string) (ledger.Entry, error)
	Update(ctx context.Context, key, token string, change func(ledger.Entry) (ledger.Entry, error)) (ledger.Entry, error)

	ReadStrikes(ctx context.Context, messageID string) (ledger.Strikes, error)
	Strike(ctx context.Context, old ledger.Strikes, end time.Time) (ledger.Strikes, error)
	NameStrikes(ctx context.Context, old ledger.Strikes, key, subject, kind string) (ledger.Strikes, error)
	ClearStrikes(ctx context.Context, old ledger.Strikes) error
}

// Lanes is what the worker uses of the queues.
type Lanes interface {
	Send(ctx context.Context, to job.Queue, moves []lanes.Move) []error
	Backoff(ctx context.Context, lane job.Queue, items []lanes.Backoff) error
	Delete(ctx context.Context, from job.Queue, messages []job.Message) []error
}

// Dependencies are what a Handler works with. All are required.
type Dependencies struct {
	Ledger  Ledger
	Lanes   Lanes
	Runs    Runs
	Kinds   job.Catalogue
	Metrics *telemetry.Recorder
	Log     *slog.Logger
	Now     func() time.Time
	// Random returns a number in [0,1), for jitter.
	Random func() float64
	// Token returns a new owner token.
	Token func() string
}

// Handler is the worker's Lambda handler.
type Handler struct {
	config  Config
	ledger  Ledger
	lanes   Lanes
	runs    Runs
	kinds   job.Catalogue
	metrics *telemetry.Recorder
	log     *slog.Logger
	now     func() time.Time
	random  func() float64
	token   func() string
}

// New returns a handler.
func New(c Config, d Dependencies) *Handler {
	return &Handler{
		config: c, ledger: d.Ledger, lanes: d.Lanes, runs: d.Runs, kinds: d.Kinds,
		metrics: d.Metrics, log: d.Log, now: d.Now, random: d.Random, token: d.Token,
	}
}

// errEverythingLeft fails an invocation of which nothing could be confirmed, so that the function's
// Errors metric shows it. For SQS it is the same as reporting every record.
var errEverythingLeft = errors.New("every record of the batch was left")

// Handle processes one batch. The response is never nil and names each failed message once.
func (h *Handler) Handle(ctx context.Context, event events.SQSEvent) (events.SQSEventResponse, error) {
	steps := make([]*step, len(event.Records))
	known := newRuns(h.runs)
	var suspects, others []*step
	for i := range event.Records {
		steps[i] = h.open(event.Records[i])
		steps[i].runs = known
		if steps[i].newer != nil {
			h.waitForNewer(steps[i], steps[i].newer)
		} else if steps[i].ReceiveCount >= suspectFrom && steps[i].ID != "" { // strikes are kept under the id
			suspects = append(suspects, steps[i])
		} else {
			others = append(others, steps[i])
		}
	}
	var group errgroup.Group
	group.SetLimit(h.config.Concurrency)
	for _, s := range others {
		group.Go(func() error {
			h.guarded(ctx, s, h.run)
			return nil
		})
	}
	_ = group.Wait() // no attempt returns an error: each ends in its step

	if len(suspects) > 0 {
		h.flush(ctx, others)
		h.suspects(ctx, suspects)
	}
	h.handOver(ctx, steps)
	h.backOff(ctx, steps)
	return h.conclude(ctx, steps)
}

// step is what is known of one record, and in the end its one outcome.
type step struct {
	job.Delivery
	read job.Decoded
	runs *runs

	outcome   job.Outcome
	duplicate bool
	probe     bool // a service's test message
	detail    string
	class     job.Class
	cause     job.Cause
	err       error

	// A move to another queue; the outcome holds once it is confirmed.
	to    job.Queue
	move  lanes.Move
	moves bool

	// settled says that the step is through: its move, if any, was sent or refused.
	settled bool
	strikes ledger.Strikes

	// newer says that our own attribute has a format of a newer version.
	newer *job.NewerError
}

// open reads what the record tells without its body. Its outcome starts as left: a record of which
// nothing else becomes known is not acknowledged.
func (h *Handler) open(r events.SQSMessage) *step {
	message, memoryErr := message(r)
	s := &step{Delivery: job.Delivery{Message: message, Lane: h.lane(r.EventSourceARN), Token: h.token()}, outcome: job.Left}
	if errors.As(memoryErr, &s.newer) {
		return s
	}
	if memoryErr != nil {
		h.log.Warn("own attribute ignored", telemetry.KeyMessageID, r.MessageId, telemetry.KeyError, memoryErr.Error())
	}
	return s
}

func (h *Handler) lane(queueARN string) job.Queue {
	switch queueARN[strings.LastIndexByte(queueARN, ':')+1:] {
	case h.config.Names.SourceQueue:
		return job.Source
	case h.config.Names.RecoveryQueue:
		return job.Recovery
	}
	return job.Unknown
}

// guarded runs a record unless too little time is left, and lets it run only until the hand-over's
// time begins. A panic is this record's alone.
func (h *Handler) guarded(ctx context.Context, s *step, run func(context.Context, *step)) {
	defer s.recover(h.log)
	if deadline, ok := ctx.Deadline(); ok {
		if left := deadline.Sub(h.now()); left < h.config.StartMargin {
			s.leave(fmt.Errorf("not started: %v of the invocation left, less than %v", left.Round(time.Millisecond), h.config.StartMargin))
			return
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-h.config.HandoverMargin))
		defer cancel()
	}
	run(ctx, s)
}

// run takes a record from its bytes to its outcome.
func (h *Handler) run(ctx context.Context, s *step) {
	if h.readBody(s) {
		h.decide(ctx, s)
	}
}

// recover turns a panic of the record into a delivery that is left. It must be deferred.
func (s *step) recover(log *slog.Logger) {
	if p := recover(); p != nil {
		s.leave(fmt.Errorf("panic: %v", p))
		log.Error("panic", telemetry.KeyMessageID, s.ID, telemetry.KeyStack, string(debug.Stack()))
	}
}

// handOver sends the steps' moves, a batch per queue, and leaves what is not confirmed.
func (h *Handler) handOver(ctx context.Context, steps []*step) {
	for _, to := range []job.Queue{job.Recovery, job.DLQ} {
		var going []*step
		var moves []lanes.Move
		for _, s := range steps {
			if s.moves && s.to == to && !s.settled {
				going = append(going, s)
				moves = append(moves, s.move)
			}
		}
		if len(moves) == 0 {
			continue
		}
		for i, err := range h.lanes.Send(ctx, to, moves) {
			if err != nil {
				going[i].leave(fmt.Errorf("hand over to %s: %w", to, err))
			}
		}
	}
}

// backOff makes what is left invisible for a while. It is best effort: without it the lane's
// visibility timeout does the same job less well.
func (h *Handler) backOff(ctx context.Context, steps []*step) {
	byLane := map[job.Queue][]lanes.Backoff{}
	for _, s := range steps {
		if s.outcome == job.Left && s.ReceiptHandle != "" && s.Lane != job.Unknown {
			byLane[s.Lane] = append(byLane[s.Lane], lanes.Backoff{
				MessageID: s.ID, ReceiptHandle: s.ReceiptHandle,
				For: retry.Left(h.config.LeftBackoffBase, h.config.LeftBackoffCap, s.ReceiveCount),
			})
		}
	}
	for lane, items := range byLane {
		if err := h.lanes.Backoff(ctx, lane, items); err != nil {
			h.log.Warn("visibility not changed", telemetry.KeyLane, lane, telemetry.KeyError, err.Error())
		}
	}
}

// conclude counts and logs every step once and builds the response.
func (h *Handler) conclude(ctx context.Context, steps []*step) (events.SQSEventResponse, error) {
	response := events.SQSEventResponse{BatchItemFailures: []events.SQSBatchItemFailure{}}
	requestID := ""
	if lc, ok := lambdacontext.FromContext(ctx); ok {
		requestID = lc.AwsRequestID
	}
	reported := map[string]bool{}
	left, nameless := 0, false
	for _, s := range steps {
		h.observe(ctx, requestID, s)
		if s.outcome != job.Left {
			continue
		}
		left++
		if s.ID == "" {
			nameless = true
		} else if !reported[s.ID] {
			reported[s.ID] = true
			response.BatchItemFailures = append(response.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: s.ID})
		}
	}
	h.metrics.BatchFailures(left)
	if err := h.metrics.Flush(); err != nil {
		h.log.Warn("metrics not written", telemetry.KeyError, err.Error())
	}
	switch {
	case nameless:
		return response, errors.New("a failed record has no message id: the response could not name it, and SQS would delete it")
	case left > 0 && left == len(steps):
		return response, errEverythingLeft
	}
	return response, nil
}

func (h *Handler) observe(ctx context.Context, requestID string, s *step) {
	kind := s.read.Kind.Name
	switch {
	case s.probe:
		kind = telemetry.KindProbe
	case kind == "":
		kind = telemetry.KindUnknown
	}
	o := telemetry.Observation{
		Kind: kind, Lane: s.Lane, Outcome: s.outcome, Class: s.class, Duplicate: s.duplicate,
	}
	if s.outcome == job.Acknowledged && !s.duplicate && !s.probe {
		now := h.now()
		o.Final = true
		o.TerminalLatency = now.Sub(s.Due())
		if !s.Envelope.Deadline.IsZero() {
			o.Lateness = max(now.Sub(s.Envelope.Deadline), 0)
		}
	}
	h.metrics.Observe(o)

	level := slog.LevelInfo
	switch s.outcome {
	case job.Retried:
		level = slog.LevelWarn
	case job.Isolated, job.Left:
		level = slog.LevelError
	}
	attempts := s.Memory.Attempt
	if s.moves {
		attempts = s.move.Message.Memory.Attempt
	}
	attrs := []slog.Attr{
		slog.String(telemetry.KeyRequestID, requestID),
		slog.String(telemetry.KeyMessageID, s.ID),
		slog.String(telemetry.KeyKind, kind),
		slog.String(telemetry.KeyJob, s.Key),
		slog.String(telemetry.KeyLane, string(s.Lane)),
		slog.Int(telemetry.KeyAttempt, attempts),
		slog.String(telemetry.KeyOutcome, string(s.outcome)),
	}
	add := func(key, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(key, value))
		}
	}
	add(telemetry.KeyClass, string(s.class))
	add(telemetry.KeyCause, string(s.cause))
	add(telemetry.KeyDetail, s.detail)
	if s.duplicate {
		attrs = append(attrs, slog.Bool(telemetry.KeyDuplicate, true))
	}
	if s.err != nil {
		add(telemetry.KeyError, job.SafeText(s.err.Error()))
	}
	h.log.LogAttrs(ctx, level, telemetry.MessageDelivery, attrs...)
}
