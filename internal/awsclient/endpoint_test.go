package awsclient

import (
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

// buffers says whether a client copies requests before it sends them.
func buffers(c aws.HTTPClient) bool {
	if a, ok := c.(attempts); ok {
		c = a.next
	}
	_, ok := c.(inMemory)
	return ok
}

// Requests to AWS are not copied. Requests to another engine are copied, in whatever way its address is set.
func TestOnlyOtherEnginesHaveTheirRequestsBuffered(t *testing.T) {
	const address = "http://127.0.0.1:1"
	for name, test := range map[string]struct {
		env     map[string]string
		load    []func(*config.LoadOptions) error
		sqs     []func(*sqs.Options)
		db      []func(*dynamodb.Options)
		buffers bool
		others  bool // clients of other services, built from the configuration
	}{
		"AWS":              {},
		"AWS_ENDPOINT_URL": {env: map[string]string{"AWS_ENDPOINT_URL": address}, buffers: true, others: true},
		"base endpoint":    {load: []func(*config.LoadOptions) error{config.WithBaseEndpoint(address)}, buffers: true, others: true},
		"one service's":    {env: map[string]string{"AWS_ENDPOINT_URL_SQS": address, "AWS_ENDPOINT_URL_DYNAMODB": address}, buffers: true},
		"option of a client's": {
			sqs:     []func(*sqs.Options){func(o *sqs.Options) { o.BaseEndpoint = aws.String(address) }},
			db:      []func(*dynamodb.Options){func(o *dynamodb.Options) { o.BaseEndpoint = aws.String(address) }},
			buffers: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("AWS_ENDPOINT_URL", "")
			for variable, value := range test.env {
				t.Setenv(variable, value)
			}
			cfg, err := Load(t.Context(), append(test.load, config.WithRegion("us-east-1"))...)
			if err != nil {
				t.Fatal(err)
			}
			if got := buffers(cfg.HTTPClient); got != test.others {
				t.Errorf("the configuration's client buffers: %v, want %v", got, test.others)
			}
			if got := buffers(SQS(cfg, test.sqs...).Options().HTTPClient); got != test.buffers {
				t.Errorf("the SQS client buffers: %v, want %v", got, test.buffers)
			}
			db := DynamoDB(cfg, test.db...).Options()
			if got := buffers(db.HTTPClient); got != test.buffers {
				t.Errorf("the DynamoDB client buffers: %v, want %v", got, test.buffers)
			}
			if got := db.DisableValidateResponseChecksum; got != test.buffers {
				t.Errorf("the DynamoDB client does without checksums: %v, want %v", got, test.buffers)
			}
		})
	}
}

func TestAtAnotherEndpointRequestsAreBuffered(t *testing.T) {
	cfg, err := Load(t.Context(), config.WithRegion("us-east-1"))
	if err != nil {
		t.Fatal(err)
	}
	moved := At(cfg, "http://127.0.0.1:1")
	if aws.ToString(moved.BaseEndpoint) != "http://127.0.0.1:1" {
		t.Errorf("the endpoint is %q", aws.ToString(moved.BaseEndpoint))
	}
	if !buffers(moved.HTTPClient) {
		t.Error("requests are not buffered")
	}
	if cfg.BaseEndpoint != nil || buffers(cfg.HTTPClient) {
		t.Error("the original configuration was changed")
	}
}

func TestARequestIsBufferedOnce(t *testing.T) {
	once := forEndpoint(http.DefaultClient, aws.String("http://127.0.0.1:1"))
	if twice := forEndpoint(once, aws.String("http://127.0.0.1:1")); twice != once {
		t.Errorf("wrapped twice: %#v", twice)
	}
}
