// Package worker turns an SQS batch into outcomes.
//
// The records of a batch run side by side, and each ends in exactly one outcome. Moves to other queues are sent
// at the end. Only confirmed records are acknowledged: all others are reported as failed, so that SQS delivers
// them again. A record is never acknowledged before its commit or its hand-over is confirmed.
//
//	records ─▶ attempt (side by side) ─▶ hand over (one batch per queue) ─▶ back off what is left ─▶ batchItemFailures
//
// A delivery that came back again and again is suspected of killing the process and runs alone; see suspects.
package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"golang.org/x/sync/errgroup"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/ledger"
	"acklast/internal/retry"
	"acklast/internal/schedule"
	"acklast/internal/telemetry"
)

// Ledger is the part of the ledger's store that the worker uses.
type Ledger interface {
	Get(ctx context.Context, key string) (ledger.Entry, error)
	Update(ctx context.Context, key, token string, change func(ledger.Entry) (ledger.Entry, error)) (ledger.Entry, error)

	ReadStrikes(ctx context.Context, messageID string) (ledger.Strikes, error)
	Strike(ctx context.Context, messageID, token, kind string, end time.Time) error
	ClearStrike(ctx context.Context, messageID, token string) error
	NameSuspect(ctx context.Context, d job.Delivery) error
}

// Lanes is the part of the queues that the worker uses.
type Lanes interface {
	Send(ctx context.Context, to job.Queue, moves []lanes.Move) []error
	Backoff(ctx context.Context, lane job.Queue, items []lanes.Backoff) error
	Delete(ctx context.Context, from job.Queue, messages []job.Message) []error
}

// Scheduler is what the worker uses of EventBridge Scheduler.
type Scheduler interface {
	Create(ctx context.Context, name string, at, now time.Time, m schedule.Message) error
}

// Dependencies are a Handler's dependencies. All are required.
type Dependencies struct {
	Ledger    Ledger
	Lanes     Lanes
	Operators Operators
	// Scheduler may be nil if the Config schedules nothing.
	Scheduler Scheduler
	Kinds     job.Catalogue
	Metrics   *telemetry.Recorder
	Log       *slog.Logger
	Now       func() time.Time
	// Random returns a number in [0,1), for jitter.
	Random func() float64
	// Token returns a new owner token.
	Token func() string
	// Exit ends the process. Invoke calls it after the response was sent, if a kind's code did not return in
	// time and still runs.
	Exit func()
}

// Handler is the worker's Lambda handler.
type Handler struct {
	config    Config
	ledger    Ledger
	lanes     Lanes
	operators Operators
	scheduler Scheduler
	kinds     job.Catalogue
	metrics   *telemetry.Recorder
	log       *slog.Logger
	now       func() time.Time
	random    func() float64
	token     func() string
	exit      func()
	pause     func(context.Context, time.Duration) error
	limits    *limits

	// unsafe says that nothing more may start in this process: a kind's code still runs.
	unsafe atomic.Bool

	// owed are the strikes that an invocation had no time to clear.
	owed   []strike
	owedMu sync.Mutex
}

// New returns a handler.
func New(c Config, d Dependencies) *Handler {
	return &Handler{
		config: c, ledger: d.Ledger, lanes: d.Lanes, operators: d.Operators, scheduler: d.Scheduler, kinds: d.Kinds,
		metrics: d.Metrics, log: d.Log, now: d.Now, random: d.Random, token: d.Token, exit: d.Exit,
		pause: retry.Sleep, limits: newLimits(c.Processes, d.Operators),
	}
}

// errEverythingLeft fails an invocation in which nothing could be confirmed, so that the function's Errors
// metric shows it. SQS treats it like a report of every record.
var errEverythingLeft = errors.New("every record of the batch was left")

// Invoke is Handle for a process that must not serve another invocation while a kind's code still runs. In that
// case the process ends when Lambda's runtime closes the response, which is after it was sent.
func (h *Handler) Invoke(ctx context.Context, event events.SQSEvent) (any, error) {
	response, err := h.Handle(ctx, event)
	if !h.unsafe.Load() || err != nil && !errors.Is(err, errEverythingLeft) {
		return response, err
	}
	body, err := json.Marshal(response)
	if err != nil {
		return response, err
	}
	return &lastResponse{Reader: bytes.NewReader(body), exit: func() {
		// There is no next invocation that would clear them. If the time is over, Lambda ends the process first.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.config.grace())
		defer cancel()
		h.clearOwed(ctx)
		h.exit()
	}}, nil
}

// lastResponse is a response after which the process ends.
type lastResponse struct {
	*bytes.Reader
	exit func()
}

// ContentType is the response's content type, which Lambda's runtime reads.
func (*lastResponse) ContentType() string { return "application/json" }

// Close ends the process.
func (r *lastResponse) Close() error {
	r.exit()
	return nil
}

// Handle processes one batch. The response is never nil and names each failed message once. Handle returns
// before the invocation ends, even if anything hangs: everything runs under a context that ends a little
// earlier.
func (h *Handler) Handle(ctx context.Context, event events.SQSEvent) (events.SQSEventResponse, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-h.config.answerMargin()))
		defer cancel()
	}
	steps := make([]*step, len(event.Records))
	known := newRuns(h.operators)
	var suspects, others []*step
	for i := range event.Records {
		steps[i] = h.open(event.Records[i])
		steps[i].runs = known
		switch {
		case steps[i].newer != nil:
			h.waitForNewer(steps[i], steps[i].newer)
		case steps[i].ReceiveCount >= suspectFrom && steps[i].ID != "": // strikes are kept under the id
			suspects = append(suspects, steps[i])
		default:
			others = append(others, steps[i])
		}
	}
	var group errgroup.Group
	group.SetLimit(h.config.Concurrency)
	meeting, slots := newGather(len(others)), newSlots(len(others))
	for _, s := range others {
		if len(others) <= h.config.Concurrency { // otherwise some would wait for others that cannot start
			s.gather = meeting
		}
		s.slots = slots
		h.guarded(ctx, s, h.begin)
		s.over = s.over || s.err != nil // not started, or a panic
	}
	for _, s := range others {
		group.Go(func() error {
			defer meeting.arrive(s, "")
			if !s.over {
				h.guarded(ctx, s, h.decide)
			}
			return nil
		})
	}
	group.Go(func() error {
		h.clearOwed(ctx)
		return nil
	})
	_ = group.Wait() // no attempt returns an error: each error is in its step

	if len(suspects) > 0 {
		h.flush(ctx, others)
		h.suspects(ctx, suspects)
	}
	h.handOver(ctx, steps)
	h.backOff(ctx, steps)
	return h.conclude(ctx, steps)
}

// largest is a memory with every field at its usual length. A message with room for it has room for ours: an
// error's text is left out if it does not fit.
var largest = func() job.Memory {
	id, at := strings.Repeat("x", 100), time.Date(2026, 12, 1, 10, 0, 0, 123456789, time.UTC)
	return job.Memory{
		Attempt: 1000, Contentions: 1000, Redrives: 1000, Outages: 1000, UnusedClaim: id, Run: id, MessageID: id, Copy: true, Fingerprint: id + id,
		Key:       strings.Repeat("x", job.MaxKey),
		FirstSent: at, ContendedFrom: at, OutageFrom: at, Opened: at, At: at, Class: job.Transient, Cause: job.CauseContention,
	}
}()

// largestSize is the size of the largest memory's attribute. It is computed once: encoding it for each record took a
// twentieth of the worker's processor time.
var largestSize = func() int {
	size, err := lanes.SizeOf(largest)
	if err != nil {
		panic(err) // it is constant
	}
	return size
}()

// open reads the parts of a record other than its body. Its outcome starts as left, so that a record is not
// acknowledged unless another outcome is known.
func (h *Handler) open(r events.SQSMessage) *step {
	message, memoryErr := message(r)
	s := &step{Delivery: job.Delivery{Message: message, Lane: h.lane(r.EventSourceARN), Token: h.token()}, outcome: job.Left}
	s.NoRoom = !lanes.HasRoom(message, largestSize)
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

// guarded runs a record unless too little time is left, and ends it when the hand-over's time begins. A panic
// affects only this record.
func (h *Handler) guarded(ctx context.Context, s *step, run func(context.Context, *step)) {
	defer s.recover(h.log)
	if deadline, ok := ctx.Deadline(); ok {
		deadline = deadline.Add(h.config.answerMargin()) // the invocation's own
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
	if h.begin(ctx, s); !s.over && h.name(ctx, s) {
		h.decide(ctx, s)
	}
}

// begin reads a record's body, and decides whether its attempt may start if nothing has to be looked up before. The
// one call that it may make is for the paused kinds, once in a while. It runs in the order of the batch's records,
// so that the first ones get the attempts that a slowed kind may start.
func (h *Handler) begin(ctx context.Context, s *step) {
	s.over = s.Envelope.Kind == "" && !h.readEnvelope(s) || !h.readPayload(s)
	if !s.over && h.ready(s) {
		s.admitted = h.admit(ctx, s)
		s.over = !s.admitted
	}
}

// recover turns a panic of our own code into a delivery that is left. It must be deferred.
func (s *step) recover(log *slog.Logger) {
	if p := recover(); p != nil {
		s.leave(panicError(p))
		log.Error("panic", telemetry.KeyMessageID, s.ID, telemetry.KeyStack, string(debug.Stack()))
	}
}

// handOver sends the steps' moves, a batch per queue, and leaves what is not confirmed.
func (h *Handler) handOver(ctx context.Context, steps []*step) {
	for _, to := range []job.Queue{job.Recovery, job.DLQ, job.Source} {
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

// backOff makes deliveries that are left invisible for a while. It is best effort: if it fails, the lane's
// visibility timeout applies, which suits them less well.
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
	left, counted, nameless := 0, 0, false
	for _, s := range steps {
		h.observe(ctx, requestID, s)
		if s.outcome != job.Left {
			continue
		}
		left++
		if s.Envelope.Kind != job.SmokeKind {
			counted++
		}
		if s.ID == "" {
			nameless = true
		} else if !reported[s.ID] {
			reported[s.ID] = true
			response.BatchItemFailures = append(response.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: s.ID})
		}
	}
	h.metrics.BatchFailures(counted)
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
		Outage: s.outage, ExpiredByOutage: s.expired && !s.Memory.OutageFrom.IsZero(),
		Copy: s.copied && s.cause != job.CauseConflict, Conflict: s.cause == job.CauseConflict, Paused: s.paused,
		Scheduled: s.scheduled, Cancelled: s.duplicate && s.detail == ledger.Cancelled,
	}
	if s.outcome == job.Acknowledged && !s.duplicate && !s.probe {
		now := h.now()
		o.Final = true
		due, deadline := s.Clock()
		o.TerminalLatency = now.Sub(due)
		if !deadline.IsZero() {
			o.Lateness = max(now.Sub(deadline), 0)
		}
	}
	// A check of the stack is no work: its jobs stay out of all counts, and so out of the alarms on them.
	if kind != job.SmokeKind {
		h.metrics.Observe(o)
	}

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
	// Logs cost more than the function itself at a trickle. So the line has no kind if the key begins with it, and
	// no attempts if there were none.
	attrs := append(make([]slog.Attr, 0, 12),
		slog.String(telemetry.KeyRequestID, requestID),
		slog.String(telemetry.KeyMessageID, s.ID),
	)
	add := func(key, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(key, value))
		}
	}
	if s.Key == "" {
		add(telemetry.KeyKind, kind)
	}
	add(telemetry.KeyJob, s.Key)
	add(telemetry.KeyLane, string(s.Lane))
	if attempts > 0 {
		attrs = append(attrs, slog.Int(telemetry.KeyAttempt, attempts))
	}
	add(telemetry.KeyOutcome, string(s.outcome))
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
