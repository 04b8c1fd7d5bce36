#!/bin/sh
# Runs every test that needs Go and Node.js only: three groups beside each other, and what each one says when
# it ends. make test is this script after make check.
#
# The whole system's tests mostly wait, so the other two fill the processors meanwhile, with a lower priority.
# The race detector is off in the first group: there it would see the tests' own code and the embedded AWS,
# which is not ours; the functions are processes of their own. Their packages are tested under it in the second.
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}

race=-race
if ! command -v "$("$go" env CC)" >/dev/null 2>&1; then
	[ -z "${CI:-}" ] || { echo "No C compiler, so no race detector: not good enough for CI." >&2; exit 1; }
	echo "No C compiler found: testing without the race detector."
	race=
fi

whole="internal/e2e internal/demo"
module=$("$go" list -m)
rest=$("$go" list ./... | while read -r package; do
	folder=${package#"$module"}
	case " $whole " in *" ${folder#/} "*) continue ;; esac
	case "$folder/" in /infra/*) ;; *) echo "$package" ;; esac
done | sort -r) # from the end of the alphabet: worker and redrive take longest

work=$(mktemp -d)
pids=
trap 'rm -rf "$work"' EXIT
# Everything that was started here belongs to this process group.
trap 'trap - INT TERM; kill 0' INT TERM

# group NAME COMMAND... runs the command in the background and says how it ended, and after how many seconds.
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
whole() { "$go" test -p 2 -timeout 20m $(printf './%s ' $whole); }
# shellcheck disable=SC2086
packages() {
	nice -n 10 "$go" test $race -p 3 -timeout 20m $rest &&
		nice -n 10 "$go" test ./internal/worker # its memory, and all of its stories, without the race detector's own costs
}
stack() { nice -n 10 "${MAKE:-make}" --no-print-directory synth && nice -n 10 "$go" test -timeout 20m ./infra/...; }

echo "Testing: the whole system, every package, the CDK stack, beside each other; each reports when it ends."
echo "The first time this compiles the embedded AWS and the CDK, which takes some minutes on two cores."
group "whole system" whole
group "packages" packages
group "stack" stack
failed=0
for pid in $pids; do wait "$pid" || failed=1; done
[ $failed = 0 ] || { echo "Some tests failed: see above." >&2; exit 1; }
echo "Not run here: second engines, the adoption and the example module; make test-engines runs them."
