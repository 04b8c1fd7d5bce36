package main

import (
	"bytes"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// defaultColumns is the width of a terminal if its width is not known.
const defaultColumns = 80

// columns is the largest width of an answer, 0 for any. Output that is piped into another program has one line
// for each row.
func (a *app) columns(w io.Writer) int {
	if a.width > 0 {
		return a.width
	}
	if !isTerminal(w) {
		return 0
	}
	if n, err := strconv.Atoi(a.getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	return terminalWidth(w, defaultColumns)
}

// table writes lines of cells separated by tabs. It writes them in one call, so that a program that
// waits for the first line in a pipe finds the last one too.
func (a *app) table(w io.Writer, write func(io.Writer)) error {
	var text bytes.Buffer
	if width := a.columns(w); width > 0 {
		write(&text)
		_, err := io.WriteString(w, fold(text.String(), width))
		return err
	}
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	write(t)
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := w.Write(text.Bytes())
	return err
}

// fold lays out lines of cells so that no line is wider than width, unless a single word is. A table that does
// not fit has one line for each cell instead, with the name of its column.
func fold(text string, width int) string {
	var out strings.Builder
	var block [][]string
	flush := func() {
		if len(block) > 0 {
			out.WriteString(foldBlock(block, width))
			block = nil
		}
	}
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(cells) == 1 {
			flush()
			indent := cells[0][:len(cells[0])-len(strings.TrimLeft(cells[0], " "))]
			out.WriteString(wrap(cells[0], width, indent+"  "))
			continue
		}
		if len(block) > 0 && len(block[0]) != len(cells) {
			flush()
		}
		block = append(block, cells)
	}
	flush()
	return out.String()
}

func foldBlock(block [][]string, width int) string {
	columns := len(block[0])
	widths, total := make([]int, columns), 2*(columns-1)
	for i := range columns {
		for _, cells := range block {
			widths[i] = max(widths[i], utf8.RuneCountInString(cells[i]))
		}
		total += widths[i]
	}
	var out strings.Builder
	switch {
	case total <= width:
		for _, cells := range block {
			var line strings.Builder
			for i, cell := range cells {
				line.WriteString(cell + strings.Repeat(" ", widths[i]+2-utf8.RuneCountInString(cell)))
			}
			out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
		}
	case columns == 2: // names and values
		for _, cells := range block {
			name := cells[0] + strings.Repeat(" ", widths[0]+2-utf8.RuneCountInString(cells[0]))
			out.WriteString(wrap(name+cells[1], width, strings.Repeat(" ", widths[0]+2)))
		}
	default: // the first row names the columns
		for _, cells := range block[1:] {
			for i, cell := range cells {
				line := strings.ToLower(block[0][i]) + ": " + cell
				if i > 0 {
					line = "  " + line
				}
				out.WriteString(wrap(line, width, "    "))
			}
		}
	}
	return out.String()
}

// wrap breaks a line at spaces. It never breaks words: an id has to stay whole.
func wrap(line string, width int, indent string) string {
	var out strings.Builder
	for utf8.RuneCountInString(line) > width {
		at, runes, text := -1, 0, len(line)-len(strings.TrimLeft(line, " "))
		for i, r := range line {
			if r == ' ' && i > text && (runes <= width || at < 0) {
				at = i
			}
			if runes++; runes > width && at >= 0 {
				break
			}
		}
		if at < 0 {
			break
		}
		out.WriteString(strings.TrimRight(line[:at], " ") + "\n")
		line = indent + strings.TrimLeft(line[at:], " ")
	}
	return out.String() + strings.TrimRight(line, " ") + "\n"
}

// reflow wraps the paragraphs of a text. Lines that begin with a space stay as they are.
func reflow(text string, width int) string {
	var out []string
	paragraph := ""
	flush := func() {
		if paragraph != "" {
			out = append(out, strings.TrimSuffix(wrap(paragraph, width, ""), "\n"))
		}
		paragraph = ""
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" || strings.HasPrefix(line, " ") {
			flush()
			out = append(out, line)
			continue
		}
		paragraph = strings.TrimPrefix(paragraph+" "+line, " ")
	}
	flush()
	return strings.Join(out, "\n")
}
