#!/usr/bin/env bash
# Runs these on MiniStack: the suites of the ledger and of the queues, a deployment of the stack by the CDK, and
# the black-box tests on the deployed stack. `make test-engines` calls it; it takes about two minutes.
#
# It uses its own port and folder, so that it does not disturb a MiniStack that already runs.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
MINISTACK_RUN=$work/ministack
MINISTACK_PORT=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
ACKLAST_MINISTACK_URL=http://127.0.0.1:$MINISTACK_PORT
export MINISTACK_RUN MINISTACK_PORT ACKLAST_MINISTACK_URL
unset STACK ACKLAST_STACK ACKLAST_DATA_ENDPOINT
cleanup() {
	[ ! -e "$MINISTACK_RUN" ] || scripts/ministack.sh down >&2 || true
	rm -rf "$work"
}
trap cleanup EXIT

scripts/ministack.sh up
go vet -tags engines ./internal/lanes ./internal/dynamo
go test -count=1 -tags engines ./internal/lanes ./internal/dynamo -run '^TestMiniStack$'
scripts/ministack.sh deploy >"$work/deployment" 2>&1 || { cat "$work/deployment" >&2; exit 1; }
scripts/ministack.sh e2e | tee "$work/e2e" | grep -E '^(--- (PASS|FAIL)|    --- FAIL|ok|FAIL)' || { cat "$work/e2e" >&2; exit 1; }
grep -q '^ok' "$work/e2e" || { cat "$work/e2e" >&2; exit 1; }

# Check that every black-box test ran to its end, and that no other test counts as passed without a run.
sed -n 's/^func \(Test[A-Za-z0-9]*\)(t \*testing.T) {$/\1/p' internal/e2e/blackbox_test.go internal/e2e/operator_test.go internal/e2e/smoke_test.go | sort >"$work/want"
sed -n 's/^--- PASS: \([^ ]*\).*/\1/p' "$work/e2e" | sort >"$work/got"
diff "$work/want" "$work/got" || { echo "these black-box tests did not run (<), or these others claim to have (>)" >&2; exit 1; }

# The doctor finds the deployed stack as the template describes it. Of alarms and permissions MiniStack tells nothing.
AWS_ENDPOINT_URL=$ACKLAST_MINISTACK_URL AWS_REGION=us-east-1 go run ./cmd/acklast doctor --output json >"$work/doctor" 2>"$work/doctor.log" || true # there are findings
node -e '
const checks = JSON.parse(require("fs").readFileSync(0)).checks;
for (const area of ["queues", "mappings", "account", "clock", "settings"]) {
	const bad = checks.filter((c) => c.area === area && c.result !== "ok");
	if (bad.length > 0 || !checks.some((c) => c.area === area)) {
		console.error(`the doctor on MiniStack, ${area}:`, bad);
		process.exitCode = 1;
	}
}' <"$work/doctor"

isolated=$(AWS_ENDPOINT_URL=$ACKLAST_MINISTACK_URL AWS_REGION=us-east-1 go run ./cmd/acklast status --output json |
	node -p 'JSON.parse(require("fs").readFileSync(0)).dlq.isolated')
[ "$isolated" = 0 ] || { echo "the black-box tests left $isolated messages on the DLQ" >&2; exit 1; }
