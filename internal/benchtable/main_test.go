package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What go test prints around the figures, and figures of three runs.
const printed = `=== RUN   TestBesideABareWorker
goos: linux
BenchmarkOverheadPerRecord
BenchmarkOverheadPerRecord-2   	   12345	    123456 ns/op	     19000 ns/record	    4096 B/op	     305 allocs/op
BenchmarkBesideABareWorker/distinct	1	0.5 x-jobs/s	0.34 cpu-s/1000jobs
BenchmarkBesideABareWorker/distinct	1	0.7 x-jobs/s	0.36 cpu-s/1000jobs
BenchmarkBesideABareWorker/distinct	1	0.6 x-jobs/s	0.30 cpu-s/1000jobs
Benchmark is no figure
--- PASS: TestBesideABareWorker (30.00s)
ok  	acklast/internal/e2e	30.943s
`

func TestTable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bench.json")
	var out bytes.Buffer
	if err := run([]string{file}, strings.NewReader(printed), &out); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"NAME UNIT VALUE RUNS AIM",
		"OverheadPerRecord ns/op 123456 1",
		"OverheadPerRecord ns/record 19000 1 ≤ 20000",
		"OverheadPerRecord B/op 4096 1",
		"OverheadPerRecord allocs/op 305 1",
		"BesideABareWorker/distinct x-jobs/s 0.6 3 ≥ 0.9 missed",
		"BesideABareWorker/distinct cpu-s/1000jobs 0.34 3 ≤ 0.35",
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("line %d: got %q, want %q", i, got[min(i, len(got)):], want[min(i, len(want)):])
		}
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var figures []figure
	if err := json.Unmarshal(raw, &figures); err != nil {
		t.Fatal(err)
	}
	if len(figures) != len(want)-1 {
		t.Fatalf("the file has %d figures, the table %d", len(figures), len(want)-1)
	}
	if f := figures[4]; f.Name != "BesideABareWorker/distinct" || f.Unit != "x-jobs/s" || f.Value != 0.6 || f.Runs != 3 || f.Aim != "≥ 0.9" || f.Met == nil || *f.Met {
		t.Errorf("the file has %+v", f)
	}
	if f := figures[0]; f.Met != nil {
		t.Errorf("a figure without an aim meets one: %+v", f)
	}
}

func TestNoFiguresIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bench.json")
	if err := run([]string{file}, strings.NewReader("ok\n"), new(bytes.Buffer)); err == nil {
		t.Error("no error without a figure")
	}
	if err := run(nil, strings.NewReader(printed), new(bytes.Buffer)); err == nil {
		t.Error("no error without a file")
	}
}

func TestThePlotHasABarForEachFigure(t *testing.T) {
	const peers = "BenchmarkPeers/distinct/acklast\t1\t0.7 x-bare-jobs/s\t30 MiB\n" +
		"BenchmarkPeers/distinct/powertools\t1\t0.35 x-bare-jobs/s\t120 MiB\nBenchmarkPeers/distinct/bare\t1\t15 MiB\n"
	dir := t.TempDir()
	file := filepath.Join(dir, "peers.svg")
	var out bytes.Buffer
	if err := run([]string{filepath.Join(dir, "peers.json"), file}, strings.NewReader(peers), &out); err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(svg), "<rect x="); n != 5 {
		t.Errorf("%d bars, want 5", n)
	}
	for _, want := range []string{`width="450.0" height="12" fill="#1f6feb"`, `width="225.0" height="12" fill="#d4720b"`, "distinct, bare"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("%s is missing in\n%s", want, svg)
		}
	}
	if err := xml.Unmarshal(svg, new(struct{})); err != nil {
		t.Errorf("the plot is no XML: %v", err)
	}
}
