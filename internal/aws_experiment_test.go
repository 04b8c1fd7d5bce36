package internal_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// experiment runs scripts/aws-experiment.sh with fakes in place of every program that could reach an account. They
// write down how they were called. failing is a call that fails. On a fake account the stack does not exist yet.
func experiment(t *testing.T, failing string, environment []string, args ...string) (calls []string, out string, err error) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "calls")
	fake := `#!/bin/sh
call="$(basename "$0") $*"
echo "$call" >>"` + log + `"
case "$call" in
"` + failing + `"*) echo "it failed" >&2; exit 1 ;;
esac
case "$call" in
"aws cloudformation describe-stacks"*) echo "Stack with id x does not exist" >&2; exit 254 ;;
*batch-write-item*) echo "{}" ;;
*create-event-source-mapping*) echo "uuid-1" ;;
esac
`
	for _, name := range []string{"aws", "cdk", "npm", "go", "zip", "acklast", "pause"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(fake), 0o755); err != nil { //nolint:gosec // it is run
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{"../scripts/aws-experiment.sh"}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "ACKLAST="+filepath.Join(dir, "acklast"), "CDK="+filepath.Join(dir, "cdk"), "PAUSE="+filepath.Join(dir, "pause"), "JOBS=60", "PERCENTS=5", "TMPDIR="+dir)
	cmd.Env = append(cmd.Env, environment...)
	printed, err := cmd.CombinedOutput()
	written, _ := os.ReadFile(log)
	return strings.Split(strings.TrimSuffix(string(written), "\n"), "\n"), string(printed), err
}

func TestTheExperimentsDryRunCallsNothing(t *testing.T) {
	t.Parallel()
	calls, out, err := experiment(t, "none", []string{"PERCENTS=0 1 5 10"})
	if err != nil || calls[0] != "" {
		t.Fatalf("%v, called %q:\n%s", err, calls, out)
	}
	for _, want := range []string{"acklast-experiment-throws", "12 runs", "60 jobs", "Costs at most about 1.0", "https://aws.amazon.com/sqs/pricing/", "Nothing was called"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in:\n%s", want, out)
		}
	}
}

func TestTheExperimentRefusesWhatItCannotBound(t *testing.T) {
	t.Parallel()
	for environment, want := range map[string]string{"JOBS=9000000": "above COST_CAP_USD=5", "COST_CAP_USD=0": "above COST_CAP_USD=0", "JOBS=-1": "whole numbers", "MINUTES=1h": "whole numbers"} {
		calls, out, err := experiment(t, "none", []string{environment}, "--run")
		if err == nil || calls[0] != "" || !strings.Contains(out, want) {
			t.Errorf("%s: %v, called %q:\n%s", environment, err, calls, out)
		}
	}
	if calls, out, err := experiment(t, "none", nil, "--really"); err == nil || calls[0] != "" {
		t.Errorf("%v, called %q:\n%s", err, calls, out)
	}
}

// Whichever call fails, what was made is deleted, and the experiment fails.
func TestTheExperimentTearsDown(t *testing.T) {
	t.Parallel()
	for _, failing := range []string{"none", "cdk deploy", "aws lambda create-function", "aws lambda create-event-source-mapping", "aws dynamodb", "acklast send", "pause 600", "acklast resume"} {
		calls, out, err := experiment(t, failing, nil, "--run")
		if (err == nil) != (failing == "none") {
			t.Errorf("%s fails: %v\n%s", failing, err, out)
		}
		if last := calls[len(calls)-1]; !strings.HasPrefix(last, "cdk destroy --force -c acklast:stack=acklast-experiment -c acklast:destroyData=true") {
			t.Errorf("%s fails: the last call is %s", failing, last)
		}
		mapped, unmapped, deleted := 0, 0, 0
		for _, call := range calls {
			switch {
			case strings.HasPrefix(call, "aws lambda create-event-source-mapping") && failing != "aws lambda create-event-source-mapping":
				mapped++
			case strings.HasPrefix(call, "aws lambda delete-event-source-mapping"):
				unmapped++
			case strings.HasPrefix(call, "aws lambda delete-function"):
				deleted++
			}
		}
		if mapped != unmapped {
			t.Errorf("%s fails: %d mappings were made and %d deleted", failing, mapped, unmapped)
		}
		if deleted != 2 {
			t.Errorf("%s fails: %d functions of 2 were deleted", failing, deleted)
		}
		if failing == "none" && mapped != 2 {
			t.Errorf("%d mappings, want one for each bare handler", mapped)
		}
	}
}

// A stack of somebody else is not touched.
func TestTheExperimentLeavesAStackThatExists(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "aws"), []byte("#!/bin/sh\n[ \"$1\" = cloudformation ] || echo called >>"+dir+"/calls\n"), 0o755); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "../scripts/aws-experiment.sh", "--run")
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "CDK=false", "TMPDIR="+dir)
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "exists; choose another NAME") {
		t.Errorf("%v:\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "calls")); err == nil {
		t.Error("a call was made after the stack was found")
	}
}
