package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"acklast/internal/job"
	"acklast/internal/topology"
)

// entry is one job of the input, checked.
type entry struct {
	// line is its number in the input, from 1.
	line int
	body string
	read job.Decoded
}

// lineError says what is wrong with one line of the input.
type lineError struct {
	line int
	err  error
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.err) }
func (e *lineError) Unwrap() error { return e.err }

// checker knows what can be sent, and what every job is sent with.
type checker struct {
	kinds      job.Catalogue
	attributes map[string]job.Attribute
	group      string
	// maxAhead is how far ahead a job may be due.
	maxAhead time.Duration
	now      func() time.Time
}

// check reads a body. Its error says why it cannot be sent.
func (c *checker) check(body string) (job.Decoded, error) {
	size := len(body)
	for name, a := range c.attributes {
		size += len(name) + len(a.Type) + len(a.String)
	}
	if size > topology.MaxMessageBytes {
		return job.Decoded{}, fmt.Errorf("the message has %d bytes with its attributes, more than SQS's %d", size, topology.MaxMessageBytes)
	}
	if err := checkText(body); err != nil {
		return job.Decoded{}, fmt.Errorf("body: %w", err)
	}
	read, err := c.kinds.Read(body)
	var f *job.Failure
	if errors.As(err, &f) && f.Class == job.Rejected {
		return read, fmt.Errorf("kind %q is not known here; known is %s", read.Envelope.Kind, strings.Join(c.kinds.Names(), ", "))
	}
	if err != nil {
		return read, err
	}
	if due := read.Envelope.NotBefore; due.After(c.now().Add(c.maxAhead)) {
		return read, fmt.Errorf("notBefore %s lies more than %v ahead; send the job later, for instance from a schedule",
			due.Format(time.RFC3339), c.maxAhead)
	}
	return read, nil
}

// checkText refuses the characters that SQS refuses. An escape in JSON is not one of them.
func checkText(s string) error {
	if !utf8.ValidString(s) {
		return errors.New("not UTF-8")
	}
	for i, r := range s {
		switch {
		case r == '\t' || r == '\n' || r == '\r', r >= 0x20 && r <= 0xFFFD, r >= 0x10000:
		default:
			return fmt.Errorf("character %U at byte %d, which SQS does not carry", r, i)
		}
	}
	return nil
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
		if err := checkAttributeName(name); err != nil {
			return nil, fmt.Errorf("attribute %q: %w", name, err)
		}
		if value == "" {
			return nil, fmt.Errorf("attribute %q has no value", name)
		}
		if err := checkText(value); err != nil {
			return nil, fmt.Errorf("attribute %q: %w", name, err)
		}
		if _, twice := attributes[name]; twice {
			return nil, fmt.Errorf("attribute %q is given twice", name)
		}
		attributes[name] = job.Attribute{Type: "String", String: value}
	}
	return attributes, nil
}

func checkAttributeName(name string) error {
	lower := strings.ToLower(name)
	switch {
	case name == job.MemoryAttribute:
		return errors.New("the name is the system's own")
	case name == "" || len(name) > 256:
		return errors.New("a name has 1 to 256 characters")
	case strings.ContainsFunc(name, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-.", r)
	}):
		return errors.New("a name consists of letters, digits, '_', '-' and '.'")
	case strings.HasPrefix(lower, "aws.") || strings.HasPrefix(lower, "amazon."):
		return errors.New("names that begin with AWS. or Amazon. are reserved")
	case name[0] == '.' || name[len(name)-1] == '.' || strings.Contains(name, ".."):
		return errors.New("a name neither begins nor ends with '.', nor has two in a row")
	}
	return nil
}

// checkGroup reads a message group id by SQS's rules.
func checkGroup(group string) error {
	if len(group) > 128 || strings.ContainsFunc(group, func(r rune) bool { return r <= ' ' || r >= 0x7F }) {
		return errors.New("a group has at most 128 letters, digits and punctuation marks of ASCII")
	}
	return nil
}

// jobReader reads the input: either one JSON document, over as many lines as it likes, or NDJSON, which
// is one job in each line that is not blank.
type jobReader struct {
	check *checker
	in    *bufio.Reader
	// from is the first line that is of interest.
	from int
	line int
	ends bool
}

func newJobReader(c *checker, in io.Reader, from int) *jobReader {
	// The buffer holds a line of the largest size and its end.
	return &jobReader{check: c, in: bufio.NewReaderSize(in, topology.MaxMessageBytes+2), from: from}
}

// next returns the next job. Its error is io.EOF at the end, a *lineError for a job that cannot be
// sent, after which reading goes on, or whatever keeps the input from being read.
func (r *jobReader) next() (entry, error) {
	if r.line == 0 && !r.ends {
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
	read, err := r.check.check(body)
	if err != nil {
		return entry{}, &lineError{line, err}
	}
	return entry{line: line, body: body, read: read}, nil
}

// document returns the input if it is one JSON document that does not stand in one line, such as a
// job that was written to be read, and the line it begins in.
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

// readLine reads one line, without its end. A line that is longer than the buffer it skips and
// returns bufio.ErrBufferFull.
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
