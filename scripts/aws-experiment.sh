#!/bin/sh
# Measures on an AWS account what failing jobs cost: 0, 1, 5 and 10 % of the jobs fail for good, with a bare handler that
# throws for its batch, a bare handler that reports the failed messages, and acklast. Lambda polls less after a function
# error; the embedded AWS does not imitate that, and only an account shows it.
#
# Without --run it makes no call: it prints what it would create, its calls, and an upper bound of the cost. With --run it
# deploys a stack of its own, measures, and deletes everything again, also if a step fails or it is interrupted.
#
# usage: scripts/aws-experiment.sh [--run]
#   NAME=acklast-experiment   the stack's name; must not exist
#   PERCENTS="0 1 5 10"       the shares of failing jobs; there are three runs for each
#   JOBS=2000                 jobs of each run
#   MINUTES=10                how long each run is watched
#   COST_CAP_USD=5            a larger estimate is refused
set -eu
cd "$(dirname "$0")/.."

name=${NAME:-acklast-experiment} percents=${PERCENTS:-0 1 5 10} jobs=${JOBS:-2000} minutes=${MINUTES:-10} cap=${COST_CAP_USD:-5}
resources=500 visibility=180
run=false
case "${1:-}" in
--run) run=true ;;
"") ;;
*)
	echo "aws-experiment: unknown argument $1; usage: scripts/aws-experiment.sh [--run]" >&2
	exit 2
	;;
esac
runs=0
for number in $percents; do runs=$((runs + 3)); done
for number in "$jobs" "$minutes" "$cap" $percents; do
	case "$number" in
	"" | *[!0-9]*)
		echo "aws-experiment: PERCENTS, JOBS, MINUTES and COST_CAP_USD are whole numbers, not \"$number\"" >&2
		exit 2
		;;
	esac
done

# An upper bound: every job is delivered again at each end of its visibility timeout, and each delivery makes a whole
# transaction of three items. Prices are those of us-east-1.
estimate=$(awk -v jobs="$jobs" -v minutes="$minutes" -v visibility="$visibility" -v resources="$resources" -v runs="$runs" 'BEGIN {
	deliveries = 1 + int(minutes * 60 / visibility)
	writes = runs * jobs * (1 + 6 * deliveries) + resources
	requests = runs * (jobs * (0.1 + 2 * deliveries) + minutes * 60)
	seconds = runs * jobs * deliveries * 0.5
	printf "%.2f %d %d %d", writes * 0.625 / 1e6 + requests * 0.40 / 1e6 + runs * jobs * deliveries * 0.20 / 1e6 + seconds * 0.25 * 0.0000133334 + 1, writes, requests, seconds
}')
# shellcheck disable=SC2086 # four words
set -- $estimate
cat <<EOF
aws-experiment: on the account of your credentials, in region ${AWS_REGION:-${AWS_DEFAULT_REGION:-(not set)}}

Creates
  the stack $name (cdk deploy), with its lanes paused and destroyData on
  the functions $name-throws and $name-reports (arm64, 256 MB, 30 s), with the worker's role
  an event source mapping of $name-source to each of them, one at a time
  $resources resources, and for each of $runs runs $jobs jobs, of which some ($percents %) have no reservation and fail for good
Calls for each run
  dynamodb batch-write-item, acklast send, lambda create-event-source-mapping or acklast resume,
  $minutes minutes later cloudwatch get-metric-statistics, then sqs purge-queue
Deletes at its end, and if it fails
  the mappings, the two functions and their log groups, and the stack with its tables and queues

Takes about $((runs * (minutes + 4))) minutes. Costs at most about $1 USD: $2 DynamoDB write units, $3 SQS requests, $4 s of Lambda,
and 1 USD for the stack's alarms, metrics and logs meanwhile. Prices of us-east-1:
  https://aws.amazon.com/dynamodb/pricing/on-demand/  0.625 USD per million write units
  https://aws.amazon.com/sqs/pricing/                 0.40 USD per million requests
  https://aws.amazon.com/lambda/pricing/              0.20 USD per million requests, 0.0000133334 USD per GB-second (arm64)
  https://aws.amazon.com/cloudwatch/pricing/
EOF
if awk -v estimate="$1" -v cap="$cap" 'BEGIN { exit !(estimate > cap) }'; then
	echo "aws-experiment: the estimate of $1 USD is above COST_CAP_USD=$cap; take fewer JOBS or MINUTES" >&2
	exit 1
fi
if ! $run; then
	echo
	echo "This was a dry run. Nothing was called. Give --run to do it."
	exit 0
fi

acklast=${ACKLAST:-bin/acklast} pause=${PAUSE:-sleep}
work=$(mktemp -d)
cdk() { ${CDK:-node_modules/.bin/cdk} "$@" -c "acklast:stack=$name" -c acklast:destroyData=true -c acklast:paused=source,recovery; }
mapping=
failed=0

unmap() {
	[ -z "$mapping" ] || aws lambda delete-event-source-mapping --uuid "$mapping" >/dev/null || return 1
	mapping=
}

# Each step is tried, whatever became of those before it.
teardown() {
	trap - EXIT INT TERM
	echo "aws-experiment: deleting everything"
	unmap || failed=1
	for handler in throws reports; do
		aws lambda delete-function --function-name "$name-$handler" 2>"$work/error" || grep -q ResourceNotFound "$work/error" || { cat "$work/error" >&2; failed=1; }
		aws logs delete-log-group --log-group-name "/aws/lambda/$name-$handler" 2>"$work/error" || grep -q ResourceNotFound "$work/error" || { cat "$work/error" >&2; failed=1; }
	done
	cdk destroy --force || failed=1
	rm -rf "$work"
	if [ $failed != 0 ]; then
		echo "aws-experiment: something was not deleted; look for $name in the account" >&2
		exit 1
	fi
	exit "$1"
}
if aws cloudformation describe-stacks --stack-name "$name" >/dev/null 2>"$work/error"; then
	echo "aws-experiment: the stack $name exists; choose another NAME" >&2
	exit 1
elif ! grep -q "does not exist" "$work/error"; then
	cat "$work/error" >&2
	exit 1
fi
trap 'teardown $?' EXIT
trap 'teardown 130' INT TERM

[ -x "$acklast" ] || go build -o "$acklast" ./cmd/acklast
[ -d node_modules ] || npm ci --ignore-scripts --no-audit --no-fund
cdk deploy --require-approval never
CGO_ENABLED=0 GOOS=linux GOARCH=arm64 go build -trimpath -tags lambda.norpc -ldflags '-s -w' -o "$work/bootstrap" ./internal/e2e/testdata/bare
(cd "$work" && zip -q bare.zip bootstrap)
role=$(aws lambda get-function-configuration --function-name "$name-worker" --query Role --output text)
for handler in throws reports; do
	throws=
	[ $handler = reports ] || throws=,BARE_THROWS=1
	aws lambda create-function --function-name "$name-$handler" --role "$role" --runtime provided.al2023 --handler bootstrap --architectures arm64 \
		--memory-size 256 --timeout 30 --zip-file "fileb://$work/bare.zip" --environment "Variables={ACKLAST_STACK=$name$throws}" >/dev/null
	aws lambda wait function-active-v2 --function-name "$name-$handler"
done
queue() { aws sqs get-queue-url --queue-name "$name-$1" --query QueueUrl --output text; }
source=$(queue source) recovery=$(queue recovery) dlq=$(queue dlq)
arn=$(aws sqs get-queue-attributes --queue-url "$source" --attribute-names QueueArn --query Attributes.QueueArn --output text)

# put writes items, one a line, in calls of 25 that are repeated for what was not taken.
put() {
	split -a 4 -l 25 - "$work/part-"
	for part in "$work"/part-*; do
		{
			printf '{"%s":[' "$1"
			awk 'NR > 1 { printf "," } { printf "{\"PutRequest\":{\"Item\":%s}}", $0 }' "$part"
			printf ']}'
		} >"$work/items"
		for try in 1 2 3 4 5 6; do
			aws dynamodb batch-write-item --request-items "file://$work/items" --query UnprocessedItems --output json >"$work/left"
			[ "$(tr -d '[:space:]' <"$work/left")" != "{}" ] || break
			[ "$try" != 6 ] || { echo "aws-experiment: DynamoDB does not take the items" >&2; return 1; }
			cp "$work/left" "$work/items"
			$pause "$try"
		done
		rm "$part"
	done
}
metric() { # namespace, name, dimension, value
	aws cloudwatch get-metric-statistics --namespace "$1" --metric-name "$2" --dimensions "Name=$3,Value=$4" --statistics Sum --period 60 \
		--start-time "$begun" --end-time "$(date -u +%Y-%m-%dT%H:%M:%SZ)" --query 'sort_by(Datapoints,&Timestamp)[].Sum' --output text
}

awk -v n="$resources" 'BEGIN { for (i = 0; i < n; i++) printf "{\"resource_id\":{\"S\":\"room-%d\"},\"capacity\":{\"N\":\"1000000\"},\"available\":{\"N\":\"0\"}}\n", i }' | put "$name-resources"
for percent in $percents; do
	for handler in throws reports acklast; do
		now=$(date +%s)
		awk -v jobs="$jobs" -v percent="$percent" -v run="$percent-$handler" -v now="$now" -v resources="$resources" -v file="$work/jobs" 'BEGIN {
			srand(1)
			for (i = 0; i < jobs; i++) {
				id = "r-" run "-" i; room = "room-" i % resources
				printf "{\"kind\":\"reservation.expire\",\"payload\":{\"reservationId\":\"%s\",\"commandId\":\"hold-1\",\"resourceId\":\"%s\",\"units\":1}}\n", id, room >file
				if (rand() * 100 < percent) continue
				printf "{\"reservation_id\":{\"S\":\"%s\"},\"command_id\":{\"S\":\"hold-1\"},\"resource_id\":{\"S\":\"%s\"},\"units\":{\"N\":\"1\"},\"state\":{\"S\":\"held\"},\"expires_at\":{\"N\":\"%d000\"},\"updated_at\":{\"N\":\"%d000\"}}\n", id, room, now - 60, now - 60
			}
		}' >"$work/reservations"
		put "$name-reservations" <"$work/reservations"
		"$acklast" send --stack "$name" --file "$work/jobs" >/dev/null
		begun=$(date -u +%Y-%m-%dT%H:%M:%SZ)
		function=$name-$handler
		case $handler in
		acklast)
			function=$name-worker
			"$acklast" resume source --stack "$name" >/dev/null
			"$acklast" resume recovery --stack "$name" >/dev/null
			;;
		throws) mapping=$(aws lambda create-event-source-mapping --function-name "$function" --event-source-arn "$arn" --batch-size 10 --scaling-config MaximumConcurrency=50 --query UUID --output text) ;;
		reports) mapping=$(aws lambda create-event-source-mapping --function-name "$function" --event-source-arn "$arn" --batch-size 10 --scaling-config MaximumConcurrency=50 \
			--function-response-types ReportBatchItemFailures --query UUID --output text) ;;
		esac
		$pause $((minutes * 60))
		if [ $handler = acklast ]; then
			"$acklast" pause source --stack "$name" >/dev/null
			"$acklast" pause recovery --stack "$name" >/dev/null
		else
			unmap
		fi
		$pause 120 # CloudWatch's figures come late
		echo "failing $percent %, $handler, by minute:"
		for figure in NumberOfMessagesReceived NumberOfMessagesDeleted NumberOfEmptyReceives; do
			echo "  source $figure: $(metric AWS/SQS $figure QueueName "$name-source")"
		done
		echo "  recovery NumberOfMessagesReceived: $(metric AWS/SQS NumberOfMessagesReceived QueueName "$name-recovery")"
		for figure in Invocations Errors; do
			echo "  function $figure: $(metric AWS/Lambda $figure FunctionName "$function")"
		done
		for url in "$source" "$recovery" "$dlq"; do
			aws sqs purge-queue --queue-url "$url"
		done
		$pause 60 # a purge takes up to a minute
	done
done
