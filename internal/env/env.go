// Package env reads a configuration from environment variables and collects all errors, so that one start shows
// all of them. A variable that is not set keeps the default.
package env

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
)

// Reader reads variables. New makes one; the zero value cannot be used.
type Reader struct {
	getenv func(string) string
	errs   []error
}

// New returns a reader of the given environment.
func New(getenv func(string) string) *Reader { return &Reader{getenv: getenv} }

// Err returns all errors as one sentence that also says what to do, or nil.
func (r *Reader) Err() error {
	if len(r.errs) == 0 {
		return nil
	}
	format := strings.Repeat("%w; ", len(r.errs)-1) + "%w: correct the environment that the function is deployed with"
	args := make([]any, len(r.errs))
	for i, err := range r.errs {
		args[i] = err
	}
	return fmt.Errorf(format, args...)
}

// Check records an error unless ok.
func (r *Reader) Check(ok bool, format string, args ...any) {
	if !ok {
		r.errs = append(r.errs, fmt.Errorf(format, args...))
	}
}

// Text returns a variable, or "" when it is not set.
func (r *Reader) Text(name string) string { return r.getenv(name) }

// Required returns a variable that has to be set. want says what it holds.
func (r *Reader) Required(name, want string) string {
	v := r.getenv(name)
	r.Check(v != "", "%s is not set, want %s", name, want)
	return v
}

// Queue returns the URL of a standard queue, which has to be set. want says which queue that is.
func (r *Reader) Queue(name, want string) string {
	v := r.Required(name, want)
	r.Check(!strings.HasSuffix(v, ".fifo"), "%s is a FIFO queue, which keeps no delay of single messages: use a standard queue", name)
	return v
}

// Count returns a whole number that is not below least, or fallback if the variable is not set.
func (r *Reader) Count(name string, least, fallback int) int {
	v := r.getenv(name)
	if v == "" {
		return fallback
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < least {
		r.Check(false, "%s is %q, want a whole number of at least %d", name, v, least)
		return fallback // so that no check of two variables adds an error
	}
	return n
}

// Duration returns a duration in Go's form, such as 30s, that is not below least, or fallback if the variable
// is not set.
func (r *Reader) Duration(name string, least, fallback time.Duration) time.Duration {
	v := r.getenv(name)
	if v == "" {
		return fallback
	}
	want := fmt.Sprintf("a duration of at least %v, such as 30s", least)
	if least == Positive {
		want = "a positive duration such as 30s"
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < least {
		r.Check(false, "%s is %q, want %s", name, v, want)
		return fallback // so that no check of two variables adds an error
	}
	return d
}

// Positive is the least duration above zero.
const Positive = time.Duration(1)

// Bool returns true or false; not set is false.
func (r *Reader) Bool(name string) bool {
	v := r.getenv(name)
	if v == "" {
		return false
	}
	b, err := strconv.ParseBool(v)
	r.Check(err == nil, "%s is %q, want true or false", name, v)
	return b
}

// Level returns a log level; not set is INFO.
func (r *Reader) Level(name string) slog.Level {
	var l slog.Level
	if v := r.getenv(name); v != "" {
		err := l.UnmarshalText([]byte(v))
		r.Check(err == nil, "%s is %q, want DEBUG, INFO, WARN or ERROR", name, v)
	}
	return l
}
