package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/topology"
)

// entry is one job of the input, checked.
type entry struct {
	// line is its number in the input, from 1.
	line     int
	body     string
	envelope job.Envelope
}

// lineError says what is wrong with one line of the input.
type lineError struct {
	line int
	err  error
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.err) }
func (e *lineError) Unwrap() error { return e.err }

// checker checks jobs before they are sent, and holds the settings with which every job is sent. It knows no
// kind: only the worker can check a payload.
type checker struct {
	attributes map[string]job.Attribute
	group      string
	// input is the name of the file with the jobs, "" for an argument or standard input.
	input string
	// maxAhead is how far ahead a job may be due.
	maxAhead time.Duration
	now      func() time.Time
}

// check reads a body's envelope. Its error says why the body cannot be sent.
func (c *checker) check(body string) (job.Envelope, error) {
	if err := lanes.CheckNew(job.Message{Body: body, Attributes: c.attributes, Group: c.group}); err != nil {
		return job.Envelope{}, err
	}
	e, err := job.Decode([]byte(body))
	if err != nil {
		return e, err
	}
	if due := e.NotBefore; due.After(c.now().Add(c.maxAhead)) {
		return e, fmt.Errorf("notBefore %s lies more than %v ahead; send the job later, for instance from a schedule",
			due.Format(time.RFC3339), c.maxAhead)
	}
	return e, nil
}

// readAttributes reads name=value flags by SQS's rules.
func readAttributes(flags []string) (map[string]job.Attribute, error) {
	if len(flags) > topology.MaxAttributes {
		return nil, fmt.Errorf("%d attributes, more than SQS's %d", len(flags), topology.MaxAttributes)
	}
	attributes := make(map[string]job.Attribute, len(flags))
	for _, f := range flags {
		name, value, ok := strings.Cut(f, "=")
		if !ok {
			return nil, fmt.Errorf("attribute %q is not name=value", f)
		}
		attribute := job.Attribute{Type: "String", String: value}
		if err := lanes.CheckAttribute(name, attribute); err != nil {
			return nil, fmt.Errorf("attribute %q: %w", name, err)
		}
		if _, twice := attributes[name]; twice {
			return nil, fmt.Errorf("attribute %q is given twice", name)
		}
		attributes[name] = attribute
	}
	return attributes, nil
}

// headBytes is how much of an input job.CheckEncoding looks at.
const headBytes = 512

// openInput opens a file for reading. Its error says what is wrong with the file.
func openInput(name string) (*os.File, error) {
	f, err := os.Open(name)
	if err == nil {
		var info os.FileInfo
		if info, err = f.Stat(); err == nil && info.IsDir() {
			_ = f.Close()
			return nil, refuse("%s is a folder: name a file", name)
		}
	}
	return f, fileProblem(name, err)
}

// fileProblem says in words why a file cannot be opened.
func fileProblem(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return refuse("there is no file %s: check its name and the folder that you are in", name)
	case errors.Is(err, fs.ErrPermission):
		return refuse("you may not open the file %s", name)
	}
	return refuse("%w", err)
}

// readInput reads a small text file, or standard input if its name is "-". A newline at its end is not counted.
func (a *app) readInput(name string, limit int64) ([]byte, error) {
	in := a.stdin
	if name != "-" {
		f, err := openInput(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, limit+2))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	switch err := job.CheckEncoding(text[:min(len(text), headBytes)]); {
	case err != nil:
		return nil, refuse("%s cannot be used: %w", name, err)
	case len(bytes.TrimSpace(text)) == 0:
		return nil, refuse("%s is empty", name)
	case int64(len(bytes.TrimSuffix(text, []byte("\n")))) > limit:
		return nil, refuse("%s has more than %d bytes", name, limit)
	case !utf8.Valid(text):
		return nil, refuse("%s cannot be used: it is not UTF-8 text", name)
	}
	return text, nil
}

// jobReader reads the input: either one JSON document on any number of lines, or NDJSON, with one job in each
// line that is not blank.
type jobReader struct {
	check *checker
	in    *bufio.Reader
	// from is the first line to read.
	from int
	line int
	ends bool
}

func newJobReader(c *checker, in io.Reader, from int) *jobReader {
	// The buffer holds a line of the largest size and its end.
	return &jobReader{check: c, in: bufio.NewReaderSize(in, topology.MaxMessageBytes+2), from: from}
}

// next returns the next job. Its error is io.EOF at the end, or a *lineError for a job that cannot be sent;
// then reading can go on. Any other error means that the input cannot be read.
func (r *jobReader) next() (entry, error) {
	if r.line == 0 && !r.ends {
		if head, _ := r.in.Peek(headBytes); job.CheckEncoding(head) != nil {
			return entry{}, fmt.Errorf("%s cannot be used: %w", cmp.Or(r.check.input, "the input"), job.CheckEncoding(head))
		}
		if line, body := document(r.in); body != "" {
			r.ends = true
			return r.entry(line, body)
		}
	}
	for !r.ends {
		r.line++
		body, err := readLine(r.in)
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && r.line >= r.from:
			return entry{}, &lineError{r.line, fmt.Errorf("longer than SQS's %d bytes", topology.MaxMessageBytes)}
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			r.ends = true
		case err != nil:
			return entry{}, fmt.Errorf("read line %d: %w", r.line, err)
		case r.line >= r.from && strings.TrimSpace(body) != "":
			return r.entry(r.line, body)
		}
	}
	return entry{}, io.EOF
}

func (r *jobReader) entry(line int, body string) (entry, error) {
	envelope, err := r.check.check(body)
	if err != nil {
		return entry{}, &lineError{line, err}
	}
	return entry{line: line, body: body, envelope: envelope}, nil
}

// document returns the input if it is one JSON document on several lines, such as a job that was written for
// people to read, and the line in which it begins.
func document(r *bufio.Reader) (line int, body string) {
	all, err := r.Peek(r.Size())
	if !errors.Is(err, io.EOF) {
		return 0, "" // longer than any message
	}
	text := bytes.TrimSpace(all)
	first, rest, _ := bytes.Cut(text, []byte("\n"))
	if len(rest) == 0 || json.Valid(first) || !json.Valid(text) {
		return 0, ""
	}
	before := len(all) - len(bytes.TrimLeft(all, " \t\r\n"))
	return 1 + bytes.Count(all[:before], []byte("\n")), string(text)
}

// readLine reads one line, without its end. For a line that is longer than the buffer it returns
// bufio.ErrBufferFull, and skips the line.
func readLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = r.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
		return "", bufio.ErrBufferFull
	}
	if err != nil && (len(line) == 0 || !errors.Is(err, io.EOF)) {
		return "", err
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(line), "\n"), "\r"), nil
}
