//go:build adoption

package stack

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// docs/example is a module with a path that cannot reach acklast's internal packages.
const example = "../../docs/example"

func TestTheExampleModuleIsVettedBuiltAndSynthesised(t *testing.T) {
	dir := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = example
		cmd.Env = append(os.Environ(), "GOWORK=off", "CDK_OUTDIR="+filepath.Join(dir, "cdk.out"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s\nIf its go.mod is stale: cd docs/example && go mod tidy", strings.Join(args, " "), err, out)
		}
	}
	run("vet", "./...")
	run("run", "./infra")

	tm, err := read(dir, "Shop")
	if err != nil {
		t.Fatal(err)
	}
	if got := keys(tm.named(t, "AWS::DynamoDB::Table", "TableName", "shop-carts")); got != schema("cart_id", "") {
		t.Errorf("the kind's table has keys %s", got)
	}
	if may := tm.allowed(t, "JobsWorkerRole"); !slices.Contains(may, "dynamodb:UpdateItem dynamodb:table/shop-carts") {
		t.Errorf("the worker may not close a cart, but %v", may)
	}
	if may := tm.allowed(t, "Web"); !slices.Contains(may, "sqs:SendMessage sqs:shop-source") {
		t.Errorf("the shop's own role may not send, but %v", may)
	}
	built, err := filepath.Glob(filepath.Join(dir, "cdk.out", "asset.*", "bootstrap"))
	if err != nil || len(built) != 2 {
		t.Fatalf("built %q, %v, want two functions", built, err)
	}
	for _, file := range built {
		f, err := elf.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		if f.Machine != elf.EM_AARCH64 {
			t.Errorf("%s is for %v", file, f.Machine)
		}
		_ = f.Close()
	}
}
