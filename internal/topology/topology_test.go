package topology

import (
	"strings"
	"testing"
	"time"
)

func TestSettingsKeepTheirInequalities(t *testing.T) {
	for name, s := range map[string]Settings{"default": Default(), "scaled": Scaled()} {
		if err := s.Validate(); err != nil {
			t.Errorf("%s settings: %v", name, err)
		}
	}
}

func TestValidateSaysWhichInequalityIsBroken(t *testing.T) {
	const day = 24 * time.Hour
	tests := []struct {
		name  string
		spoil func(*Settings)
		want  string
	}{
		{"visibility", func(s *Settings) { s.LaneVisibility = 6*s.WorkerTimeout - time.Second }, "lane visibility is 2m59s, below 6 × the worker timeout"},
		{"visibility with a window", func(s *Settings) { s.BatchWindow = time.Second }, "lane visibility"},
		{"fraction of a second", func(s *Settings) { s.LaneVisibility += time.Millisecond }, "whole seconds"},
		{"batch without window", func(s *Settings) { s.BatchSize = 11 }, "batch size is 11"},
		{"cap", func(s *Settings) { s.RecoveryConcurrency = 1 }, "recovery concurrency cap is 1"},
		{"receives", func(s *Settings) { s.MaxReceiveCount = 4 }, "maxReceiveCount is 4"},
		{"DLQ retention", func(s *Settings) { s.DLQRetention = s.LaneRetention }, "DLQ retention"},
		{"DLQ retention beyond SQS", func(s *Settings) { s.DLQRetention = 15 * day }, "SQS allows at most"},
		{"ledger retention", func(s *Settings) { s.LedgerRetention = s.DLQRetention + s.RedriveWindow + s.LaneRetention }, "ledger retention"},
		{"contentions", func(s *Settings) { s.MaxContentions = 0 }, "max contentions 0"},
		{"rollout", func(s *Settings) { s.RolloutWait = s.HopDelay + time.Second }, "rollout wait is 15m1s"},
		{"attempt time", func(s *Settings) { s.AttemptTime = 6001 * time.Millisecond }, "into the hand-over's time"},
		{"hop delay", func(s *Settings) { s.HopDelay = 901 * time.Second }, "hop delay"},
		{"start margin", func(s *Settings) { s.StartMargin = s.WorkerTimeout }, "no record would ever start"},
		{"handover margin", func(s *Settings) { s.HandoverMargin = s.StartMargin }, "start margin"},
		{"left backoff", func(s *Settings) { s.LeftBackoffCap = 13 * time.Hour }, "left backoff"},
		{"memory", func(s *Settings) { s.WorkerMemoryMB = 20480 }, "worker memory is 20480 MB, but Lambda allows 128 to 10240 MB"},
		{"receives", func(s *Settings) { s.MaxReceiveCount = 5000 }, "maxReceiveCount is 5000, but SQS allows at most 1000"},
		{"attempt time", func(s *Settings) { s.AttemptTime = 2 * time.Hour }, "attempt time is 2h0m0s, not between 0 and start margin - handover margin = 6s"},
		{"schedule below a hop", func(s *Settings) { s.ScheduleFrom = s.HopDelay - 1 }, "schedule from is 14m59"},
		{"schedule beyond hops", func(s *Settings) { s.ScheduleFrom = s.MaxAhead + 1 }, "schedule from is 24h"},
		{"schedule early", func(s *Settings) { s.ScheduleEarly = s.HopDelay }, "schedule early is 15m0s"},
		{"schedule late", func(s *Settings) { s.ScheduleEarly = 0 }, "schedule early is 0s"},
		{"schedule ahead", func(s *Settings) { s.ScheduleAhead += time.Second }, "schedule ahead is 9600h0m1s"},
		{"schedule and retention", func(s *Settings) { s.LedgerRetention = s.DLQRetention + s.RedriveWindow + s.LaneRetention + day }, "that Scheduler tries for = 792h0m0s"},
		{"attempts", func(s *Settings) { s.MaxAttempts = 0 }, "max attempts is 0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := Default()
			tt.spoil(&s)
			err := s.Validate()
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Validate() = %v, want it to say %q", err, tt.want)
			}
		})
	}
}

func TestNamesFollowFromTheStack(t *testing.T) {
	n := NamesOf("shop")
	want := []string{"shop-ledger", "shop-operations"}
	for i, table := range n.Tables() {
		if table.Name != want[i] {
			t.Errorf("table %d is %q, want %q", i, table.Name, want[i])
		}
	}
	if n.SourceQueue != "shop-source" || n.RecoveryQueue != "shop-recovery" || n.DLQ != "shop-dlq" {
		t.Errorf("queues are %q, %q, %q", n.SourceQueue, n.RecoveryQueue, n.DLQ)
	}
}
