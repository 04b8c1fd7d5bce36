package awsclient

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// dead answers the first request as a dead connection does, every other one at once.
func dead(t *testing.T, first http.HandlerFunc) (url string, requests *atomic.Int32) {
	requests = new(atomic.Int32)
	over := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		if requests.Add(1) == 1 {
			first(w, r)
			<-over
			return
		}
		_, _ = io.WriteString(w, `{"TableNames":["t"]}`)
	}))
	t.Cleanup(func() { close(over); server.Close() })
	return server.URL, requests
}

// One dead connection costs one try: the SDK repeats the call, and the call succeeds.
func TestADeadConnectionCostsOneTry(t *testing.T) {
	for name, first := range map[string]http.HandlerFunc{
		"no answer": func(http.ResponseWriter, *http.Request) {},
		"half an answer": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"TableNa`)
			w.(http.Flusher).Flush()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, requests := dead(t, first)
			cfg, err := Load(t.Context(), config.WithRegion("us-east-1"), config.WithBaseEndpoint(url),
				config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider("a", "b", "")))
			if err != nil {
				t.Fatal(err)
			}
			client := DynamoDB(cfg, func(o *dynamodb.Options) {
				o.HTTPClient = attempts{cfg.HTTPClient, time.Second}
				o.RetryMaxAttempts = 10 // a busy machine may need more than two
			})
			if _, err := client.ListTables(t.Context(), &dynamodb.ListTablesInput{}); err != nil {
				t.Error(err)
			}
			if n := requests.Load(); n < 2 {
				t.Errorf("%d requests, want a second try", n)
			}
		})
	}
}

type recorded struct{ deadline time.Time }

func (r *recorded) Do(req *http.Request) (*http.Response, error) {
	r.deadline, _ = req.Context().Deadline()
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// A long poll may take longer: cutting it off would hide the messages that it was about to return.
func TestALongPollIsNotCutOff(t *testing.T) {
	for target, want := range map[string]time.Duration{
		"AmazonSQS.ReceiveMessage":     attemptTimeout + longPoll,
		"AmazonSQS.SendMessageBatch":   attemptTimeout,
		"DynamoDB_20120810.UpdateItem": attemptTimeout,
	} {
		next := &recorded{}
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
		req.Header.Set("X-Amz-Target", target)
		before := time.Now()
		resp, err := attempts{next, attemptTimeout}.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got := next.deadline.Sub(before); got < want {
			t.Errorf("%s has %v, want at least %v", target, got, want)
		}
		if target != "AmazonSQS.ReceiveMessage" && !next.deadline.Before(time.Now().Add(longPoll)) {
			t.Errorf("%s is bounded like a long poll", target)
		}
	}
}

func TestTheClientsBoundTheirAttempts(t *testing.T) {
	cfg, err := Load(t.Context(), config.WithRegion("us-east-1"))
	if err != nil {
		t.Fatal(err)
	}
	for name, client := range map[string]aws.HTTPClient{
		"DynamoDB":  DynamoDB(cfg).Options().HTTPClient,
		"SQS":       SQS(cfg).Options().HTTPClient,
		"Scheduler": Scheduler(cfg).Options().HTTPClient,
		"others":    Bounded(cfg).HTTPClient,
	} {
		if a, ok := client.(attempts); !ok || a.limit != attemptTimeout {
			t.Errorf("%s: %T", name, client)
		}
	}
}
