#!/bin/sh
# Compares acklast with a bare Go worker and with Powertools for TypeScript: figures of the same jobs, and counts under
# three faults. Prints one table, writes it to peers.json, and draws docs/pictures/peers.svg. Needs Node.js and npm.
#
# usage: scripts/bench-peers.sh
set -eu
cd "$(dirname "$0")/.."
(cd scripts/peers && npm ci --ignore-scripts --no-audit --no-fund)
mkdir -p .cache
go vet -tags bench ./internal/e2e
failed=0
{ go test -tags bench -count 1 -v -parallel 1 -timeout 60m ./internal/e2e -run '^(TestPeers|TestPeersUnderFaults)$' -args -peers 2>&1 || echo "the benchmarks failed"; } | tee .cache/peers.txt
if grep -q "^the benchmarks failed" .cache/peers.txt; then failed=1; fi
echo
go run ./internal/benchtable peers.json docs/pictures/peers.svg <.cache/peers.txt
exit $failed
