package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"acklast/internal/job"
)

const (
	// chunkBytes is how much of a stream is checked before its first job is sent. A stream cannot be read
	// twice, so only a stream up to this size is sent completely or not at all.
	chunkBytes = 32 << 20
	// namedLines is how many bad lines an error names.
	namedLines = 10
)

// source yields the jobs of an input. The input, or its first chunk, has been checked.
type source struct {
	// total is the number of jobs, 0 if it is not known yet.
	total int
	// more says that the input continues after the part that has been checked.
	more  bool
	next  func() (entry, error)
	close func()
}

// single is the source of one job given as an argument.
func (c *checker) single(body string) (*source, error) {
	err := job.CheckEncoding([]byte(body))
	var envelope job.Envelope
	if err == nil {
		envelope, err = c.check(body)
	}
	if err != nil {
		return nil, refuse("nothing was sent: %w", err)
	}
	jobs := []entry{{line: 1, body: body, envelope: envelope}}
	return &source{total: 1, next: func() (entry, error) { return take(&jobs) }, close: func() {}}, nil
}

// open is the source of a file, or of stdin if the name is "-". A file is read twice, first to check all of it.
// A stream is checked chunk by chunk.
func (c *checker) open(ctx context.Context, name string, stdin io.Reader, from int, note func(string)) (*source, error) {
	in, closeInput := stdin, func() {}
	if name != "-" {
		f, err := openInput(name)
		if err != nil {
			return nil, err
		}
		c.input = name
		in, closeInput = f, func() { _ = f.Close() }
	}
	s, err := c.checked(ctx, in, from, note)
	if err != nil {
		closeInput()
		return nil, err
	}
	if s.total == 0 && !s.more {
		note(fmt.Sprintf("Nothing to send: the input has no job in line %d or after it.", from))
	}
	s.close = closeInput
	return s, nil
}

func (c *checker) checked(ctx context.Context, in io.Reader, from int, note func(string)) (*source, error) {
	if f, ok := in.(*os.File); ok {
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		if info.Mode().IsRegular() { // also stdin, when the shell opened a file for it
			return c.twice(ctx, f, from)
		}
	}
	return c.stream(ctx, in, from, note)
}

// twice checks a whole file and then reads it again.
func (c *checker) twice(ctx context.Context, in io.ReadSeeker, from int) (*source, error) {
	start, err := in.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil, err
	}
	total, bad := 0, badLines{}
	for r := newJobReader(c, in, from); ; {
		if ctx.Err() != nil {
			return nil, errors.New("interrupted, nothing was sent")
		}
		_, err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !bad.add(err) {
			return nil, refuse("nothing was sent: %w", err)
		}
		total++
	}
	if err := bad.err(total); err != nil {
		return nil, refuse("nothing was sent: %w", err)
	}
	if _, err := in.Seek(start, io.SeekStart); err != nil {
		return nil, err
	}
	r := newJobReader(c, in, from)
	return &source{total: total, next: r.next}, nil
}

// stream reads an input that can be read only once. The first chunk has been checked when it returns, each
// later one before its first job is returned.
func (c *checker) stream(ctx context.Context, in io.Reader, from int, note func(string)) (*source, error) {
	r := newJobReader(c, interruptible(ctx, in), from)
	chunk, more, err := readChunk(r)
	if ctx.Err() != nil {
		return nil, errors.New("interrupted, nothing was sent")
	}
	if err != nil {
		return nil, refuse("nothing was sent: %w", err)
	}
	s := &source{total: len(chunk)}
	if more {
		s.total, s.more = 0, true
		note(fmt.Sprintf("The input is larger than %d MiB and can be read only once: it is checked and sent in parts of that size. From a file, all of it is checked first.", chunkBytes>>20))
	}
	s.next = func() (entry, error) {
		if len(chunk) == 0 && more {
			if chunk, more, err = readChunk(r); err != nil {
				chunk, more = nil, false
				return entry{}, err
			}
		}
		return take(&chunk)
	}
	return s, nil
}

// readChunk reads jobs up to chunkBytes; more says that the input continues.
func readChunk(r *jobReader) (chunk []entry, more bool, err error) {
	var bad badLines
	total := 0
	for size := 0; size < chunkBytes; {
		e, err := r.next()
		if errors.Is(err, io.EOF) {
			return chunk, false, bad.err(total)
		}
		if err != nil && !bad.add(err) {
			return nil, false, err
		}
		total++
		size += len(e.body)
		if bad.count == 0 {
			chunk = append(chunk, e)
		}
	}
	return chunk, true, bad.err(total)
}

func take(jobs *[]entry) (entry, error) {
	if len(*jobs) == 0 {
		return entry{}, io.EOF
	}
	e := (*jobs)[0]
	*jobs = (*jobs)[1:]
	return e, nil
}

// badLines collects the errors of an input.
type badLines struct {
	count int
	named []string
}

// add collects a *lineError. It returns false for any other error.
func (b *badLines) add(err error) bool {
	var bad *lineError
	if !errors.As(err, &bad) {
		return false
	}
	b.count++
	if len(b.named) < namedLines {
		b.named = append(b.named, bad.Error())
	}
	return true
}

func (b *badLines) err(total int) error {
	switch {
	case b.count == 0:
		return nil
	case total == 1:
		return errors.New(b.named[0])
	}
	text := fmt.Sprintf("%d of %d jobs cannot be sent:\n  %s", b.count, total, strings.Join(b.named, "\n  "))
	if more := b.count - len(b.named); more > 0 {
		text += fmt.Sprintf("\n  and %d more", more)
	}
	return errors.New(text)
}

// interruptible ends reads when ctx ends, even a read that waits for a terminal or a pipe. That read stays
// blocked in the background until there is input, or the process ends.
func interruptible(ctx context.Context, in io.Reader) io.Reader {
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, in)
		_ = w.CloseWithError(err) // io.EOF if nil
	}()
	context.AfterFunc(ctx, func() { _ = w.CloseWithError(ctx.Err()) })
	return r
}
