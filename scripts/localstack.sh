#!/bin/sh
# Runs the stack on LocalStack: the same template and the same binaries as on AWS, in a container.
#
# usage: scripts/localstack.sh up | deploy | e2e | down
#
#   up      starts LocalStack and waits until it answers
#   deploy  builds, bootstraps and deploys the stack into it; an earlier stack and its data are destroyed first
#   e2e     runs the black-box end-to-end tests against it
#   down    removes the container and everything in it
#
# docs/deploy.md lists what works on each edition. scripts/ministack.sh does the same without Docker or a token.
#
# Needs Docker, and LOCALSTACK_AUTH_TOKEN: LocalStack's images ask for a licence at start.
set -eu
cd "$(dirname "$0")/.."

# Pinned: a newer image under a moving tag once required a token.
image=localstack/localstack:2026.08.3
container=acklast-localstack
port=${LOCALSTACK_PORT:-4566}
stack=${STACK:-acklast}

fail() {
	printf '%s\n' "$@" >&2
	exit 1
}

# The commands talk to the container and to nothing else, whatever profile the shell has.
to_localstack() {
	unset AWS_PROFILE AWS_DEFAULT_PROFILE AWS_SESSION_TOKEN
	export AWS_ENDPOINT_URL="http://localhost.localstack.cloud:$port"
	# cdklocal needs this one too, because buckets are host names.
	export AWS_ENDPOINT_URL_S3="http://s3.localhost.localstack.cloud:$port"
	export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test
	export AWS_REGION="${AWS_REGION:-us-east-1}"
	export AWS_DEFAULT_REGION="$AWS_REGION"
}

healthy() { curl -fsS "http://127.0.0.1:$port/_localstack/health" >/dev/null 2>&1; }

up() {
	[ -n "${LOCALSTACK_AUTH_TOKEN:-}" ] || fail \
		"LOCALSTACK_AUTH_TOKEN is not set, and LocalStack does not start without one." \
		"Get one from your LocalStack account (Auth Tokens), export it and try again." \
		"Or do without: 'make ministack-up ministack-deploy ministack-e2e' deploys the same stack" \
		"and needs neither an account, nor Docker, nor a token."
	docker info >/dev/null 2>&1 || fail \
		"Docker does not answer. Start it and try again." \
		"Or do without: 'make ministack-up ministack-deploy ministack-e2e' deploys the same stack."
	if healthy; then
		echo "LocalStack already runs on port $port"
		return
	fi
	docker rm -f "$container" >/dev/null 2>&1 || true
	# LocalStack needs the socket to run each function in a container of its own. It ignores the processor
	# in a function's settings, because the binaries are built for this machine's.
	docker run --detach --name "$container" \
		--publish "127.0.0.1:$port:4566" \
		--volume /var/run/docker.sock:/var/run/docker.sock \
		--env LOCALSTACK_AUTH_TOKEN \
		--env LAMBDA_IGNORE_ARCHITECTURE=1 \
		"$image" >/dev/null
	echo "waiting for LocalStack on port $port"
	tries=0
	until healthy; do
		tries=$((tries + 1))
		[ "$tries" -lt 60 ] || fail "LocalStack did not answer within two minutes: docker logs $container"
		sleep 2
	done
	echo "LocalStack runs; next: scripts/localstack.sh deploy"
}

running() { healthy || fail "LocalStack does not answer on port $port; start it first: scripts/localstack.sh up"; }

deploy() {
	running
	[ -x node_modules/.bin/cdklocal ] || npm ci --ignore-scripts
	to_localstack
	GOARCH=$(go env GOHOSTARCH)
	export GOARCH
	node_modules/.bin/cdklocal bootstrap
	set -- -c env=default -c "acklast:stack=$stack" -c acklast:destroyData=true -c acklast:checkedDeployment=false -c "acklast:endpoint=$AWS_ENDPOINT_URL"
	# LocalStack cannot update: a changed redrive function would leave its aliases broken for good.
	node_modules/.bin/cdklocal destroy --force "$@"
	node_modules/.bin/cdklocal deploy --require-approval never "$@"
	echo "deployed; next: scripts/localstack.sh e2e"
}

e2e() {
	running
	to_localstack
	ACKLAST_E2E=localstack ACKLAST_STACK="$stack" go test -count=1 -timeout 20m -v ./internal/e2e/...
}

down() { docker rm -f "$container" >/dev/null; }

case "${1:-}" in
up | deploy | e2e | down) "$1" ;;
*) fail "usage: scripts/localstack.sh up | deploy | e2e | down" ;;
esac
