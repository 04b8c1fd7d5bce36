#!/bin/sh
# Runs the stack on MiniStack: the same template and the same binaries as on AWS, in processes of this
# machine. It needs Python and Node.js, but neither Docker, nor an account, nor a token.
#
# usage: scripts/ministack.sh up | deploy | e2e | down
#
#   up      installs MiniStack from PyPI into .cache (the first time), starts it and waits until it answers
#   deploy  builds, bootstraps and deploys the stack into it
#   e2e     runs the black-box end-to-end tests against it
#   down    stops it; everything in it is gone
#
# MINISTACK_PORT (4566) is its port, STACK (acklast) the stack's name, MINISTACK_RUN (.cache/ministack/run) the
# folder of its log and process id.
set -eu
cd "$(dirname "$0")/.."

# Pinned: releases differ in the requests that they accept.
package=ministack==1.5.33
home=.cache/ministack
venv=$home/venv
run=${MINISTACK_RUN:-$home/run}
port=${MINISTACK_PORT:-4566}
stack=${STACK:-acklast}
endpoint=http://127.0.0.1:$port

fail() {
	printf '%s\n' "$@" >&2
	exit 1
}

# The commands talk to MiniStack and to nothing else, whatever profile the shell has.
to_ministack() {
	unset AWS_PROFILE AWS_DEFAULT_PROFILE AWS_SESSION_TOKEN
	# cdklocal needs both.
	export AWS_ENDPOINT_URL="$endpoint" AWS_ENDPOINT_URL_S3="$endpoint"
	export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test
	export AWS_REGION=us-east-1 AWS_DEFAULT_REGION=us-east-1
}

# ministack ARGUMENTS... runs MiniStack with only these variables:
# - BIND_HOST: by default it listens on every address, and it runs any code that is uploaded to it.
# - AWS_ENDPOINT_URL: functions inherit it. Without it, their calls could reach the real AWS.
# - Nothing else is inherited, so that no function gets this shell's credentials or AWS settings.
ministack() {
	mkdir -p "$run"
	private=$(cd "$run" && pwd)
	env -i PATH="$PATH" HOME="$private" TMPDIR="$private" BIND_HOST=127.0.0.1 GATEWAY_PORT="$port" \
		AWS_ENDPOINT_URL="$endpoint" "$venv/bin/ministack" "$@"
}

install() {
	[ "$(cat "$venv/installed" 2>/dev/null)" = "$package" ] && return
	echo "installing $package into $venv" >&2
	rm -rf "$venv"
	python3 -m venv "$venv"
	"$venv/bin/pip" install --quiet --disable-pip-version-check "$package" >&2
	echo "$package" >"$venv/installed"
}

healthy() { curl -fsS "$endpoint/_ministack/health" >/dev/null 2>&1; }

up() {
	if healthy; then
		echo "MiniStack already runs on port $port"
		return
	fi
	install
	ministack --detach
	tries=0
	until healthy; do
		tries=$((tries + 1))
		[ "$tries" -lt 120 ] || fail "MiniStack did not answer within a minute; see $run/ministack-$port.log"
		sleep 0.5
	done
	echo "MiniStack runs; next: scripts/ministack.sh deploy"
}

running() { healthy || fail "MiniStack does not answer on port $port; start it first: scripts/ministack.sh up"; }

deploy() {
	running
	[ -x node_modules/.bin/cdklocal ] || npm ci --ignore-scripts
	to_ministack
	JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION=$(node -p 'process.versions.node.split(".")[0]')
	# It runs the binaries on this machine, whatever processor the template names.
	GOARCH=$(go env GOHOSTARCH)
	export GOARCH JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION
	rm -rf "$run/cdk.out"
	node_modules/.bin/cdk synth --quiet --output "$run/cdk.out" -c env=default -c "acklast:stack=$stack" -c acklast:destroyData=true \
		-c acklast:checkedDeployment=false -c "acklast:endpoint=$endpoint"
	node scripts/ministack-template.mjs "$run/cdk.out" "$stack"
	# --build true builds nothing: the binaries are in the folder.
	node_modules/.bin/cdklocal bootstrap --app "$run/cdk.out" --build true --progress events
	node_modules/.bin/cdklocal deploy --app "$run/cdk.out" --build true --progress events --require-approval never
	echo "deployed; in a shell that is to talk to it:"
	echo "  export AWS_ENDPOINT_URL=$endpoint"
	echo "next: scripts/ministack.sh e2e"
}

e2e() {
	running
	to_ministack
	ACKLAST_STACK="$stack" go test -count=1 -timeout 20m -v ./internal/e2e/...
}

down() { ministack --stop; }

case "${1:-}" in
up | deploy | e2e | down) "$1" ;;
*) fail "usage: scripts/ministack.sh up | deploy | e2e | down" ;;
esac
