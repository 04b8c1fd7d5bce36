package telemetry

import (
	"io"
	"log/slog"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The top-level keys that Lambda's JSON log format reads. A line without a valid level and
// timestamp counts as INFO there, and a filter for WARN drops it.
const (
	keyTimestamp = "timestamp"
	keyLevel     = "level"
	keyMessage   = "message"
)

// MessageDelivery is the message of the line that the worker writes for each delivery.
const MessageDelivery = "delivery"

// The keys of log attributes. No key holds a body, a payload or a recipient.
const (
	KeyRequestID    = "request_id"
	KeyMessageID    = "message_id"
	KeyJob          = "key"
	KeyKind         = "kind"
	KeyLane         = "lane"
	KeyAttempt      = "attempt"
	KeyReceiveCount = "receive_count"
	KeyOutcome      = "outcome"
	KeyDuplicate    = "duplicate"
	KeyClass        = "class"
	KeyCause        = "cause"
	KeyDetail       = "detail"
	KeyError        = "error"
	KeyRun          = "run"
	KeyVersion      = "version"
	KeyStack        = "stack_trace" // "stack" is a dimension of the metrics in the same log group
)

// NewLogger returns a logger that writes one JSON object a line, in the form Lambda's JSON log
// format reads: timestamp (RFC 3339, UTC, milliseconds), level (one of Lambda's six) and message, then the
// attributes. The top-level keys "time", "level" and "msg" are slog's own: do not use them for
// attributes.
func NewLogger(w io.Writer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: forLambda}))
}

func forLambda(groups []string, a slog.Attr) slog.Attr {
	a.Value = shown(a.Value)
	if len(groups) > 0 {
		return a
	}
	switch a.Key {
	case slog.TimeKey:
		a.Key = keyTimestamp
		if a.Value.Kind() == slog.KindTime {
			a.Value = slog.TimeValue(a.Value.Time().UTC().Truncate(time.Millisecond))
		}
	case slog.LevelKey:
		a.Key = keyLevel
		if level, ok := a.Value.Any().(slog.Level); ok {
			a.Value = slog.StringValue(levelName(level))
		}
	case slog.MessageKey:
		a.Key = keyMessage
	}
	return a
}

// shown is a value of which no text can control the terminal of a person who reads the log. JSON escapes only the
// control characters below U+0020.
func shown(v slog.Value) slog.Value {
	switch v.Kind() {
	case slog.KindString:
		if strings.ContainsFunc(v.String(), controls) {
			return slog.StringValue(harmless(v.String()))
		}
	case slog.KindAny:
		if err, ok := v.Any().(error); ok {
			return slog.AnyValue(shownError{err})
		}
	}
	return v
}

// shownError cleans its text when it is asked for it, since slog then expects a panic.
type shownError struct{ err error }

func (e shownError) Error() string { return harmless(e.err.Error()) }

func harmless(text string) string {
	return strings.Map(func(r rune) rune {
		if controls(r) {
			return utf8.RuneError
		}
		return r
	}, text)
}

// controls says whether a character moves a terminal's cursor or turns the direction of the text around it. Line
// feeds, tabs and the others below U+0020 are escaped by JSON.
func controls(r rune) bool {
	return r >= ' ' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}

// levelName returns Lambda's name of a level. slog would write a level between two names as
// "INFO+2", which Lambda takes for invalid.
func levelName(level slog.Level) string {
	switch {
	case level < slog.LevelDebug:
		return "TRACE"
	case level < slog.LevelInfo:
		return "DEBUG"
	case level < slog.LevelWarn:
		return "INFO"
	case level < slog.LevelError:
		return "WARN"
	case level < slog.LevelError+4:
		return "ERROR"
	}
	return "FATAL"
}
