package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
)

// answer prints v as JSON, or the output of table: lines of cells separated by tabs.
func (a *app) answer(v any, table func(w io.Writer)) error {
	if a.output == "json" {
		return writeJSON(a.stdout, v, "  ")
	}
	return a.table(a.stdout, table)
}

// writeJSON writes v and a newline. Characters that could control a terminal are written as JSON's escapes, so
// the value that a program reads is unchanged.
func writeJSON(w io.Writer, v any, indent string) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetIndent("", indent)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := w.Write([]byte(escaped(text.String())))
	return err
}

// escaped writes characters that are not printable as JSON escapes them. In JSON they stand only in strings.
func escaped(text string) string {
	var out strings.Builder
	for _, r := range text {
		switch {
		case r == '\n', r == '\t', unicode.IsPrint(r):
			out.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

// logWriter escapes the lines of the functions' logs, which contain text of the jobs' senders.
type logWriter struct{ to io.Writer }

func (w logWriter) Write(line []byte) (int, error) {
	if _, err := io.WriteString(w.to, escaped(string(line))); err != nil {
		return 0, err
	}
	return len(line), nil
}

// say writes text, and replaces in it every character that could control the terminal. In a text or an error among
// args, every line but the first is indented, so that it does not look like a line of this program. say ignores
// errors, since an error of the terminal cannot be shown there. A table's writer returns its error at the end.
func say(w io.Writer, format string, args ...any) {
	for i, arg := range args {
		if err, ok := arg.(error); ok {
			arg = err.Error()
		}
		if text, ok := arg.(string); ok {
			inner := strings.TrimSuffix(text, "\n")
			args[i] = strings.ReplaceAll(inner, "\n", "\n  ") + text[len(inner):]
		}
	}
	_, _ = io.WriteString(w, visible(fmt.Sprintf(format, args...)))
}

// body writes a message's body as it is into a file or a pipe, to be edited, and on a terminal what is visible of it.
func (a *app) body(text string) error {
	if isTerminal(a.stdout) {
		text = visible(text)
	}
	_, err := io.WriteString(a.stdout, text+"\n")
	return err
}

// visible replaces characters that are not printable, except for the ends of lines and tabs.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return '�'
	}, s)
}

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

// plain is the visible text on one line.
func plain(s string) string {
	return visible(strings.NewReplacer("\n", " ", "\t", " ", "\r", " ").Replace(s))
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
