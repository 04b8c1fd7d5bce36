#!/bin/sh
# Holds the synthesised template against two engines that are not the CDK: cfn-lint, which must find
# nothing, and moto's CloudFormation, in which the stack is created and looked at.
#
# usage: scripts/cfn-engines.sh [template]        default: cdk.out/acklast.template.json
#
# The first run installs both, from PyPI, into .cache/cfn-engines. No account is needed, and nothing
# but that installation leaves the machine.
set -eu
cd "$(dirname "$0")/.."
template=${1:-cdk.out/acklast.template.json}
venv=.cache/cfn-engines
packages="cfn-lint==1.58.0 moto[server]==5.2.5"

[ -f "$template" ] || { echo "$template is not there; synthesise it first: npx cdk synth -q" >&2; exit 1; }
if [ "$(cat "$venv/installed" 2>/dev/null)" != "$packages" ]; then
	echo "installing $packages into $venv (a minute or two)" >&2
	rm -rf "$venv"
	python3 -m venv "$venv"
	# shellcheck disable=SC2086 # one word for each package
	"$venv/bin/pip" install --quiet --disable-pip-version-check $packages
	echo "$packages" >"$venv/installed"
fi

# W3005: the CDK says DependsOn for a function's role, which its Role property implies.
"$venv/bin/cfn-lint" --ignore-checks W3005 -- "$template"
echo "cfn-lint: no findings"
"$venv/bin/python" scripts/cfn_engines.py "$template"
