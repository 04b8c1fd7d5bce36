package stack

import (
	"fmt"
	"log/slog"
	"maps"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awseventstargets"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/jsii-runtime-go"

	"acklast/internal/redrive"
	"acklast/internal/topology"
)

// AliasLive is the worker's alias that both lanes feed. It names a version, so the lanes run the code
// of one deployment, and a later version can be tried before the alias moves.
const AliasLive = "live"

// function is a Lambda function with its role and its log group.
type function struct {
	fn   awslambda.Function
	role awsiam.Role
	logs awslogs.LogGroup
}

// redriveFunction is the redrive function with its two aliases.
type redriveFunction struct {
	function
	operate, approve awslambda.Alias
}

// workerFunction is the worker with the alias that the lanes feed.
type workerFunction struct {
	function
	live awslambda.Alias
}

func newWorker(st *Stack) workerFunction {
	s := st.props
	variables := s.workerEnvironment(st.queueURLs())
	st.scheduleEnvironment(variables)
	maps.Copy(variables, s.Environment)
	f := newFunction(st, "Worker", s.names().WorkerFunction, s.WorkerCode, &awslambda.FunctionProps{
		Description: jsii.String("Runs the jobs of both lanes"),
		Timeout:     seconds(s.Numbers.WorkerTimeout),
		MemorySize:  jsii.Number(s.Numbers.WorkerMemoryMB),
		Environment: pointers(variables),
		// Retries and deferrals are sent to the recovery lane, which feeds this same function. Lambda
		// takes that for a runaway loop and would stop it after 16 rounds, sending the message to the
		// DLQ unrecorded. Attempts, contentions and time bound the loop instead.
		RecursiveLoop:                awslambda.RecursiveLoop_ALLOW,
		ReservedConcurrentExecutions: optional(s.Infra.WorkerReserved),
	})
	st.grantWorker(f.role)
	return workerFunction{f, f.fn.AddAlias(jsii.String(AliasLive), &awslambda.AliasOptions{
		Description: jsii.String("The version that the lanes feed"),
	})}
}

func newRedrive(st *Stack) redriveFunction {
	s := st.props
	variables := s.redriveEnvironment(st.queueURLs())
	maps.Copy(variables, s.Environment) // a kind that explains its records is started like in the worker
	f := newFunction(st, "Redrive", s.names().RedriveFunction, s.RedriveCode, &awslambda.FunctionProps{
		Description:                  jsii.String("Governs the DLQ; invoke it through the aliases operate and approve"),
		Timeout:                      seconds(s.Infra.RedriveTimeout),
		MemorySize:                   jsii.Number(s.Infra.RedriveMemoryMB),
		Environment:                  pointers(variables),
		ReservedConcurrentExecutions: optional(s.Infra.RedriveReserved),
		// Lambda must not repeat a failed request later: the caller asks for the status, and makes the request
		// again if it is still wanted.
		RetryAttempts: jsii.Number(0),
		MaxEventAge:   awscdk.Duration_Minutes(jsii.Number(1)),
	})
	st.grantRedrive(f.role)
	// An alias does not inherit the function's rules for asynchronous invocations.
	alias := func(name, description string) awslambda.Alias {
		return f.fn.AddAlias(&name, &awslambda.AliasOptions{
			Description:   &description,
			RetryAttempts: jsii.Number(0),
			MaxEventAge:   awscdk.Duration_Minutes(jsii.Number(1)),
		})
	}
	return redriveFunction{
		function: f,
		operate:  alias(topology.AliasOperate, "For operators: everything but approve, discard and decide"),
		approve:  alias(topology.AliasApprove, "For approvers: approve, discard and decide"),
	}
}

// newCensus asks the redrive function once a day to count the isolated jobs.
func newCensus(st *Stack) awsevents.Rule {
	return awsevents.NewRule(st.scope, jsii.String("Census"), &awsevents.RuleProps{
		Description: jsii.String("Counts what is isolated in " + st.props.Name + ", once a day"),
		// At a fixed time and not at a rate, so that no deployment moves it.
		Schedule: awsevents.Schedule_Cron(&awsevents.CronOptions{Hour: jsii.String("5"), Minute: jsii.String("17")}),
		Targets: &[]awsevents.IRuleTarget{awseventstargets.NewLambdaFunction(st.redrive.operate, &awseventstargets.LambdaFunctionProps{
			Event: awsevents.RuleTargetInput_FromObject(map[string]string{"action": redrive.ActionCensus}),
		})},
	})
}

func newFunction(st *Stack, id, name string, code Code, props *awslambda.FunctionProps) function {
	f := function{
		role: awsiam.NewRole(st.scope, jsii.String(id+"Role"), &awsiam.RoleProps{
			AssumedBy:   awsiam.NewServicePrincipal(jsii.String("lambda.amazonaws.com"), nil),
			Description: jsii.String("What " + name + " may do"),
		}),
		// The stack makes the log group. Lambda would make one that keeps everything for ever, and the role would need the
		// right to make any.
		logs: awslogs.NewLogGroup(st.scope, jsii.String(id+"Logs"), &awslogs.LogGroupProps{
			LogGroupName:  jsii.String("/aws/lambda/" + name),
			RemovalPolicy: awscdk.RemovalPolicy_DESTROY,
		}),
	}
	// The number itself: the construct only takes a name for each.
	f.logs.Node().DefaultChild().(awslogs.CfnLogGroup).SetRetentionInDays(jsii.Number(st.props.logDays()))
	f.logs.GrantWrite(f.role)
	props.FunctionName = &name
	props.Runtime = awslambda.Runtime_PROVIDED_AL2023()
	props.Architecture = awslambda.Architecture_ARM_64()
	props.Handler = jsii.String("bootstrap")
	props.Role = f.role
	props.LogGroup = f.logs
	props.LoggingFormat = awslambda.LoggingFormat_JSON
	// Lambda drops lines below these levels. Metrics count as INFO, as does the report that ends every
	// invocation, so the filter is never higher than INFO: the logger itself drops the lines below the setting.
	props.ApplicationLogLevelV2 = awslambda.ApplicationLogLevel(min(st.props.LogLevel, slog.LevelInfo).String())
	props.SystemLogLevelV2 = awslambda.SystemLogLevel_INFO
	props.Tracing = awslambda.Tracing_ACTIVE
	if st.props.NoTracing {
		props.Tracing = awslambda.Tracing_DISABLED
	}
	if st.props.VPC != nil {
		props.Vpc = st.props.VPC
		// Lambda makes the function's network interfaces under its role; these actions know no resources.
		allow(f.role, []*string{jsii.String("*")}, "ec2:CreateNetworkInterface", "ec2:DescribeNetworkInterfaces", "ec2:DescribeSubnets",
			"ec2:DeleteNetworkInterface", "ec2:AssignPrivateIpAddresses", "ec2:UnassignPrivateIpAddresses")
	}
	err := code.with(func(asset awslambda.Code) {
		props.Code = asset
		f.fn = awslambda.NewFunction(st.scope, &id, props)
	})
	if err != nil {
		panic(fmt.Errorf("stack %s: function %s: %w", *st.scope.Node().Id(), name, err))
	}
	return f
}

func (st *Stack) queueURLs() topology.QueueURLs {
	return topology.QueueURLs{
		Source:   *st.queues.source.QueueUrl(),
		Recovery: *st.queues.recovery.QueueUrl(),
		DLQ:      *st.queues.dlq.QueueUrl(),
	}
}

func pointers(variables map[string]string) *map[string]*string {
	out := make(map[string]*string, len(variables))
	for name, value := range variables {
		out[name] = &value
	}
	return &out
}

// optional leaves a property out when its number is zero.
func optional(n int) *float64 {
	if n == 0 {
		return nil
	}
	return jsii.Number(n)
}
