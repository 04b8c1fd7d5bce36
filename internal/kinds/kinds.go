// Package kinds is the catalogue of the kinds of job: the one place where a kind is registered.
package kinds

import (
	"fmt"
	"slices"

	"acklast/internal/job"
	"acklast/internal/reminder"
	"acklast/internal/reservation"
)

// Dependencies are what the kinds need to run. A catalogue that only reads jobs, such as the CLI's,
// leaves them zero.
type Dependencies struct {
	Reservations *reservation.Expirer
	Reminders    *reminder.Sender
}

// All returns every kind there is. A new kind is one line here.
func All(d Dependencies) Catalogue {
	return New(
		reservation.Kind(d.Reservations),
		reminder.Kind(d.Reminders),
	)
}

// Catalogue finds kinds by name.
type Catalogue struct{ byName map[string]job.Kind }

// New makes a catalogue. It panics on two kinds of one name, which is a mistake in the program.
func New(kinds ...job.Kind) Catalogue {
	c := Catalogue{byName: make(map[string]job.Kind, len(kinds))}
	for _, k := range kinds {
		if _, twice := c.byName[k.Name]; twice {
			panic("kinds: " + k.Name + " is registered twice")
		}
		c.byName[k.Name] = k
	}
	return c
}

// Names returns the kinds' names in order.
func (c Catalogue) Names() []string {
	var names []string
	for n := range c.byName {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Job is a body that was read to its end: a known kind and a valid payload.
type Job struct {
	Envelope job.Envelope
	Kind     job.Kind
	Key      string
	Subject  string
}

// Read decodes a body and finds its kind and key. Its error is job.ErrProbe, or a *job.Failure: Invalid
// for a body that can never be read, Rejected for a kind that nobody registered, which a newer worker may
// know.
func (c Catalogue) Read(body string) (Job, error) {
	e, err := job.Decode([]byte(body))
	if err != nil {
		return Job{}, err
	}
	k, ok := c.byName[e.Kind]
	if !ok {
		return Job{Envelope: e}, &job.Failure{Class: job.Rejected,
			Err: fmt.Errorf("kind %q is not known to this worker, which knows %q", e.Kind, c.Names())}
	}
	key, subject, err := k.Key(e.Payload)
	if err != nil {
		return Job{Envelope: e, Kind: k}, err
	}
	return Job{Envelope: e, Kind: k, Key: key, Subject: subject}, nil
}
