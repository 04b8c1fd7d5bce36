package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
)

// answer prints v as JSON, or the output of table: lines of cells separated by tabs.
func (a *app) answer(v any, table func(w io.Writer)) error {
	if a.output == "json" {
		e := json.NewEncoder(a.stdout)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(v)
	}
	return a.table(a.stdout, table)
}

// say writes text. It ignores errors, since an error of the terminal cannot be shown there. A table's writer
// returns its error at the end.
func say(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }

// row writes one line of a table. Text from outside, such as an id or an error's text, cannot break the table
// or control the terminal.
func row(w io.Writer, cells ...any) {
	for i, c := range cells {
		if i > 0 {
			say(w, "\t")
		}
		say(w, "%s", plain(fmt.Sprint(c)))
	}
	say(w, "\n")
}

// plain replaces characters that are not printable.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case !unicode.IsPrint(r):
			return '�'
		}
		return r
	}, s)
}

// when writes a time and its distance from now; "-" if there is none.
func when(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	d := t.Sub(now)
	switch {
	case d > 0:
		return stamp(t) + " (in " + rough(d) + ")"
	default:
		return stamp(t) + " (" + rough(-d) + " ago)"
	}
}

// stamp writes a time up to the millisecond, which is what the ledger keeps.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.999Z07:00") }

// rough writes a duration to about two digits.
func rough(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 2*day:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%d days", d/day)
}

// isTerminal says whether a reader or a writer is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// shellWords writes arguments so that a shell reads them back.
func shellWords(args []string) string {
	words := make([]string, len(args))
	for i, s := range args {
		if s == "" || strings.ContainsFunc(s, func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_./:=@,+%", r)
		}) {
			s = "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
		}
		words[i] = s
	}
	return strings.Join(words, " ")
}
