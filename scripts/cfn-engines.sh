#!/bin/sh
# Checks the synthesised template with two tools other than the CDK: cfn-lint, which must find nothing,
# and moto's CloudFormation, in which the stack is created and inspected.
#
# usage: scripts/cfn-engines.sh [template]        default: cdk.out/acklast.template.json
#
# The first run installs both, from PyPI, into .cache/engines. No account is needed, and nothing
# but that installation leaves the machine.
set -eu
cd "$(dirname "$0")/.."
template=${1:-cdk.out/acklast.template.json}
[ -f "$template" ] || { echo "$template is not there; synthesise it first: npx cdk synth -q" >&2; exit 1; }
venv=$(scripts/engines-venv.sh)

# W3005: the CDK writes DependsOn for a function's role, although the Role property implies it.
"$venv/bin/cfn-lint" --ignore-checks W3005 -- "$template"
echo "cfn-lint: no findings"
# moto's CloudFormation does not know CodeDeploy.
unchecked=.cache/engines/cdk.out
node_modules/.bin/cdk synth --quiet --build true --output "$unchecked" -c env=default -c acklast:checkedDeployment=false
"$venv/bin/python" scripts/cfn_engines.py "$unchecked/${template##*/}"
