package redrive

import (
	"errors"
	"testing"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
)

func TestDecision(t *testing.T) {
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	late := job.Kind{Description: job.Description{Name: "late", Late: job.ExpireLate}}
	keyed := job.Decoded{Contents: job.Contents{Key: "k"}, Kind: job.Kind{Description: job.Description{Name: "test"}}}
	expiring := job.Decoded{Contents: job.Contents{Key: "k"}, Kind: late, Envelope: job.Envelope{Deadline: now.Add(-time.Second)}}
	isolated := ledger.Entry{Version: 1, Status: ledger.Isolated, LastClass: job.Transient}
	with := func(f func(*ledger.Entry)) ledger.Entry { e := isolated; f(&e); return e }
	invalid := &job.Failure{Class: job.Invalid, Err: errors.New("not JSON")}
	unknownKind := &job.Failure{Class: job.Rejected, Err: errors.New("kind is not known")}
	ours := job.Memory{Class: job.Transient, Cause: job.CauseAttempts}
	tests := map[string]struct {
		c     candidate
		named bool
		want  Action
		guard bool
	}{
		"isolated":                        {candidate{memory: ours, read: keyed, entry: isolated}, false, Redrive, false},
		"moved by SQS, no entry":          {candidate{read: keyed}, false, Redrive, false},
		"open, by an unconfirmed send":    {candidate{memory: ours, read: keyed, entry: with(func(e *ledger.Entry) { e.Status, e.Redrives = ledger.Pending, 3 })}, false, Redrive, false},
		"done":                            {candidate{memory: ours, read: keyed, entry: with(func(e *ledger.Entry) { e.Status = ledger.Done })}, false, Remove, false},
		"done, and named":                 {candidate{memory: ours, read: keyed, entry: with(func(e *ledger.Entry) { e.Status = ledger.Done })}, true, Remove, false},
		"expired":                         {candidate{memory: ours, read: keyed, entry: with(func(e *ledger.Entry) { e.Status = ledger.Expired })}, false, Remove, false},
		"live lease":                      {candidate{memory: ours, read: keyed, entry: with(func(e *ledger.Entry) { e.Status, e.LeaseUntil = ledger.Running, now.Add(1) })}, true, InProgress, false},
		"running without a lease time":    {candidate{memory: ours, read: keyed, entry: with(func(e *ledger.Entry) { e.Status = ledger.Running })}, true, InProgress, false},
		"lease that ended":                {candidate{memory: ours, read: keyed, entry: with(func(e *ledger.Entry) { e.Status, e.LeaseUntil = ledger.Running, now })}, false, Redrive, false},
		"past its deadline, runs late":    {candidate{memory: ours, read: job.Decoded{Contents: job.Contents{Key: "k"}, Envelope: expiring.Envelope}, entry: isolated}, false, Redrive, false},
		"past its deadline, expires":      {candidate{memory: ours, read: expiring, entry: isolated}, false, Late, false},
		"past its deadline, and named":    {candidate{memory: ours, read: expiring, entry: isolated}, true, Late, false},
		"past its business's end":         {candidate{memory: ours, read: keyed, entry: with(func(e *ledger.Entry) { e.ExpiresAt = now })}, false, Expired, false},
		"expired by its payload":          {candidate{memory: ours, read: job.Decoded{Contents: job.Contents{Key: "k", ExpiresAt: now}, Kind: keyed.Kind}, entry: isolated}, true, Expired, false},
		"malformed":                       {candidate{memory: job.Memory{Class: job.Invalid}, readErr: invalid}, false, Never, false},
		"malformed, named":                {candidate{memory: job.Memory{Class: job.Invalid}, readErr: invalid}, true, Redrive, true},
		"malformed, memory lies":          {candidate{memory: ours, readErr: invalid}, false, Never, false},
		"kind not known":                  {candidate{memory: job.Memory{Class: job.Rejected}, readErr: unknownKind}, false, Never, false},
		"kind not known, named":           {candidate{memory: job.Memory{Class: job.Rejected, Redrives: 3}, readErr: unknownKind}, true, Redrive, true},
		"its entry cannot be read":        {candidate{memory: ours, read: keyed, lookErr: errors.New("unavailable")}, true, Unsure, false},
		"foreign":                         {candidate{readErr: invalid}, false, Foreign, false},
		"foreign, named":                  {candidate{readErr: invalid}, true, Foreign, false},
		"foreign kind":                    {candidate{readErr: unknownKind}, true, Foreign, false},
		"ambiguous, message lies":         {candidate{memory: ours, read: keyed, entry: with(func(e *ledger.Entry) { e.LastClass = job.Ambiguous })}, true, NeedsDecision, false},
		"ambiguous":                       {candidate{memory: job.Memory{Class: job.Ambiguous}, read: keyed, entry: with(func(e *ledger.Entry) { e.LastClass = job.Ambiguous })}, true, NeedsDecision, false},
		"ambiguous, decided":              {candidate{memory: job.Memory{Class: job.Ambiguous}, read: keyed, entry: with(func(e *ledger.Entry) { e.LastClass, e.Decided = job.Ambiguous, ledger.NotSent })}, false, Redrive, false},
		"ambiguous, entry gone":           {candidate{memory: job.Memory{Class: job.Ambiguous}, read: keyed}, false, NeedsDecision, false},
		"convicted":                       {candidate{memory: job.Memory{Class: job.Crashed}, readErr: errors.New("not decoded")}, false, Redrive, false},
		"generation limit":                {candidate{memory: ours, read: keyed, entry: with(func(e *ledger.Entry) { e.Redrives = 3 })}, false, Limit, false},
		"generation limit, named":         {candidate{memory: ours, read: keyed, entry: with(func(e *ledger.Entry) { e.Redrives = 3 })}, true, Redrive, true},
		"generation forged low, entry up": {candidate{memory: job.Memory{Class: job.Transient, Redrives: 0, Run: "r"}, read: keyed, entry: with(func(e *ledger.Entry) { e.Redrives = 3 })}, false, Limit, false},
	}
	for name, tt := range tests {
		got, why, guard := tt.c.decide(tt.named, 3, now)
		if got != tt.want || (guard != "") != tt.guard || why == "" {
			t.Errorf("%s: %s (%s), guard %q; want %s", name, got, why, guard, tt.want)
		}
	}
}

func TestJudge(t *testing.T) {
	for name, tt := range map[string]struct {
		e         ledger.Entry
		want      Ending
		throttled bool
	}{
		"absent":                  {ledger.Entry{}, "", false},
		"not open yet":            {ledger.Entry{Version: 1, Run: "r-1", Status: ledger.Pending, Redrives: 1}, "", false},
		"open":                    {ledger.Entry{Version: 1, Run: "r-1", Status: ledger.Pending, Redrives: 2, Attempts: 3, BudgetFrom: 3, LastClass: job.Throttled}, "", false},
		"retried":                 {ledger.Entry{Version: 1, Run: "r-1", Status: ledger.Pending, Redrives: 2, Attempts: 4, BudgetFrom: 3, LastClass: job.Transient}, Retrying, false},
		"throttled":               {ledger.Entry{Version: 1, Run: "r-1", Status: ledger.Pending, Redrives: 2, Attempts: 3, BudgetFrom: 3, Throttles: 1, LastClass: job.Throttled}, "", true},
		"running":                 {ledger.Entry{Version: 1, Run: "r-1", Status: ledger.Running, Redrives: 2}, "", false},
		"done":                    {ledger.Entry{Version: 1, Run: "r-1", Status: ledger.Done, Redrives: 2}, Succeeded, false},
		"refused by the business": {ledger.Entry{Version: 1, Run: "r-1", Status: ledger.Terminal, Redrives: 2}, Succeeded, false},
		"expired":                 {ledger.Entry{Version: 1, Run: "r-1", Status: ledger.Expired, Redrives: 2}, TooLate, false},
		"brought back since":      {ledger.Entry{Version: 1, Run: "r-1", Status: ledger.Done, Redrives: 3}, Again, false},
		"taken over, done":        {ledger.Entry{Version: 1, Run: "r-2", Status: ledger.Done, Redrives: 2}, TakenOver, false},
		"taken over, open":        {ledger.Entry{Version: 1, Run: "r-2", Status: ledger.Pending, Redrives: 2}, TakenOver, false},
		"taken over, expired":     {ledger.Entry{Version: 1, Run: "r-2", Status: ledger.Expired, Redrives: 2}, TakenOver, false},
		"put back, done":          {ledger.Entry{Version: 1, Status: ledger.Done, Redrives: 2}, TakenOver, false},
		"taken over, isolated":    {ledger.Entry{Version: 1, Run: "r-2", Status: ledger.Isolated, Redrives: 2}, Again, false},
		"isolated again":          {ledger.Entry{Version: 1, Run: "r-1", Status: ledger.Isolated, Redrives: 2}, Again, false},
		"revoked":                 {ledger.Entry{Version: 1, Run: "r-1", Status: ledger.Isolated, Redrives: 1, Cause: job.CauseRevoked}, Again, false},
	} {
		got, _, throttled := judge(tt.e, "r-1", 2)
		if got != tt.want {
			t.Errorf("%s: ending %q, want %q", name, got, tt.want)
		}
		if throttled != tt.throttled {
			t.Errorf("%s: throttled %v, want %v", name, throttled, tt.throttled)
		}
	}
}
