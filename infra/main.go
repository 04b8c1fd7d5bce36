// Command infra is the CDK app: it turns the numbers of internal/topology and the settings in the
// CDK context into one CloudFormation stack.
//
// It is run by the CDK command line (see cdk.json), from the repository's root, after the functions
// were built into dist/. It deploys nothing itself.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"

	"acklast/infra/stack"
)

func main() {
	err := run("dist")
	jsii.Close()
	if err != nil {
		fmt.Fprintln(os.Stderr, "acklast:", err)
		os.Exit(1)
	}
}

// run synthesises the stack from the context that the CDK command line passed in. The functions'
// binaries lie in dist.
func run(dist string) error {
	app := awscdk.NewApp(nil)
	given, _ := app.Node().GetAllContext(nil).(map[string]any)
	settings, err := stack.ParseSettings(given)
	if err != nil {
		return err
	}
	if err := checkDist(dist); err != nil {
		return err
	}
	stack.NewStack(app, settings, dist)
	app.Synth(nil)
	return nil
}

// checkDist says which binary is missing, before the CDK says it less clearly.
func checkDist(dist string) error {
	for _, function := range []string{"worker", "redrive"} {
		if _, err := os.Stat(filepath.Join(dist, function, "bootstrap")); err != nil {
			return fmt.Errorf("the %s function is not built, run scripts/build-dist.sh: %w", function, err)
		}
	}
	return nil
}
