#!/bin/sh
# Runs the benchmarks one after the other, and then prints all their figures as one table. bench.json gets them too.
# It fails if a step fails, but not because a figure misses its aim.
#
# usage: scripts/bench.sh
set -eu
cd "$(dirname "$0")/.."
mkdir -p .cache
printed=.cache/bench.txt
: >"$printed"
failed=0
step() {
	{ if "$@" 2>&1; then echo 0 >&3; else echo 1 >&3; fi; } 3>.cache/bench.rc | tee -a "$printed"
	[ "$(cat .cache/bench.rc)" = 0 ] || failed=1
}
step go test ./internal/worker -run 'TestAllocationsPerRecord|TestABatchTakesAsLongAsOneRecord' -bench Overhead -count 5 -v
step go test ./internal/worker -run '^$' -bench FiftyThousand -benchtime 1x -v
step go vet -tags bench ./internal/e2e
step go test -tags bench -count 1 -v -parallel 1 -timeout 30m ./internal/e2e -run '^(TestColdStart|TestBesideABareWorker|TestErrors|TestThroughput|TestWorkerMemory|TestRedriveMemory)$'
step go test ./internal/redrive -run '^$' -bench . -skip OfAMillion -benchtime 1x -timeout 60m -v
# In a process of its own: what embedded engines leave behind makes the collector slow, and then garbage counts as live.
step go test ./internal/redrive -run '^$' -bench OfAMillion -benchtime 1x -timeout 60m -v
echo
go run ./internal/benchtable bench.json <"$printed"
exit $failed
