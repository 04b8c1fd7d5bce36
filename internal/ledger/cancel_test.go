package ledger_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
)

func TestCancelEndsAJobThatNobodyIsAtWorkOn(t *testing.T) {
	at := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	later := at.Add(300 * 24 * time.Hour)
	rules := ledger.Rules{Retention: time.Hour}
	d := job.Delivery{Key: "k/s", Subject: "s", Envelope: job.Envelope{Kind: "k"}}
	far := d
	far.Envelope.NotBefore = later
	for name, tt := range map[string]struct {
		entry    ledger.Entry
		delivery job.Delivery
		ttl      time.Time
	}{
		"never delivered":          {ledger.Entry{}, d, at.Add(time.Hour)},
		"never delivered, far off": {ledger.Entry{}, far, later.Add(time.Hour)},
		"a retry waits":            {ledger.Entry{Version: 2, Key: "k/s", Status: ledger.Pending, Attempts: 1, RetryAt: later}, d, at.Add(time.Hour)},
		"due far ahead":            {ledger.Entry{Version: 1, Key: "k/s", Status: ledger.Pending, Due: later}, d, later.Add(time.Hour)},
		"isolated":                 {ledger.Entry{Version: 3, Key: "k/s", Status: ledger.Isolated, LastClass: job.Rejected}, d, at.Add(time.Hour)},
		"ambiguous, found not to be sent": {ledger.Entry{Version: 3, Key: "k/s", Status: ledger.Isolated, LastClass: job.Ambiguous,
			Unresolved: true, OpenClaims: 1, Decided: ledger.NotSent}, d, at.Add(time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := rules.Cancel(tt.entry, tt.delivery, ledger.Decision{At: at, By: "shop", Reason: "order withdrawn"})
			if err != nil {
				t.Fatal(err)
			}
			for what, pair := range map[string][2]any{
				"status":     {e.Status, ledger.Terminal},
				"outcome":    {e.Outcome, ledger.Cancelled},
				"key":        {e.Key, "k/s"},
				"TTL":        {e.TTL, tt.ttl},
				"finalAt":    {e.FinalAt, at},
				"retryAt":    {e.RetryAt, time.Time{}},
				"attempts":   {e.Attempts, tt.entry.Attempts},
				"unresolved": {e.Unresolved, false},
				"decided":    {e.Decided, ledger.DecisionKind("")},
				"decisions":  {e.Decisions, []ledger.Decision{{At: at, By: "shop", What: ledger.Cancel, Reason: "order withdrawn"}}},
			} {
				if !reflect.DeepEqual(pair[0], pair[1]) {
					t.Errorf("%s = %v, want %v", what, pair[0], pair[1])
				}
			}
		})
	}
}

func TestCancelIsRefused(t *testing.T) {
	at := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		entry ledger.Entry
		want  error
		until time.Time
	}{
		"done":                    {ledger.Entry{Status: ledger.Done}, ledger.ErrFinal, time.Time{}},
		"expired":                 {ledger.Entry{Status: ledger.Expired}, ledger.ErrFinal, time.Time{}},
		"terminal":                {ledger.Entry{Status: ledger.Terminal}, ledger.ErrFinal, time.Time{}},
		"a live lease":            {ledger.Entry{Status: ledger.Running, Unresolved: true, LeaseUntil: at.Add(1)}, nil, at.Add(1)},
		"a lease without its end": {ledger.Entry{Status: ledger.Running, Unresolved: true}, nil, time.Time{}},
		"a lease that ended":      {ledger.Entry{Status: ledger.Running, Unresolved: true, LeaseUntil: at}, ledger.ErrUnresolved, time.Time{}},
		"a retry after a call":    {ledger.Entry{Status: ledger.Pending, Unresolved: true}, ledger.ErrUnresolved, time.Time{}},
		"isolated after a call":   {ledger.Entry{Status: ledger.Isolated, Unresolved: true, LastClass: job.Crashed}, ledger.ErrUnresolved, time.Time{}},
		"ambiguous":               {ledger.Entry{Status: ledger.Isolated, LastClass: job.Ambiguous}, ledger.ErrUnresolved, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.entry.Version = 1
			e, err := ledger.Rules{}.Cancel(tt.entry, job.Delivery{Key: "k/s"}, ledger.Decision{At: at, By: "b", Reason: "r"})
			if !reflect.DeepEqual(e, tt.entry) {
				t.Errorf("the entry changed to %+v", e)
			}
			var notYet *ledger.NotYetError
			switch {
			case tt.want != nil && !errors.Is(err, tt.want):
				t.Errorf("Cancel() = %v, want %v", err, tt.want)
			case tt.want == nil && !errors.As(err, &notYet):
				t.Errorf("Cancel() = %v, want a NotYetError", err)
			case tt.want == nil && !notYet.Until.Equal(tt.until):
				t.Errorf("until %v, want %v", notYet.Until, tt.until)
			}
		})
	}
}
