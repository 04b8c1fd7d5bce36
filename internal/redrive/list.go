package redrive

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"acklast/internal/job"
	"acklast/internal/lanes"
)

// Listed is one message of a list.
type Listed struct {
	Message    string    `json:"message"`
	Job        string    `json:"job,omitempty"`
	Kind       string    `json:"kind"`
	Class      job.Class `json:"class"`
	Cause      job.Cause `json:"cause"`
	Error      string    `json:"error,omitempty"`
	IsolatedAt time.Time `json:"isolatedAt"`
	// DeletedAt is when SQS deletes the message.
	DeletedAt time.Time `json:"deletedAt"`
	Action    Action    `json:"action"`
	Why       string    `json:"why"`
}

// maxList is how many bytes of a list one answer has, below Lambda's 6 MB; maxListPart how many one document has, below an
// item's 400 KB. listKept is how long the documents are kept.
const (
	maxList     = 4 << 20
	maxListPart = 350 << 10
	listKept    = time.Hour
)

// listing is a list that is being made. The messages that do not fit into one answer are stored in parts while the scan goes on,
// so that the next pages need no second scan.
type listing struct {
	s      *Service
	id     string
	answer []Listed
	part   []Listed
	// parts counts those that are stored. size is that of the answer, or of the part that is not stored yet.
	parts, size int
}

func pkList(id string) string { return "list#" + id }

func (l *listing) add(ctx context.Context, it item) error {
	one := Listed{Message: it.id, Job: it.key, Kind: it.kind, Class: it.class, Cause: it.cause, Error: it.error,
		IsolatedAt: it.isolatedAt, DeletedAt: it.sentAt.Add(l.s.retention), Action: it.action, Why: it.why}
	// Each byte of a text may become six, and the rest is below 400.
	size := 400 + 6*(len(it.key)+len(it.error)+len(it.why))
	if l.id == "" && l.size+size <= maxList {
		l.answer, l.size = append(l.answer, one), l.size+size
		return nil
	}
	if l.id == "" {
		l.id, l.size = l.s.newID(), 0
	}
	if len(l.part) > 0 && l.size+size > maxListPart {
		if err := l.store(ctx); err != nil {
			return err
		}
	}
	l.part, l.size = append(l.part, one), l.size+size
	return nil
}

func (l *listing) store(ctx context.Context) error {
	doc, err := encode(l.part)
	if err == nil {
		err = l.s.table.Append(ctx, []Record{{PK: pkList(l.id), SK: fmt.Sprintf("%s%06d", skPart, l.parts), Doc: doc, TTL: l.s.now().Add(listKept)}})
	}
	if err != nil {
		return fmt.Errorf("store a page of the list: %w", err)
	}
	l.part, l.size = nil, 0
	l.parts++
	return nil
}

// listMessages names every message of the DLQ that a filter selects, and says what becomes of each. One scan sees them all; those that do
// not fit into the answer are stored for an hour, and nextPage reads them.
func (s *Service) listMessages(ctx context.Context, f Filter) (Response, error) {
	mine := s.hold()
	defer mine.release(ctx)
	l, g := listing{s: s, answer: []Listed{}}, grouping{}
	sc, err := s.match(ctx, mine, whole, f, func(it item, _ lanes.Received) error {
		g.add(it)
		return l.add(ctx, it)
	})
	if err == nil && len(l.part) > 0 {
		err = l.store(ctx)
	}
	if err != nil {
		return Response{}, err
	}
	resp := Response{Scan: &sc, Groups: g.list(), Messages: l.answer}
	if l.parts > 0 {
		resp.Next = l.id + "/"
	}
	return resp, nil
}

// nextPage reads a page of a list that a scan stored. It receives nothing, so it answers also while a run goes on.
func (s *Service) nextPage(ctx context.Context, req Request) (Response, error) {
	id, after, ok := strings.Cut(req.After, "/")
	switch {
	case !req.List || req.Select != nil || req.Message != "" || req.Job != "" || req.WithBody:
		return Response{}, refuse("after is the page of a list that was made: it takes list alone beside it")
	case !ok || len(req.After) > maxID:
		return Response{}, refuse("after is %q, which no list answered: list again", job.Shorten(job.SafeText(req.After), maxID))
	}
	resp := Response{Messages: []Listed{}}
	size, last := 0, ""
	err := s.table.QueryAfter(ctx, pkList(id), after, func(r Record) error {
		if size += len(r.Doc); size > maxList && last != "" {
			return errFull
		}
		part, err := decode[[]Listed](r)
		resp.Messages, last = append(resp.Messages, part...), r.SK
		return err
	})
	switch {
	case errors.Is(err, errFull):
		resp.Next, err = id+"/"+last, nil
	case err == nil && last == "":
		err = refuse("the list is not kept any more: list again")
	}
	return resp, err
}
