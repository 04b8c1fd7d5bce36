#!/usr/bin/env bash
# Checks the policies of the stack with real AWS calls. It records the calls of the functions in the end-to-end
# tests and those of the command line in its tests. Then it replays them, and the calls in implied.json, against
# the template of each group of settings. `make test-engines` calls it; it takes some minutes.
#
# The evaluator of policies is installed from npm into scripts/iam. It is a tool, not a part of the product.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export ACKLAST_CALLS=$work/calls
unset AWS_ENDPOINT_URL ACKLAST_E2E ACKLAST_DATA_ENDPOINT

(cd scripts/iam && npm ci --ignore-scripts --no-audit --no-fund >/dev/null)

echo "Recording the AWS calls of the functions and of the command line."
# Leave out tests of the address that a command prints, which the recorder changes, and of stacks with other names.
go test -count=1 ./cmd/acklast ./internal/kinds/reservation/desk -skip '^(TestUnknownJob|TestLocal|TestStatus|TestSettings|TestMissingStack|TestAnnouncesBeforeWriting|TestMistakes|TestErrorsLeaveStdoutToJSON|TestConsoleRefusesBadFlags)$'
go test -count=1 -timeout 20m ./internal/e2e -skip 'RandomKills'

JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION=$(node -p 'process.versions.node.split(".")[0]')
export JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION
scripts/build-dist.sh
go build -o "$work/infra" ./infra

senders=arn:aws:sns:eu-central-1:123456789012:orders,arn:aws:events:eu-central-1:123456789012:rule/orders,arn:aws:s3:::orders

# check "SETTINGS" CONTEXT... checks the template that is made with the context; implied.json names the settings.
check() {
	local settings=$1 context=(-c env=default -c acklast:destroyData=true -c acklast:checkedDeployment=false)
	shift
	for one in "$@"; do context+=(-c "acklast:$one"); done
	AWS_REGION=eu-central-1 node_modules/.bin/cdk synth --quiet --app "$work/infra" --build true --output "$work/cdk.out" "${context[@]}" >"$work/synth" 2>&1 || { cat "$work/synth" >&2; exit 1; }
	# shellcheck disable=SC2086 # one word for each setting
	node scripts/iam/check.mjs "$ACKLAST_CALLS" "$work/cdk.out/acklast.template.json" $settings
}
check ""
check "customerKey alarmEmail senders" customerKey=true alarmEmail=ops@example.com "senders=$senders"
check "customerKey" customerKey=false # the key is kept, with the rights to what waits under it
check "vpc checkedDeployment" vpc=vpc-0a1b2c3d subnets=subnet-0a1b2c3d,subnet-1a2b3c4d checkedDeployment=true
check "ses" provider=ses sesFrom=reminders@example.com sesConfigurationSet=reminders
check "ses sesSandbox" provider=ses sesFrom=reminders@example.com sesConfigurationSet=reminders sesSandbox=true
check "http senders" provider=http providerUrl=https://provider.example providerRefusals=rate_limited,overloaded "senders=$senders" \
	providerSecretArn=arn:aws:secretsmanager:eu-central-1:123456789012:secret:provider-AbCdEf
