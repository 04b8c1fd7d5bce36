package redrive

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"acklast/internal/job"
	"acklast/internal/lanes"
)

// maxPayload is how much of a compressed message fits one audit item's 400 KB, as base64.
const maxPayload = 250 << 10

// archived is a message as the audit keeps it: everything that its sender put into it.
type archived struct {
	Body        string                   `json:"body"`
	Attributes  map[string]job.Attribute `json:"attributes,omitempty"`
	Group       string                   `json:"group,omitempty"`
	TraceHeader string                   `json:"traceHeader,omitempty"`
	Memory      job.Memory               `json:"memory,omitzero"`
}

// archive writes a whole message into the audit, a large one in parts, each under the given line.
func (s *Service) archive(ctx context.Context, line AuditRecord, m job.Message) error {
	doc, err := json.Marshal(archived{m.Body, m.Attributes, m.Group, m.TraceHeader, m.Memory})
	if err != nil {
		return err
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(doc); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	for chunk := range slices.Chunk(b.Bytes(), maxPayload) {
		line.Payload = chunk
		if err := s.record(ctx, []AuditRecord{line}); err != nil {
			return err
		}
		line.Part++
	}
	return nil
}

// unarchive puts a message together from its parts. Of a message that was archived twice, the last counts.
func unarchive(lines []AuditRecord) (archived, error) {
	lines = slices.DeleteFunc(slices.Clone(lines), func(a AuditRecord) bool { return len(a.Payload) == 0 })
	slices.SortStableFunc(lines, func(a, b AuditRecord) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Part, b.Part)) })
	for len(lines) > 0 && !lines[0].At.Equal(lines[len(lines)-1].At) {
		lines = lines[1:]
	}
	var m archived
	if len(lines) == 0 {
		return m, refuse("the audit has no payload of that message: only what was discarded or mended has one")
	}
	var whole []byte
	for _, line := range lines {
		whole = append(whole, line.Payload...)
	}
	z, err := gzip.NewReader(bytes.NewReader(whole))
	if err != nil {
		return m, err
	}
	doc, err := io.ReadAll(z)
	if err == nil {
		err = json.Unmarshal(doc, &m)
	}
	if err != nil {
		err = fmt.Errorf("read the payload in the audit: %w", err)
	}
	return m, err
}

// message is what is sent of an archived message.
func (m archived) message(id string) lanes.Received {
	return lanes.Received{Message: job.Message{ID: id, Body: m.Body, Attributes: m.Attributes, Group: m.Group, TraceHeader: m.TraceHeader, Memory: m.Memory}}
}

// lines are the audit's lines of one message of a run, a discard or a plan.
func (s *Service) lines(ctx context.Context, run, message string) (list []AuditRecord, err error) {
	err = s.table.Query(ctx, pkAudit(run, message), message+"#", func(r Record) error {
		line, err := decode[AuditRecord](r)
		list = append(list, line)
		return err
	})
	return list, err
}

// step are the lines of one step.
func step(lines []AuditRecord, what Step) (list []AuditRecord) {
	for _, line := range lines {
		if line.What == what {
			list = append(list, line)
		}
	}
	return list
}
