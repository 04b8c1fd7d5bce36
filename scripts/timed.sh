#!/bin/sh
# Runs a command and prints how many seconds it took.
#
# usage: scripts/timed.sh NAME COMMAND [ARGUMENT ...]
name=$1
shift
began=$(date +%s)
"$@"
rc=$?
printf '%s: %s, %d s\n' "$name" "$([ $rc = 0 ] && echo passed || echo FAILED)" "$(($(date +%s) - began))"
exit $rc
