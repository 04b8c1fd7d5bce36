package telemetry

import (
	"io"
	"sync"
	"time"
)

// The redrive's metrics, under the one dimension stack.
const (
	// MetricRedriven counts jobs that were sent back to the recovery lane.
	MetricRedriven = "Redriven"
	// MetricRedriveFailed counts jobs that a run could not send.
	MetricRedriveFailed = "RedriveFailed"
	// MetricRedriveStopped counts runs that a condition or the kill switch stopped.
	MetricRedriveStopped = "RedriveStopped"
)

// RedriveRecorder writes the redrive's metrics. It is safe for concurrent use.
type RedriveRecorder struct {
	mu sync.Mutex
	r  *Recorder
}

// NewRedriveRecorder returns a recorder for a stack that writes to w.
func NewRedriveRecorder(w io.Writer, stack string, now func() time.Time) *RedriveRecorder {
	return &RedriveRecorder{r: NewRecorder(w, stack, now)}
}

// Redriven writes the counts of one cohort, or of the end of a run. Metrics that cannot be written are lost, as
// in the worker.
func (p *RedriveRecorder) Redriven(moved, failed, stopped int) {
	if moved+failed+stopped == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.r.buf = p.r.buf[:0]
	p.r.line(p.r.now(), []dimension{{DimensionStack, p.r.stack}}, []count{
		{MetricRedriven, int64(moved)}, {MetricRedriveFailed, int64(failed)}, {MetricRedriveStopped, int64(stopped)},
	}, nil)
	_, _ = p.r.w.Write(p.r.buf)
}
