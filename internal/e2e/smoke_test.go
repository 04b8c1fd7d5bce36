package e2e_test

import (
	"fmt"
	"testing"
	"time"

	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/lanes"
)

// A stack of any place passes its own check.
func TestASmokeJobHasItsEffectOnce(t *testing.T) {
	s := blackBox(t)
	id := "e2e-" + s.id
	body := fmt.Sprintf(`{"kind":%q,"payload":{"id":%q}}`, job.SmokeKind, id)
	for _, err := range s.queues.Send(t.Context(), job.Source, []lanes.Move{{Message: job.Message{Body: body}}, {Message: job.Message{Body: body}}}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	var c dynamo.SmokeCounter
	for deadline := time.Now().Add(2 * time.Minute); c.Done < 2; time.Sleep(200 * time.Millisecond) {
		var err error
		if c, err = s.ledger.ReadSmoke(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("after two minutes the counter is %+v", c)
		}
	}
	if c.Effects != 1 {
		t.Errorf("%d effects, want 1", c.Effects)
	}
	if limit := time.Now().Add(time.Hour); c.TTL.After(limit) {
		t.Errorf("the counter expires at %v, want within the hour", c.TTL)
	}
}
