package local

import (
	"bytes"
	"encoding/json"
	"maps"
	"sync"

	"acklast/internal/job"
	"acklast/internal/telemetry"
)

// Duplicate is the name under which a Tally counts deliveries that found their job final. The worker logs them
// as acknowledged, with KeyDuplicate.
const Duplicate = "duplicate"

// Tally is a writer that reads the worker's log and counts the outcomes of each job's deliveries. It is safe
// for concurrent use.
type Tally struct {
	mu   sync.Mutex
	seen map[string]map[string]int // key, outcome
}

// NewTally returns an empty tally.
func NewTally() *Tally { return &Tally{seen: map[string]map[string]int{}} }

// Write takes whole lines of a log. It skips lines that are not about a delivery.
func (t *Tally) Write(lines []byte) (int, error) {
	for line := range bytes.Lines(lines) {
		t.read(line)
	}
	return len(lines), nil
}

func (t *Tally) read(line []byte) {
	var fields map[string]any
	if json.Unmarshal(line, &fields) != nil {
		return
	}
	outcome, ok := fields[telemetry.KeyOutcome].(string)
	if !ok {
		return
	}
	if fields[telemetry.KeyDuplicate] == true {
		outcome = Duplicate
	}
	key, _ := fields[telemetry.KeyJob].(string)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen[key] == nil {
		t.seen[key] = map[string]int{}
	}
	t.seen[key][outcome]++
}

// Of returns how many of the job's deliveries had each outcome.
func (t *Tally) Of(key string) map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.seen[key])
}

// Total returns how many deliveries of the job were seen.
func (t *Tally) Total(key string) int {
	n := 0
	for _, count := range t.Of(key) {
		n += count
	}
	return n
}

// Effects returns how many deliveries of the job made it final.
func (t *Tally) Effects(key string) int { return t.Of(key)[string(job.Acknowledged)] }
