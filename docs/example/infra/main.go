// Command infra is the shop's CDK app: a system of jobs, and a role that sends to it. It runs in the
// module's root, as cdk.json says, and builds both functions itself.
package main

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/jsii-runtime-go"

	"acklast"
	"acklast/infra/stack"

	"example.com/shop/carts"
)

func main() {
	defer jsii.Close()
	app := awscdk.NewApp(nil)
	shop := awscdk.NewStack(app, jsii.String("Shop"), nil)
	jobs := stack.New(shop, "Jobs", stack.Props{
		Name:        "shop",
		Kinds:       []acklast.Kind{carts.Kind()},
		WorkerCode:  stack.GoPackage(".", "./functions/worker"),
		RedriveCode: stack.GoPackage(".", "./functions/redrive"),
	})
	web := awsiam.NewRole(shop, jsii.String("Web"), &awsiam.RoleProps{
		AssumedBy: awsiam.NewServicePrincipal(jsii.String("ecs-tasks.amazonaws.com"), nil),
	})
	jobs.GrantSend(web)
	jobs.Table(carts.Table).GrantReadWriteData(web)
	app.Synth(nil)
}
