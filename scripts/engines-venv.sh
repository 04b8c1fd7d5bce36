#!/bin/sh
# Installs cfn-lint and moto into .cache/engines, once, and prints the path of that environment.
set -eu
cd "$(dirname "$0")/.."
venv=.cache/engines
packages="cfn-lint==1.58.0 moto[server]==5.2.5"
if [ "$(cat "$venv/installed" 2>/dev/null)" != "$packages" ]; then
	echo "installing $packages into $venv (a minute or two)" >&2
	rm -rf "$venv"
	python3 -m venv "$venv"
	# shellcheck disable=SC2086 # one word for each package
	"$venv/bin/pip" install --quiet --disable-pip-version-check $packages >&2
	echo "$packages" >"$venv/installed"
fi
echo "$venv"
