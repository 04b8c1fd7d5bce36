// Package env reads a configuration from environment variables and collects all errors, so that one start shows
// all of them. A variable that is not set keeps the default.
package env

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"
)

// Reader reads variables. New makes one; the zero value cannot be used.
type Reader struct {
	getenv func(string) string
	errs   []error
}

// New returns a reader of the given environment.
func New(getenv func(string) string) *Reader { return &Reader{getenv: getenv} }

// Err returns all errors as one, or nil.
func (r *Reader) Err() error { return errors.Join(r.errs...) }

// Check records an error unless ok.
func (r *Reader) Check(ok bool, format string, args ...any) {
	if !ok {
		r.errs = append(r.errs, fmt.Errorf(format, args...))
	}
}

// Text returns a variable, or "" when it is not set.
func (r *Reader) Text(name string) string { return r.getenv(name) }

// Required returns a variable that has to be set.
func (r *Reader) Required(name string) string {
	v := r.getenv(name)
	r.Check(v != "", "%s is not set", name)
	return v
}

// Count returns a whole number that is not below least, or fallback if the variable is not set.
func (r *Reader) Count(name string, least, fallback int) int {
	v := r.getenv(name)
	if v == "" {
		return fallback
	}
	n, err := strconv.Atoi(v)
	r.Check(err == nil && n >= least, "%s is %q, want a whole number of at least %d", name, v, least)
	return n
}

// Duration returns a duration in Go's form, such as 30s, that is not below least, or fallback if the variable
// is not set.
func (r *Reader) Duration(name string, least, fallback time.Duration) time.Duration {
	v := r.getenv(name)
	if v == "" {
		return fallback
	}
	d, err := time.ParseDuration(v)
	switch {
	case err == nil && least <= 1 && d < least:
		r.Check(false, "%s is %q, want a positive duration such as 30s", name, v)
	default:
		r.Check(err == nil && d >= least, "%s is %q, want a duration such as 30s", name, v)
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
