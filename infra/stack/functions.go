package stack

import (
	"maps"
	"path/filepath"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/jsii-runtime-go"

	"acklast/internal/kinds/reminder"
	"acklast/internal/redrive"
	"acklast/internal/topology"
	"acklast/internal/worker"
)

// functionNames are the folders of functions/ and of dist/.
var functionNames = []string{"worker", "redrive"}

func bootstrap(dist, function string) string { return filepath.Join(dist, function, "bootstrap") }

// function is a Lambda function with what is its own.
type function struct {
	fn   awslambda.Function
	role awsiam.Role
	logs awslogs.LogGroup
}

// redriveFunction is the redrive function with its two doors.
type redriveFunction struct {
	function
	operate, approve awslambda.Alias
}

func newWorker(st *stack, dist string) function {
	s := st.settings
	f := newFunction(st, "Worker", s.names().WorkerFunction, filepath.Join(dist, "worker"), &awslambda.FunctionProps{
		Description: jsii.String("Runs the jobs of both lanes"),
		Timeout:     seconds(s.Numbers.WorkerTimeout),
		MemorySize:  jsii.Number(s.Numbers.WorkerMemoryMB),
		Environment: st.environment(workerEnvironment(s, st.queueURLs())),
		// Retries and deferrals are sent to the recovery lane, which feeds this same function. Lambda
		// takes that for a runaway loop and would stop it after 16 rounds, sending the message to the
		// DLQ unrecorded. Attempts and hops bound the loop instead.
		RecursiveLoop:                awslambda.RecursiveLoop_ALLOW,
		ReservedConcurrentExecutions: optional(s.Infra.WorkerReserved),
	})
	st.grantWorker(f.role)
	return f
}

func newRedrive(st *stack, dist string) redriveFunction {
	s := st.settings
	f := newFunction(st, "Redrive", s.names().RedriveFunction, filepath.Join(dist, "redrive"), &awslambda.FunctionProps{
		Description:                  jsii.String("Governs the DLQ; invoke it through the aliases operate and approve"),
		Timeout:                      seconds(s.Infra.RedriveTimeout),
		MemorySize:                   jsii.Number(s.Infra.RedriveMemoryMB),
		Environment:                  st.environment(redrive.Environment(s.Stack, st.queueURLs(), s.Numbers, s.redrive())),
		ReservedConcurrentExecutions: optional(s.Infra.RedriveReserved),
		// A request that was given up must not come back later: the caller asks for the status, and
		// says it again if it still wants it.
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

func newFunction(st *stack, id, name, code string, props *awslambda.FunctionProps) function {
	f := function{
		role: awsiam.NewRole(st.scope, jsii.String(id+"Role"), &awsiam.RoleProps{
			AssumedBy:   awsiam.NewServicePrincipal(jsii.String("lambda.amazonaws.com"), nil),
			Description: jsii.String("What " + name + " may do"),
		}),
		// Its own log group: one that Lambda makes keeps everything for ever, and needs the right to
		// make any.
		logs: awslogs.NewLogGroup(st.scope, jsii.String(id+"Logs"), &awslogs.LogGroupProps{
			LogGroupName:  jsii.String("/aws/lambda/" + name),
			RemovalPolicy: awscdk.RemovalPolicy_DESTROY,
		}),
	}
	// The number itself: the construct only takes a name for each.
	f.logs.Node().DefaultChild().(awslogs.CfnLogGroup).SetRetentionInDays(jsii.Number(st.settings.logDays()))
	f.logs.GrantWrite(f.role)
	props.FunctionName = &name
	props.Runtime = awslambda.Runtime_PROVIDED_AL2023()
	props.Architecture = awslambda.Architecture_ARM_64()
	props.Handler = jsii.String("bootstrap")
	props.Code = awslambda.Code_FromAsset(&code, nil)
	props.Role = f.role
	props.LogGroup = f.logs
	props.LoggingFormat = awslambda.LoggingFormat_JSON
	// Lambda drops lines below these levels. Metrics are lines of the one level that always passes;
	// the report that ends every invocation is INFO.
	props.ApplicationLogLevelV2 = awslambda.ApplicationLogLevel(st.settings.LogLevel.String())
	props.SystemLogLevelV2 = awslambda.SystemLogLevel_INFO
	props.Tracing = awslambda.Tracing_ACTIVE
	f.fn = awslambda.NewFunction(st.scope, &id, props)
	return f
}

// redrive are the redrive's numbers, with the timeout that its function is deployed with.
func (s Settings) redrive() topology.Redrive {
	r := topology.DefaultRedrive()
	r.Timeout = s.Infra.RedriveTimeout
	// In a short invocation the parts of it are shorter too.
	r.ScanTime, r.PauseMargin = min(r.ScanTime, r.Timeout/2), min(r.PauseMargin, r.Timeout/4)
	return r
}

// workerEnvironment is the worker's environment, with the provider of reminders, if there is one.
func workerEnvironment(s Settings, urls topology.QueueURLs) map[string]string {
	env := worker.Environment(s.Stack, urls, s.Numbers)
	if s.Reminders.Provider != reminder.ProviderNone {
		maps.Copy(env, s.Reminders.Environment())
	}
	return env
}

func (st *stack) queueURLs() topology.QueueURLs {
	return topology.QueueURLs{
		Source:   *st.queues.source.QueueUrl(),
		Recovery: *st.queues.recovery.QueueUrl(),
		DLQ:      *st.queues.dlq.QueueUrl(),
	}
}

func (st *stack) environment(variables map[string]string) *map[string]*string {
	variables[worker.EnvLogLevel] = st.settings.LogLevel.String()
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
