package main

import (
	"fmt"
	"strings"
)

// panel is one part of the plot: a unit of the figures and the words for it.
type panel struct{ unit, title string }

var panels = []panel{
	{"x-bare-jobs/s", "jobs a second, compared with a bare Go worker (more is better)"},
	{"x-bare-cpu", "processor time a job, compared with a bare Go worker (less is better)"},
	{"MiB", "resident memory, MiB (less is better)"},
}

// The plot's sizes, in pixels.
const (
	plotWidth   = 720
	plotLeft    = 190
	plotBar     = 16
	plotSection = 26
)

var (
	plotLoads   = []string{"distinct", "shared", "duplicates"}
	plotWorkers = []struct{ name, colour string }{{"acklast", "#1f6feb"}, {"powertools", "#d4720b"}, {"bare", "#8b949e"}}
)

// plot draws the figures of make bench-peers as an SVG: a bar for each worker and load. A figure that is missing has
// no bar.
func plot(figures []*figure) string {
	value := func(load, worker, unit string) (float64, bool) {
		for _, f := range figures {
			if f.Name == "Peers/"+load+"/"+worker && f.Unit == unit {
				return f.Value, true
			}
		}
		return 0, false
	}
	var b strings.Builder
	y := 10
	text := func(x, y int, anchor, weight, s string) {
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="%s" font-weight="%s">%s</text>`+"\n", x, y, anchor, weight, s)
	}
	for _, p := range panels {
		most := 0.0
		for _, load := range plotLoads {
			for _, w := range plotWorkers {
				v, _ := value(load, w.name, p.unit)
				most = max(most, v)
			}
		}
		y += plotSection
		text(10, y, "start", "bold", p.title)
		y += 8
		for _, load := range plotLoads {
			for _, w := range plotWorkers {
				v, ok := value(load, w.name, p.unit)
				if !ok {
					continue
				}
				width := v / most * (plotWidth - plotLeft - 80)
				text(plotLeft-8, y+plotBar-4, "end", "normal", load+", "+w.name)
				fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", plotLeft, y+2, width, plotBar-4, w.colour)
				text(plotLeft+int(width)+6, y+plotBar-4, "start", "normal", short(v))
				y += plotBar
			}
			y += 6
		}
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n"+
		`<title>acklast, Powertools for TypeScript and a bare Go worker</title>`+"\n"+`<rect width="100%%" height="100%%" fill="white"/>`+"\n", plotWidth, y+10) + b.String() + "</svg>\n"
}
