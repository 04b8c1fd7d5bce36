package e2e_test

import (
	"testing"

	"acklast/internal/job"
	"acklast/internal/kinds/reservation"
	"acklast/internal/lanes"
	"acklast/internal/local"
	"acklast/internal/local/faults"
	"acklast/internal/topology"
)

// If the worker can do nothing at all, SQS moves the message after maxReceiveCount receives. It arrives as it
// was sent, without our attribute and without an entry in the ledger.
func TestWhatTheWorkerNeverHandledIsMovedBySQS(t *testing.T) {
	settings := topology.Scaled()
	settings.MaxReceiveCount = 5
	e := newEmbeddedWith(t, settings, local.DefaultProcesses)
	mend := e.faults.Add(faults.Rule{Match: mentions(`"TableName"`), Fault: faults.Error(400, "AccessDeniedException", "not authorized")})
	// A message is left, and spends its receives, only if it cannot be handed back either.
	mute := e.faults.Add(faults.Rule{Operation: "SendMessageBatch", Fault: faults.Error(400, "InvalidParameterValue", "no")})
	h := e.hold("forgotten", 2, 0)
	attributes := map[string]job.Attribute{
		"tenant": {Type: "Number.int", String: "12"}, "seal": {Type: "Binary.sha", Binary: []byte{0, 1, 0xFE, 0xFF}},
	}
	e.send(e.body(h), attributes)
	m := e.fromDLQ(e.body(h))
	if len(m.Attributes) != len(attributes) || m.Memory != (job.Memory{}) || m.MemoryErr != nil {
		t.Errorf("attributes %+v, memory %+v", m.Attributes, m.Memory)
	}
	for name, want := range attributes {
		if got := m.Attributes[name]; got.Type != want.Type || got.String != want.String || string(got.Binary) != string(want.Binary) {
			t.Errorf("attribute %s is %+v, want %+v", name, got, want)
		}
	}
	e.dry()
	e.wantDLQ(1)
	if got := e.entry(e.key(h)); got.Version != 0 {
		t.Errorf("entry %+v", got)
	}
	if n := e.tally.Total(e.key(h)); n != e.tally.Of(e.key(h))[string(job.Left)] {
		t.Errorf("outcomes %v, want nothing but left", e.tally.Of(e.key(h)))
	}

	// Put back by hand after the worker has recovered, it is a job like any other.
	mend()
	mute()
	e.restore(h)
	if err := e.queues.Send(t.Context(), job.Source, []lanes.Move{{Message: m.Message}})[0]; err != nil {
		t.Fatal(err)
	}
	if got := e.ends(h, "done"); got.Outcome != reservation.Released || got.Redrives != 0 {
		t.Errorf("entry %+v", got)
	}
}
