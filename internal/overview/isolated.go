package overview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"acklast/internal/job"
	"acklast/internal/ledger"
)

// IsolatedCounted is how many isolated jobs are counted, the oldest first.
const IsolatedCounted = 10_000

// Isolated are the isolated jobs whose message SQS still keeps, by the ledger's index. Messages that SQS moved to
// the DLQ itself, malformed ones and copies have no entry, so they are not among them.
type Isolated struct {
	At time.Time `json:"at"`
	// Jobs counts them. A job whose entry a newer version wrote is in no group.
	Jobs int `json:"jobs"`
	// More says that there are more than the counted jobs.
	More bool `json:"more,omitzero"`
	// OldestAt is when the oldest was isolated, and DeletedAt when SQS deletes its message; absent without jobs.
	OldestAt  time.Time `json:"oldestAt,omitzero"`
	DeletedAt time.Time `json:"deletedAt,omitzero"`
	// Groups are the jobs by class, kind, cause and error, the largest first.
	Groups []Group `json:"groups"`
}

// Group is a group of isolated jobs that failed alike.
type Group struct {
	Class job.Class `json:"class"`
	Kind  string    `json:"kind"`
	Cause job.Cause `json:"cause"`
	// Fingerprint is the error without the parts that differ from job to job.
	Fingerprint string    `json:"fingerprint,omitzero"`
	Count       int       `json:"count"`
	OldestAt    time.Time `json:"oldestAt"`
	NewestAt    time.Time `json:"newestAt"`
	// Undecided counts the ambiguous jobs that wait for a decision.
	Undecided int `json:"undecided,omitzero"`
	// Jobs are the keys of some of them, the oldest first.
	Jobs []string `json:"jobs"`
}

// alike holds the fields that are equal for all jobs of a group.
type alike struct {
	class       job.Class
	kind        string
	cause       job.Cause
	fingerprint string
}

// groupJobs is how many keys a Group names.
const groupJobs = 10

// errEnough ends the reading of the index.
var errEnough = errors.New("enough jobs counted")

// isolated counts the isolated jobs. notTold names an entry that a newer version wrote, if there is one.
func (r *Reader) isolated(ctx context.Context, now time.Time) (found *Isolated, notTold string, err error) {
	retention := r.fixed[job.DLQ].Retention
	found = &Isolated{At: now, Groups: []Group{}}
	groups := map[alike]*Group{}
	var newer error // of the first such entry
	unread := 0
	// SQS has deleted what was isolated earlier. The index is sorted by time, so this reads no other entry.
	err = r.c.Ledger.Isolated(ctx, now.Add(-retention), now.Add(time.Second), func(jobs []ledger.IsolatedJob) error {
		for _, j := range jobs {
			if found.Jobs == IsolatedCounted {
				found.More = true
				return errEnough
			}
			if one := j.Readable(); one != nil {
				newer = cmp.Or(newer, one)
				unread++
			}
			found.add(groups, j, retention)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, "", err
	}
	if newer != nil {
		notTold = fmt.Sprintf("%d of %d isolated jobs are in no group: %s", unread, found.Jobs, r.c.Explain(newer))
	}
	for _, g := range groups {
		found.Groups = append(found.Groups, *g)
	}
	slices.SortFunc(found.Groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Class, b.Class), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.Fingerprint, b.Fingerprint))
	})
	return found, notTold, nil
}

func (i *Isolated) add(groups map[alike]*Group, j ledger.IsolatedJob, retention time.Duration) {
	i.Jobs++
	if i.OldestAt.IsZero() || j.At.Before(i.OldestAt) {
		i.OldestAt, i.DeletedAt = j.At, j.At.Add(retention)
	}
	if j.Newer > 0 {
		return
	}
	key := alike{j.Class, j.Kind, j.Cause, j.Fingerprint}
	g := groups[key]
	if g == nil {
		g = &Group{Class: j.Class, Kind: j.Kind, Cause: j.Cause, Fingerprint: j.Fingerprint, OldestAt: j.At, Jobs: []string{}}
		groups[key] = g
	}
	g.Count++
	g.NewestAt = j.At
	if j.Class == job.Ambiguous && j.Decided == "" {
		g.Undecided++
	}
	if len(g.Jobs) < groupJobs {
		g.Jobs = append(g.Jobs, j.Key)
	}
}

// Class counts the jobs of one class.
type Class struct {
	Class job.Class `json:"class"`
	Count int       `json:"count"`
}

// Classes counts the jobs by class, the largest first. Jobs in no group count as "newer".
func (i *Isolated) Classes() []Class {
	counts := map[job.Class]int{}
	newer := i.Jobs
	for _, g := range i.Groups {
		counts[g.Class] += g.Count
		newer -= g.Count
	}
	if newer > 0 {
		counts["newer"] = newer
	}
	classes := make([]Class, 0, len(counts))
	for class, n := range counts {
		classes = append(classes, Class{class, n})
	}
	slices.SortFunc(classes, func(a, b Class) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Class, b.Class)) })
	return classes
}
