// Package local is an AWS that runs inside the process, without an account and without Docker. It serves SQS,
// DynamoDB and the Lambda API. It runs the compiled worker as real processes and feeds them from real queues.
// The binary is the deployed one, byte for byte.
//
// StartAWS starts only the services, with a stack's queues and tables. Start also starts the worker function: a
// Runtime API, a supervisor for its processes, and one poller for each lane. The pollers follow the rules that
// AWS documents for an SQS event source. Faults come from this package and never from hooks in the worker: a
// process can be killed, stopped, or killed between its response and the acknowledgement.
//
// All environments of one process share one engine's state. Give each its own stack name.
package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/sivchari/kumo"

	"acklast/internal/awsclient"
	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/topology"
)

const (
	// Region is the embedded AWS's region.
	Region = "us-east-1"
	// Credential is both the access key and the secret it accepts.
	Credential = "test"
)

// ErrPortInUse: another program listens on the requested port.
var ErrPortInUse = errors.New("port in use")

// starting serializes the starts of engines: they share state, which each start writes to.
var starting sync.Mutex

// AWS is the embedded AWS with the queues and tables of one stack.
type AWS struct {
	names    topology.Names
	endpoint string
	config   aws.Config // of the endpoint
	engine   string     // the engine's own URL, without the front
	data     string     // the URL that serves queues and tables: the engine's, unless they live elsewhere
	direct   aws.Config // of data
	lambda   aws.Config // of the engine
	urls     topology.QueueURLs
	arns     topology.QueueURLs // the same queues' ARNs
	front    *front
	// schedules is EventBridge Scheduler, which the front serves. Only an environment fires what is due.
	schedules *schedules
	// metrics is CloudWatch for the metrics of the functions.
	metrics *metrics
	close   func()
}

// StartAWS starts the services and creates the stack's queues and tables, the kinds' own included. Port 0 takes any free
// port. It returns after about 20 ms; ctx limits the start only. A call that is still in flight
// delays Close, so end long polls first.
func StartAWS(ctx context.Context, stack string, settings topology.Settings, port int, own ...job.Table) (*AWS, error) {
	return startAWS(ctx, stack, settings, port, "", own)
}

// startAWS is StartAWS with another endpoint for queues and tables, if one is given.
func startAWS(ctx context.Context, stack string, settings topology.Settings, port int, elsewhere string, own []job.Table) (*AWS, error) {
	starting.Lock()
	server := kumo.NewServer()
	starting.Unlock()
	front, err := serveFront(port, server.URL)
	if err != nil {
		server.Close()
		return nil, err
	}
	a := &AWS{names: topology.NamesOf(stack), front: front, endpoint: front.url, engine: server.URL}
	a.close = sync.OnceFunc(func() { front.close(); server.Close() })
	a.data = a.engine
	if elsewhere != "" {
		a.endpoint, a.data = elsewhere, elsewhere
	}
	if err := a.create(ctx, settings, own); err != nil {
		a.close()
		return nil, err
	}
	a.schedules = newSchedules(a.names.ScheduleGroup, a.urls.DLQ, a.direct, slog.New(slog.DiscardHandler))
	a.metrics = newMetrics(a.names)
	served := http.NewServeMux()
	a.routes(served)
	front.own.Store(served)
	return a, nil
}

func (a *AWS) create(ctx context.Context, settings topology.Settings, own []job.Table) (err error) {
	if a.config, err = ConfigAt(ctx, a.endpoint); err != nil {
		return err
	}
	if a.direct, err = ConfigAt(ctx, a.data); err != nil {
		return err
	}
	if a.lambda, err = ConfigAt(ctx, a.engine); err != nil {
		return err
	}
	if err := a.createQueues(ctx, settings); err != nil {
		return err
	}
	return dynamo.CreateTables(ctx, awsclient.DynamoDB(a.direct), a.names, own...)
}

// ConfigAt returns a configuration that reaches the given endpoint of an embedded AWS and nothing else,
// whatever the environment and the profile say about endpoints and regions.
func ConfigAt(ctx context.Context, endpoint string) (aws.Config, error) {
	cfg, err := awsclient.Load(ctx,
		config.WithRegion(Region),
		config.WithBaseEndpoint(endpoint),
		config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider(Credential, Credential, "")),
	)
	// The sources could still name an endpoint per service (AWS_ENDPOINT_URL_SQS, or a profile), which
	// outranks ours.
	cfg.ConfigSources = nil
	return cfg, err
}

// createQueues makes the DLQ first: the engine drops a message whose DLQ does not exist.
func (a *AWS) createQueues(ctx context.Context, s topology.Settings) error {
	client := awsclient.SQS(a.direct)
	create := func(name string, attributes map[string]string) (queueURL, arn string, err error) {
		q, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
		if err != nil {
			return "", "", fmt.Errorf("create queue %s: %w", name, err)
		}
		got, err := client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
			QueueUrl: q.QueueUrl, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn}})
		if err != nil {
			return "", "", fmt.Errorf("read ARN of queue %s: %w", name, err)
		}
		return *q.QueueUrl, got.Attributes[string(types.QueueAttributeNameQueueArn)], nil
	}
	seconds := func(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

	var err error
	a.urls.DLQ, a.arns.DLQ, err = create(a.names.DLQ, map[string]string{
		string(types.QueueAttributeNameMessageRetentionPeriod): seconds(s.DLQRetention),
	})
	if err != nil {
		return err
	}
	redrive, err := json.Marshal(map[string]any{"deadLetterTargetArn": a.arns.DLQ, "maxReceiveCount": s.MaxReceiveCount})
	if err != nil {
		return err
	}
	lane := map[string]string{
		string(types.QueueAttributeNameVisibilityTimeout):      seconds(s.LaneVisibility),
		string(types.QueueAttributeNameMessageRetentionPeriod): seconds(s.LaneRetention),
		string(types.QueueAttributeNameRedrivePolicy):          string(redrive),
	}
	if a.urls.Source, a.arns.Source, err = create(a.names.SourceQueue, lane); err != nil {
		return err
	}
	a.urls.Recovery, a.arns.Recovery, err = create(a.names.RecoveryQueue, lane)
	return err
}

// Endpoint is the URL to give to AWS_ENDPOINT_URL.
func (a *AWS) Endpoint() string { return a.endpoint }

// FunctionsEndpoint is the URL to give to AWS_ENDPOINT_URL_LAMBDA where queues and tables live elsewhere. Without
// that, Endpoint serves everything.
func (a *AWS) FunctionsEndpoint() string { return a.front.url }

// Names are the stack's names.
func (a *AWS) Names() topology.Names { return a.names }

// QueueURLs are the URLs of the stack's queues, as the engine returns them. Their host and port are always
// localhost:4566, even if the engine listens on another port. The SDK ignores them and sends to its endpoint.
func (a *AWS) QueueURLs() topology.QueueURLs { return a.urls }

// AWSConfig is a configuration for SDK clients of this AWS, and of nothing else.
func (a *AWS) AWSConfig() aws.Config { return a.config.Copy() }

// Close stops the services. It may be called more than once.
func (a *AWS) Close() error {
	a.close()
	return nil
}

// front gives the engine a fixed port, because the engine picks its own. It also answers the requests that the
// engine does not know.
type front struct {
	url   string
	own   atomic.Pointer[http.ServeMux] // what the engine does not know; nil before there is any
	close func()
}

// qualify splits a function's name with its alias, as the AWS CLI takes it ("name:alias"), into the two that the
// engine knows.
func qualify(u *url.URL) {
	path, found := strings.CutPrefix(u.Path, functionsPath)
	name, rest, _ := strings.Cut(path, "/")
	bare, alias, named := strings.Cut(name, ":")
	if !found || !named || strings.Contains(alias, ":") { // an ARN
		return
	}
	query := u.Query()
	query.Set("Qualifier", alias)
	u.Path, u.RawPath, u.RawQuery = functionsPath+bare+"/"+rest, "", query.Encode()
}

// routes adds what is served without a worker to the mux.
func (a *AWS) routes(mux *http.ServeMux) {
	a.schedules.routes(mux)
	a.metrics.routes(mux)
}

// isOwn says whether a request is not the engine's to answer.
func isOwn(path string) bool {
	return strings.HasPrefix(path, mappingsPath) || strings.HasPrefix(path, schedulesPath) || path == metricsPath
}

const functionsPath = "/2015-03-31/functions/"

func serveFront(port int, target string) (*front, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%w: something else listens on 127.0.0.1:%d, perhaps LocalStack or another acklast; stop it or choose another port",
			ErrPortInUse, port)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on port %d: %w", port, err)
	}
	to, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	quiet := discardLog() // the user need not read about clients that hang up
	f := &front{url: "http://" + listener.Addr().String()}
	engine := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host
			qualify(r.Out.URL)
		},
		Transport: transport,
		ErrorLog:  quiet,
	}
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if own := f.own.Load(); own != nil && isOwn(r.URL.Path) {
				own.ServeHTTP(w, r)
				return
			}
			engine.ServeHTTP(w, r)
		}),
		ErrorLog:          quiet,
		ReadHeaderTimeout: time.Minute,
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // always ErrServerClosed
	f.close = func() {
		_ = server.Close()
		serving.Wait()
		transport.CloseIdleConnections()
	}
	return f, nil
}
