#!/bin/sh
# Runs the soak with two versions of the worker on one stack: this one, and that of the commit OLD.
set -eu
cd "$(dirname "$0")/.."
: "${OLD:?set OLD to the commit or tag of the earlier version}"
work=$(mktemp -d)
trap 'git worktree remove --force "$work/tree" 2>/dev/null || true; rm -rf "$work"' EXIT
git worktree add --detach --quiet "$work/tree" "$OLD"
(cd "$work/tree" && CGO_ENABLED=0 "${GO:-go}" build -tags lambda.norpc -o "$work/old" ./functions/worker)
"${GO:-go}" test ./internal/soak -run '^TestSoak$' -count 1 -v -timeout 24h -args \
	-soak.old="$work/old" -soak.seed="${SOAK_SEED:-0}" -soak.duration="${SOAK_DURATION:-5m}"
