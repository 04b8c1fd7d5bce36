package awsclient_test

import (
	"crypto/tls"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"acklast/internal/awsclient"
)

// engine answers like an AWS service, and before it has read the request's body to its end.
func engine(t *testing.T) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadFull(r.Body, make([]byte, 1)); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		_, _ = io.WriteString(w, `{"QueueUrls":["q"],"TableNames":["t"],"pad":"`+strings.Repeat("x", 64<<10)+`"}`)
	})
}

func call(t *testing.T, endpoint string) {
	t.Helper()
	cfg, err := awsclient.Load(t.Context(), config.WithRegion("us-east-1"), config.WithBaseEndpoint(endpoint),
		config.WithRetryMaxAttempts(1), config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider("a", "b", "")))
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		queues, err := awsclient.SQS(cfg).ListQueues(t.Context(), &sqs.ListQueuesInput{})
		if err != nil || len(queues.QueueUrls) != 1 {
			t.Fatalf("ListQueues: %v", err)
		}
		// No response checksum: only an endpoint of AWS's own sends it.
		tables, err := awsclient.DynamoDB(cfg).ListTables(t.Context(), &dynamodb.ListTablesInput{})
		if err != nil || len(tables.TableNames) != 1 {
			t.Fatalf("ListTables: %v", err)
		}
	}
}

func TestClientsWithoutACABundle(t *testing.T) {
	t.Setenv("AWS_CA_BUNDLE", "")
	server := httptest.NewServer(engine(t))
	defer server.Close()
	call(t, server.URL)
}

func TestClientsHonourACABundle(t *testing.T) {
	server := httptest.NewUnstartedServer(engine(t))
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	server.StartTLS()
	defer server.Close()
	bundle := filepath.Join(t.TempDir(), "ca.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(bundle, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_CA_BUNDLE", bundle)
	call(t, server.URL)
}
