#!/bin/sh
# Runs every test that needs only Go and Node.js. It runs four groups at the same time, and prints the output of
# each group when it ends. make test is make check followed by this script.
#
# The tests of the whole system mostly wait, so the other groups use the processors meanwhile, with a lower
# priority. The race detector watches the packages in which jobs run side by side; make test-race has it watch the others
# too. It is off in the first group. There it would check only the tests' own code and the embedded AWS, since the
# functions are separate processes.
#
# make check has vetted everything, so the tests are not vetted again: that would check every dependency once more.
#
# Three of the packages' tests run at a time, each on one processor: on more they spend a third of their time on waking
# each other up. Under the race detector they have all processors.
#
# Most of the tests' garbage is short-lived: with GOGC=400 it is collected less often, for some hundred MiB of memory.
set -eu
export GOGC="${GOGC:-400}"
cd "$(dirname "$0")/.."
go=${GO:-go}

race=yes
if ! command -v "$("$go" env CC)" >/dev/null 2>&1; then
	[ -z "${CI:-}" ] || { echo "No C compiler, so no race detector: not good enough for CI." >&2; exit 1; }
	echo "No C compiler found: testing without the race detector."
	race=
fi

whole="internal/e2e internal/demo internal/soak"
# They are tested with the race detector, and without it: memory tests, and all stories and seeds, without its own costs.
watched="./internal/worker ./internal/redrive ./internal/effect ./internal/simulation"
module=$("$go" list -m)
rest=$("$go" list ./... | while read -r package; do
	folder=${package#"$module"}
	case " $whole " in *" ${folder#/} "*) continue ;; esac
	case "$folder/" in /infra/*) ;; *) echo "$package" ;; esac
done | sort -r) # from the end of the alphabet: worker and redrive take longest

work=$(mktemp -d)
pids=
trap 'rm -rf "$work"' EXIT
# All processes started here belong to this process group.
trap 'trap - INT TERM; kill 0' INT TERM

# group NAME COMMAND... runs the command in the background and prints its result and its duration.
group() {
	name=$1
	shift
	(
		began=$(date +%s)
		"$@" >"$work/$name" 2>&1 && rc=0 || rc=$?
		printf '\n%s: %s, %d s\n' "$name" "$([ $rc = 0 ] && echo passed || echo FAILED)" "$(($(date +%s) - began))" >>"$work/$name"
		cat "$work/$name"
		exit $rc
	) &
	pids="$pids $!"
}

# shellcheck disable=SC2046,SC2086 # one word for each package
whole() { "$go" test -vet=off -p 2 -timeout 20m $(printf './%s ' $whole); }
# shellcheck disable=SC2086
packages() { nice -n 10 "$go" test -vet=off -p 3 -cpu 1 -parallel 4 -timeout 20m $rest; }
stack() { nice -n 10 "${MAKE:-make}" --no-print-directory synth && nice -n 10 "$go" test -vet=off -timeout 20m ./infra/...; }
# shellcheck disable=SC2086
watched() { CGO_ENABLED=1 nice -n 10 "$go" test -vet=off -race -timeout 20m $watched; }

echo "Testing: the whole system, every package, the CDK stack${race:+, the race detector}, beside each other; each reports when it ends."
echo "The first time this compiles the embedded AWS and the CDK, which takes some minutes on two cores."
group "whole system" whole
group "packages" packages
group "stack" stack
[ -z "$race" ] || group "race detector" watched
failed=0
for pid in $pids; do wait "$pid" || failed=1; done
[ $failed = 0 ] || { echo "Some tests failed: see above." >&2; exit 1; }
echo "Not run here: second engines, the adoption and the example module, which make test-engines runs, and the race detector on every package, which make test-race runs."
