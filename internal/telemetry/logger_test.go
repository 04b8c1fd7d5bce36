package telemetry_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
	"unicode"

	"acklast/internal/telemetry"
)

func TestLinesAreWhatLambdaReads(t *testing.T) {
	var out bytes.Buffer
	log := telemetry.NewLogger(&out, slog.LevelDebug)
	for level, want := range map[slog.Level]string{
		slog.LevelDebug - 4: "", slog.LevelDebug: "DEBUG", slog.LevelInfo: "INFO", slog.LevelInfo + 2: "INFO",
		slog.LevelWarn: "WARN", slog.LevelError: "ERROR", slog.LevelError + 4: "FATAL",
	} {
		out.Reset()
		log.LogAttrs(t.Context(), level, "delivery", slog.String(telemetry.KeyJob, "reservation.expire/r-1/h-1"),
			slog.Group("entry", slog.String("level", "inner"), slog.String("time", "inner")))
		if want == "" {
			if out.Len() > 0 {
				t.Errorf("level %v was logged: %s", level, &out)
			}
			continue
		}
		if strings.Count(out.String(), "\n") != 1 {
			t.Fatalf("not one line: %q", &out)
		}
		var line map[string]any
		if err := json.Unmarshal(out.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		timestamp, _ := line["timestamp"].(string)
		at, err := time.Parse(time.RFC3339, timestamp)
		if err != nil || time.Since(at) > time.Minute || !strings.HasSuffix(timestamp, "Z") {
			t.Errorf("timestamp is %q: %v", timestamp, err)
		}
		if line["level"] != want || line["message"] != "delivery" || line["key"] != "reservation.expire/r-1/h-1" {
			t.Errorf("level %v: line is %s", level, &out)
		}
		if entry, _ := line["entry"].(map[string]any); entry["level"] != "inner" || entry["time"] != "inner" {
			t.Errorf("a group's own keys were changed: %s", &out)
		}
		if len(line) != 5 {
			t.Errorf("line has other keys: %s", &out)
		}
		if want == "WARN" && (!lambdaKeeps(out.String(), "WARN") || lambdaKeeps(out.String(), "ERROR")) {
			t.Errorf("Lambda would not read the level of %s", &out)
		}
	}
}

func TestLevelsBelowDebugAreTrace(t *testing.T) {
	var out bytes.Buffer
	telemetry.NewLogger(&out, slog.LevelDebug-4).Log(t.Context(), slog.LevelDebug-4, "x")
	if !strings.Contains(out.String(), `"level":"TRACE"`) {
		t.Errorf("line is %s", &out)
	}
}

func TestTimesAreUTCInMilliseconds(t *testing.T) {
	var out bytes.Buffer
	h := telemetry.NewLogger(&out, slog.LevelInfo).Handler()
	if err := h.Handle(t.Context(), slog.NewRecord(clock, slog.LevelInfo, "x", 0)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), `"timestamp":"2026-12-01T09:00:00.123Z"`) {
		t.Errorf("line is %s", &out)
	}
}

func TestKeysAreFixed(t *testing.T) {
	for got, want := range map[string]string{
		telemetry.KeyRequestID: "request_id", telemetry.KeyMessageID: "message_id", telemetry.KeyJob: "key",
		telemetry.KeyKind: "kind", telemetry.KeyLane: "lane", telemetry.KeyAttempt: "attempt",
		telemetry.KeyReceiveCount: "receive_count", telemetry.KeyOutcome: "outcome",
		telemetry.KeyDuplicate: "duplicate", telemetry.KeyClass: "class", telemetry.KeyCause: "cause",
		telemetry.KeyDetail: "detail", telemetry.KeyError: "error", telemetry.KeyRun: "run",
		telemetry.KeyStack: "stack_trace",
	} {
		if got != want {
			t.Errorf("a key is %q, want %q", got, want)
		}
	}
}

// JSON leaves some characters as they are that a terminal obeys.
func TestNoTextOfALineControlsATerminal(t *testing.T) {
	const text = "a\x7f\u0085\u009b2J\u202e\u2066\u061cb\x1b[31m\n ünïcode"
	var out bytes.Buffer
	log := telemetry.NewLogger(&out, 0)
	log.Info("plain", "text", text, "error", errors.New(text), slog.Group("group", "text", text))
	if got := strings.TrimSuffix(out.String(), "\n"); strings.ContainsFunc(got, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }) {
		t.Errorf("the line controls a terminal: %q", got)
	}
	if n := strings.Count(out.String(), "ünïcode"); n != 3 {
		t.Errorf("%d texts of 3 kept the letters: %s", n, out.String())
	}
}
