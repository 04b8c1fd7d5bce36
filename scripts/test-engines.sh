#!/usr/bin/env bash
# Runs the suites of queues and ledger, and the black-box tests, on engines other than the embedded one:
# fauxqs and dynalite, which have to be in node_modules (make test-engines installs them), and moto, which the
# first run installs from PyPI into .cache. It fails if an engine cannot be installed or started.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=$(scripts/engines-venv.sh)

work=$(mktemp -d)
pids=()
cleanup() {
	[ ${#pids[@]} -eq 0 ] || kill "${pids[@]}" 2>/dev/null || true
	rm -rf "$work"
}
trap cleanup EXIT

# start NAME LINES COMMAND... starts an engine and waits until it has printed its addresses.
start() {
	local name=$1 lines=$2
	shift 2
	: >"$work/$name"
	"$@" <"$work/alive" 3>&- >"$work/$name" 2>"$work/$name.err" &
	pids+=($!)
	for _ in $(seq 300); do
		[ "$(wc -l <"$work/$name")" -ge "$lines" ] && break
		kill -0 "${pids[-1]}" 2>/dev/null || break
		sleep 0.1
	done
	if [ "$(wc -l <"$work/$name")" -lt "$lines" ]; then
		echo "$name did not start:" >&2
		cat "$work/$name.err" >&2
		exit 1
	fi
	local line
	while read -r line; do export "${line?}"; done <"$work/$name"
}
# The engines end when their input ends, and their input ends with this script, in whatever way it ends.
mkfifo "$work/alive"
exec 3<>"$work/alive"
start node 2 node scripts/engines.mjs
start moto 1 "$venv/bin/python" scripts/engines.py

# suite ARGUMENTS... runs go test, and fails if it ran no test.
suite() {
	echo "go test $*"
	go test -count=1 "$@" | tee "$work/out"
	if grep -q "no tests to run" "$work/out"; then
		echo "nothing was tested" >&2
		exit 1
	fi
}
go vet -tags engines ./internal/lanes ./internal/dynamo ./infra/stack/stacktest
suite -tags engines ./internal/lanes -run '^(TestFauxqs|TestMoto)$'
suite -tags engines ./internal/dynamo -run '^TestDynalite$'
# One after the other: see scripts/engines.py.
echo "Testing the whole system with moto's queues and tables, about a minute."
ACKLAST_DATA_ENDPOINT=$ACKLAST_MOTO_URL suite ./internal/e2e -parallel 1
echo "Testing modules of others: the example's functions, and an adopted copy that another module gets."
(cd docs/example && GOWORK=off suite ./...)
suite -tags engines ./infra/stack/stacktest -run '^TestAnAdoptedCopyIsGotByAProductTeam$'
