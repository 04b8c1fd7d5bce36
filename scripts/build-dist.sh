#!/bin/sh
# Builds the Lambda binaries into dist/, byte for byte the same from any folder and at any time.
#
# usage: scripts/build-dist.sh [function ...]     default: worker redrive
#
# GOARCH=amd64 builds for that processor, which the local environment of such a machine needs. AWS gets arm64.
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- worker redrive
for name in "$@"; do
	mkdir -p "dist/$name"
	# -buildid= and -buildvcs=false keep comments and commits out of the binary, so that CDK uploads
	# a function, and Lambda restarts it, only if its code has changed. lambda.norpc leaves out the old go1.x protocol.
	GOOS=linux GOARCH="${GOARCH:-arm64}" CGO_ENABLED=0 go build -trimpath -buildvcs=false \
		-tags lambda.norpc -ldflags '-s -w -buildid=' -o "dist/$name/bootstrap" "./functions/$name"
done
