// Package awsclient builds the AWS clients, so that every process of acklast talks to AWS, to LocalStack and to
// the embedded AWS through the same code.
//
// The endpoint comes from the SDK's own settings (AWS_ENDPOINT_URL, or a base endpoint in the configuration).
// This package does not know which of the three it is.
package awsclient

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/scheduler"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

// Load reads the SDK's default configuration and wraps its HTTP client as this package needs it.
func Load(ctx context.Context, options ...func(*config.LoadOptions) error) (aws.Config, error) {
	cfg, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return aws.Config{}, fmt.Errorf("load AWS configuration: %w", err)
	}
	// Wrap the loaded client instead of replacing it: it may carry a CA bundle (AWS_CA_BUNDLE). Without a
	// bundle there is no client yet.
	if cfg.HTTPClient == nil {
		cfg.HTTPClient = awshttp.NewBuildableClient()
	}
	if c, ok := cfg.HTTPClient.(*awshttp.BuildableClient); ok {
		cfg.HTTPClient = dialing(c)
	}
	cfg.HTTPClient = forEndpoint(cfg.HTTPClient, cfg.BaseEndpoint)
	return cfg, nil
}

// At returns the configuration with another endpoint in place of AWS's own.
func At(cfg aws.Config, endpoint string) aws.Config {
	cfg.BaseEndpoint = &endpoint
	cfg.HTTPClient = forEndpoint(cfg.HTTPClient, cfg.BaseEndpoint)
	return cfg
}

// DynamoDB returns a DynamoDB client. Where the endpoint is not AWS's own, it does not check the CRC32
// checksum of a response, which other engines do not send.
func DynamoDB(cfg aws.Config, options ...func(*dynamodb.Options)) *dynamodb.Client {
	return dynamodb.NewFromConfig(cfg, append(options, func(o *dynamodb.Options) {
		o.DisableValidateResponseChecksum = o.BaseEndpoint != nil
		o.HTTPClient = attempts{forEndpoint(o.HTTPClient, o.BaseEndpoint), attemptTimeout}
	})...)
}

// SQS returns an SQS client.
func SQS(cfg aws.Config, options ...func(*sqs.Options)) *sqs.Client {
	return sqs.NewFromConfig(cfg, append(options, func(o *sqs.Options) {
		o.HTTPClient = attempts{forEndpoint(o.HTTPClient, o.BaseEndpoint), attemptTimeout}
	})...)
}

// Scheduler returns a client of EventBridge Scheduler. It tries a call twice: a job that is not handed over
// waits on its lane, and the next hop tries again.
func Scheduler(cfg aws.Config, options ...func(*scheduler.Options)) *scheduler.Client {
	return scheduler.NewFromConfig(cfg, append(options, func(o *scheduler.Options) {
		o.HTTPClient = attempts{forEndpoint(o.HTTPClient, o.BaseEndpoint), attemptTimeout}
		o.RetryMaxAttempts = 2
	})...)
}

// Bounded returns a configuration for clients of other services that answer within seconds. Each of their tries has the
// same bound.
func Bounded(cfg aws.Config) aws.Config {
	next := cfg.HTTPClient
	if next == nil {
		next = awshttp.NewBuildableClient()
	}
	cfg.HTTPClient = attempts{forEndpoint(next, cfg.BaseEndpoint), attemptTimeout}
	return cfg
}

// forEndpoint returns the HTTP client for an endpoint. A nil endpoint is AWS's own, whose client stays
// unchanged: a request to AWS is not copied. The SDK has already put AWS_ENDPOINT_URL and similar settings into
// the endpoint.
func forEndpoint(c aws.HTTPClient, endpoint *string) aws.HTTPClient {
	if _, already := c.(inMemory); already || endpoint == nil {
		return c
	}
	return inMemory{c}
}

// inMemory hands net/http a body that it can close without looking at the connection. The SDK closes its
// own body when an answer arrives before the body was read to its end, and net/http then drops the
// connection in the middle of that answer. A fast engine on this machine makes this happen every few
// calls; AWS reads a request before it answers.
type inMemory struct{ next aws.HTTPClient }

func (c inMemory) Do(req *http.Request) (*http.Response, error) {
	if req.Body != nil && req.Body != http.NoBody {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		if err := req.Body.Close(); err != nil {
			return nil, err
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
	}
	return c.next.Do(req)
}
