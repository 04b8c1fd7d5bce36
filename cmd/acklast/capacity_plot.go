package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-analyze/charts"

	"acklast/internal/capacity"
)

const plotWidth, plotHeight = 900, 420

// drawable says whether a drawing can have the name; "" is no drawing.
func drawable(file string) bool {
	return file == "" || strings.HasSuffix(file, ".svg") || strings.HasSuffix(file, ".png")
}

// drawBacklog draws a plan's backlog over time.
func drawBacklog(file string, p capacity.Plan) error {
	curve := p.Curve(capacity.DrawnSteps)
	labels, names := make([]string, len(curve)), []string{"isolated jobs"}
	values := [][]float64{make([]float64, len(curve))}
	if p.Input.Within > 0 {
		values, names = append(values, make([]float64, len(curve))), append(names, "needed to meet the deadline")
	}
	for i, point := range curve {
		labels[i], values[0][i] = point.At.Round(time.Second).String(), point.Left
		if len(values) > 1 {
			values[1][i] = point.Needed
		}
	}
	output := charts.SVGOutputOptionFunc()
	if strings.HasSuffix(file, ".png") {
		output = charts.PNGOutputOptionFunc()
	}
	painter, err := charts.LineRender(values, output, charts.DimensionsOptionFunc(plotWidth, plotHeight),
		charts.TitleTextOptionFunc("Backlog over time", fmt.Sprintf("%d jobs at %s/s", p.Input.Backlog, capacity.Rate(p.Rate))),
		charts.XAxisLabelsOptionFunc(labels), charts.LegendLabelsOptionFunc(names))
	if err != nil {
		return fmt.Errorf("draw the backlog: %w", err)
	}
	drawing, err := painter.Bytes()
	if err != nil {
		return fmt.Errorf("draw the backlog: %w", err)
	}
	if err := os.WriteFile(file, drawing, 0o644); err != nil {
		return fmt.Errorf("--plot: %w", err)
	}
	return nil
}
