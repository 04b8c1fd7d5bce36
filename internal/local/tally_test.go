package local_test

import (
	"log/slog"
	"maps"
	"testing"

	"acklast/internal/local"
	"acklast/internal/telemetry"
)

func TestTally(t *testing.T) {
	tally := local.NewTally()
	log := telemetry.NewLogger(tally, slog.LevelInfo)
	log.Info("delivery", telemetry.KeyJob, "k/1", telemetry.KeyOutcome, "acknowledged")
	log.Info("delivery", telemetry.KeyJob, "k/1", telemetry.KeyOutcome, "acknowledged", telemetry.KeyDuplicate, true)
	log.Warn("delivery", telemetry.KeyJob, "k/1", telemetry.KeyOutcome, "retried")
	log.Warn("visibility not changed", telemetry.KeyLane, "source")
	lines := "not JSON\n" + `{"key":"k/2","outcome":"left"}` + "\n" + `{"key":"k/2","outcome":"left"}` + "\n"
	if n, err := tally.Write([]byte(lines)); n != len(lines) || err != nil {
		t.Errorf("Write() = %d, %v", n, err)
	}
	if got, want := tally.Of("k/1"), (map[string]int{"acknowledged": 1, local.Duplicate: 1, "retried": 1}); !maps.Equal(got, want) {
		t.Errorf("Of(k/1) = %v, want %v", got, want)
	}
	if tally.Effects("k/1") != 1 || tally.Total("k/1") != 3 || tally.Total("k/2") != 2 || tally.Total("k/3") != 0 {
		t.Errorf("effects %d, totals %d, %d", tally.Effects("k/1"), tally.Total("k/1"), tally.Total("k/2"))
	}
}
