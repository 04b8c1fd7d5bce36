package redrive

import (
	"acklast/internal/job"
	"slices"
	"strings"
	"time"
)

// Filter selects messages of the DLQ. Its lists are alternatives, its fields conditions that all hold.
type Filter struct {
	// All says that everything is meant; without any other condition it has to be said.
	All      bool        `json:"all,omitempty"`
	Classes  []job.Class `json:"classes,omitempty"`
	Causes   []job.Cause `json:"causes,omitempty"`
	Kinds    []string    `json:"kinds,omitempty"`
	Keys     []string    `json:"keys,omitempty"`
	Subjects []string    `json:"subjects,omitempty"`
	Messages []string    `json:"messages,omitempty"`
	// Fingerprints are errors without what differs from job to job, as a look groups them. ErrorText is a
	// part of the error's text, in any case.
	Fingerprints []string `json:"fingerprints,omitempty"`
	ErrorText    string   `json:"errorText,omitempty"`
	// Generations are how often the jobs were redriven.
	Generations []int `json:"generations,omitempty"`
	// OlderThan and YoungerThan bound the time since the isolation, such as "2h30m".
	OlderThan   string `json:"olderThan,omitempty"`
	YoungerThan string `json:"youngerThan,omitempty"`
}

func (f Filter) check() error {
	conditions := len(f.Classes) + len(f.Causes) + len(f.Kinds) + len(f.Keys) + len(f.Subjects) + len(f.Messages) + len(f.Generations) + len(f.Fingerprints)
	if f.ErrorText != "" {
		conditions++
	}
	for name, text := range map[string]string{"olderThan": f.OlderThan, "youngerThan": f.YoungerThan} {
		if text != "" {
			conditions++
			if d, err := time.ParseDuration(text); err != nil || d < 0 {
				return refuse("%s is %q, want a duration such as 2h30m", name, text)
			}
		}
	}
	switch {
	case conditions == 0 && !f.All:
		return refuse(`the selection is empty: name classes, causes, kinds, keys, subjects, messages, errors or ages, or say "all": true`)
	case conditions > 0 && f.All:
		return refuse(`the selection says "all" and names conditions as well: choose one`)
	}
	return nil
}

func (f Filter) named(id string) bool { return slices.Contains(f.Messages, id) }

func (f Filter) matches(it item, now time.Time) bool {
	in := func(n int, contains bool) bool { return n == 0 || contains }
	age := now.Sub(it.isolatedAt)
	older, _ := time.ParseDuration(f.OlderThan)
	younger, _ := time.ParseDuration(f.YoungerThan)
	return in(len(f.Classes), slices.Contains(f.Classes, it.class)) &&
		in(len(f.Causes), slices.Contains(f.Causes, it.cause)) &&
		in(len(f.Kinds), slices.Contains(f.Kinds, it.kind)) &&
		in(len(f.Keys), slices.Contains(f.Keys, it.key)) &&
		in(len(f.Subjects), slices.Contains(f.Subjects, it.subject)) &&
		in(len(f.Messages), f.named(it.id)) &&
		in(len(f.Fingerprints), slices.Contains(f.Fingerprints, it.fingerprint)) &&
		strings.Contains(strings.ToLower(it.error), strings.ToLower(f.ErrorText)) &&
		in(len(f.Generations), slices.Contains(f.Generations, it.generation)) &&
		(f.OlderThan == "" || age > older) && (f.YoungerThan == "" || age < younger)
}
