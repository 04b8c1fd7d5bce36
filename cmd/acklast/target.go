package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"acklast/internal/awsclient"
	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/lanes"
	"acklast/internal/local"
	"acklast/internal/schedule"
	"acklast/internal/topology"
)

// identityLimit is how long a command waits for the account id before it writes.
const identityLimit = 3 * time.Second

// target is the stack of a command, and its place.
type target struct {
	names  topology.Names
	config aws.Config
	// endpoint is the address that replaces AWS, "" for AWS itself.
	endpoint string
	// place describes that address in words.
	place string
	// command is the name of the command that uses the target.
	command string
	// approving sends requests that only read through the alias of approvers.
	approving atomic.Bool

	sqs *sqs.Client
	db  *dynamodb.Client
	sts *sts.Client
	now func() time.Time
}

// connect builds the clients from AWS's own settings and the global flags. It makes no call, except for
// credentials.
func (a *app) connect(ctx context.Context) (*target, error) {
	endpoint := cmp.Or(a.endpoint, a.getenv("AWS_ENDPOINT_URL"))
	var options []func(*config.LoadOptions) error
	if endpoint != "" {
		if u, err := url.Parse(endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, refuse("endpoint %q is not a URL such as http://127.0.0.1:4566", endpoint)
		}
	}
	if a.profile != "" {
		options = append(options, config.WithSharedConfigProfile(a.profile))
	}
	region := cmp.Or(a.region, a.getenv("AWS_REGION"), a.getenv("AWS_DEFAULT_REGION"))
	// A default profile's real credentials must not be sent to an address of this machine, and new users have
	// none. So only credentials of this call or this environment are sent there.
	if onThisMachine(endpoint) && a.profile == "" && a.getenv("AWS_PROFILE") == "" && a.getenv("AWS_ACCESS_KEY_ID") == "" {
		region = cmp.Or(region, local.Region)
		options = append(options, config.WithCredentialsProvider(
			credentials.NewStaticCredentialsProvider(local.Credential, local.Credential, "")))
	}
	if region != "" {
		options = append(options, config.WithRegion(region))
	}
	cfg, err := awsclient.Load(ctx, options...)
	if err != nil {
		return nil, unsettled(err)
	}
	if endpoint != "" {
		cfg = awsclient.At(cfg, endpoint) // an address for one service, such as AWS_ENDPOINT_URL_SQS, still outranks it
	}
	if cfg.Region == "" {
		return nil, refuse("no AWS region is set: use --region or AWS_REGION, %s", orLocal)
	}
	if _, err := cfg.Credentials.Retrieve(ctx); err != nil {
		return nil, uncredited(err)
	}

	t := &target{names: topology.NamesOf(a.stack), config: cfg, now: a.now, command: a.command}
	a.target = t
	t.sqs = awsclient.SQS(cfg, func(o *sqs.Options) { overrule(&o.BaseEndpoint, a.endpoint) })
	t.db = awsclient.DynamoDB(cfg, func(o *dynamodb.Options) { overrule(&o.BaseEndpoint, a.endpoint) })
	t.sts = sts.NewFromConfig(cfg, func(o *sts.Options) { overrule(&o.BaseEndpoint, a.endpoint) })
	// Ask the clients for the address that they will use, since AWS's settings may name an address per service.
	t.endpoint = aws.ToString(t.sqs.Options().BaseEndpoint)
	t.place = cmp.Or(t.endpoint, "AWS "+cfg.Region)
	if tables := aws.ToString(t.db.Options().BaseEndpoint); tables != t.endpoint {
		t.place = "queues at " + t.place + ", tables at " + cmp.Or(tables, "AWS "+cfg.Region)
	}
	return t, nil
}

// overrule makes --endpoint-url outrank an address for one service in AWS's settings, as in the AWS CLI.
func overrule(base **string, endpoint string) {
	if endpoint != "" {
		*base = &endpoint
	}
}

// onThisMachine says whether the URL's host is this machine. LocalStack's own host name counts too.
func onThisMachine(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil {
		return false
	}
	host := strings.ToLower(u.Hostname())
	if host == "localhost" || strings.HasSuffix(host, ".localhost") || host == "localhost.localstack.cloud" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// announce prints where a command is about to write, and to which account.
func (a *app) announce(ctx context.Context, t *target) {
	ctx, cancel := context.WithTimeout(ctx, identityLimit)
	defer cancel()
	var account string
	out, err := t.sts.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{}, func(o *sts.Options) { o.RetryMaxAttempts = 1 })
	switch {
	case err == nil:
		account = "account " + aws.ToString(out.Account) + ", as " + aws.ToString(out.Arn)
	case errors.Is(err, context.DeadlineExceeded):
		account = fmt.Sprintf("account unknown: no answer within %v", identityLimit)
	default:
		account = "account unknown: " + reason(err)
	}
	say(a.stderr, "Writing to stack %s at %s (%s)\n", t.names.Stack, t.place, account)
}

// lanes returns a client for the given queues of the stack, whose URLs it looks up.
func (t *target) lanes(ctx context.Context, queues ...job.Queue) (*lanes.Client, error) {
	var urls topology.QueueURLs
	var wait sync.WaitGroup
	errs := make([]error, len(queues))
	for i, q := range queues {
		var name string
		var url *string
		switch q {
		case job.Source:
			name, url = t.names.SourceQueue, &urls.Source
		case job.Recovery:
			name, url = t.names.RecoveryQueue, &urls.Recovery
		case job.DLQ:
			name, url = t.names.DLQ, &urls.DLQ
		}
		wait.Go(func() {
			out, err := t.sqs.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: &name})
			if err != nil {
				errs[i] = fmt.Errorf("look up queue %s: %w", name, err)
				return
			}
			*url = aws.ToString(out.QueueUrl)
		})
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, t.explain(err) // one error is enough: all queues fail for the same reason
		}
	}
	return lanes.New(t.sqs, urls), nil
}

// schedules is a client of the stack's schedules that reads and deletes.
func (t *target) schedules() *schedule.Client {
	return schedule.New(awsclient.Scheduler(t.config), schedule.Target{Group: t.names.ScheduleGroup})
}

func (t *target) ledger() *dynamo.Store {
	return dynamo.New(t.db, t.names.LedgerTable, dynamo.Options{Now: t.now})
}
