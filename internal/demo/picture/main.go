// Command picture draws the text of a terminal as an SVG, for the docs:
//
//	make demo | tee demo.txt
//	go run ./internal/demo/picture -chapters '7,10' < demo.txt > docs/pictures/demo.svg
//
// It keeps the beginning, the named chapters and the end of the story, and cuts long lines off.
package main

import (
	"bufio"
	"cmp"
	"flag"
	"fmt"
	"html"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

const (
	columns    = 118
	cellWidth  = 7.8
	lineHeight = 18
	margin     = 16
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("picture", flag.ContinueOnError)
	chapters := flags.String("chapters", "7,10", "numbers of the chapters to show")
	if err := flags.Parse(args); err != nil {
		return err
	}
	lines, err := selected(in, strings.Split(*chapters, ","))
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, draw(lines))
	return err
}

// heading begins a chapter, ending what follows the last one.
var (
	heading = regexp.MustCompile(`^(\d+)\. `)
	ending  = regexp.MustCompile(`^What was sent`)
)

// selected returns the lines to draw.
func selected(in io.Reader, chapters []string) (lines []string, err error) {
	show := true
	for s := bufio.NewScanner(in); s.Scan() || s.Err() != nil; {
		if s.Err() != nil {
			return nil, s.Err()
		}
		line := s.Text()
		if m := heading.FindStringSubmatch(line); m != nil {
			was := show
			show = slices.Contains(chapters, m[1])
			if was && !show {
				lines = append(lines, "…", "")
			}
		}
		show = show || ending.MatchString(line)
		if show {
			lines = append(lines, line)
		}
	}
	return slices.CompactFunc(lines, func(a, b string) bool { return a == "" && b == "" }), nil
}

// hardSpace stands for a space: browsers draw several spaces as one.
const hardSpace = "\u00a0"

// draw draws lines on a dark panel, which is readable on a light and on a dark page.
func draw(lines []string) string {
	var b strings.Builder
	width, height := columns*cellWidth+2*margin, len(lines)*lineHeight+2*margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" width="%.0f" height="%d" role="img" aria-label="Output of make demo">
<rect width="100%%" height="100%%" rx="8" fill="#161b22" stroke="#6e7681"/>
<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="13">
`, width, height, width, height)
	for i, line := range lines {
		if runes := []rune(line); len(runes) > columns {
			line = string(runes[:columns-1]) + "…"
		}
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" fill=\"%s\">%s</text>\n", margin, margin+(i+1)*lineHeight-5, colour(line), html.EscapeString(strings.ReplaceAll(line, " ", hardSpace)))
	}
	return b.String() + "</g>\n</svg>\n"
}

func colour(line string) string {
	var c string
	switch {
	case heading.MatchString(line), ending.MatchString(line), line == "Checks:":
		c = "#79c0ff"
	case strings.HasPrefix(line, "   ok "):
		c = "#7ee787"
	}
	return cmp.Or(c, "#e6edf3")
}
