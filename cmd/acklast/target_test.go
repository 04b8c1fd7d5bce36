package main

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"acklast/internal/awsclient"
	"acklast/internal/local"
	"acklast/internal/local/faults"
)

func sqsClient(aws *local.AWS) *sqs.Client { return awsclient.SQS(aws.AWSConfig()) }

func TestOnThisMachine(t *testing.T) {
	for endpoint, want := range map[string]bool{
		"http://127.0.0.1:4566": true, "http://localhost:4566": true, "http://[::1]:4566": true, "http://127.9.9.9": true,
		"http://localhost.localstack.cloud:4566": true, "http://sqs.localhost": true,
		"": false, "https://sqs.us-east-1.amazonaws.com": false, "http://10.0.0.1:4566": false,
		"http://localhost.example.com": false, "http://127.0.0.1.example.com": false,
	} {
		if got := onThisMachine(endpoint); got != want {
			t.Errorf("onThisMachine(%q) = %v", endpoint, got)
		}
	}
}

// A local address needs no other settings. At any other place region and credentials are the user's.
func TestSettings(t *testing.T) {
	remote := func(t *testing.T, env ...string) *cli {
		c := &cli{t: t, env: map[string]string{}}
		for i := 0; i < len(env); i += 2 {
			c.env[env[i]] = env[i+1]
		}
		return c
	}
	t.Run("no region", func(t *testing.T) {
		remote(t).refused(exitRefused, []string{"no AWS region", "--region", "AWS_ENDPOINT_URL=http://127.0.0.1:4566"}, "status")
	})
	t.Run("no credentials", func(t *testing.T) {
		remote(t, "AWS_REGION", "eu-west-1").refused(exitFailed, []string{"no AWS credentials", "--profile"}, "status")
	})
	t.Run("unknown profile", func(t *testing.T) {
		remote(t).refused(exitFailed, []string{"nobody"}, "status", "--profile", "nobody")
	})
	t.Run("nobody answers", func(t *testing.T) {
		offline(t).refused(exitFailed, []string{"nothing answers at http://127.0.0.1:1", "acklast local --stack none", "--endpoint-url"}, "status")
	})
	t.Run("flag outranks environment", func(t *testing.T) {
		c, aws := embedded(t)
		c.env["AWS_ENDPOINT_URL"] = "http://127.0.0.1:1"
		t.Setenv("AWS_ENDPOINT_URL_SQS", "http://127.0.0.1:2")
		t.Setenv("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:2")
		c.must("status", "--endpoint-url", aws.Endpoint())
		c.must("job", "x/y", "--endpoint-url", aws.Endpoint(), "--help")
	})
	t.Run("an address for one service is told", func(t *testing.T) {
		c, aws := embedded(t)
		c.env["AWS_ENDPOINT_URL"] = "http://127.0.0.1:1"
		t.Setenv("AWS_ENDPOINT_URL_SQS", aws.Endpoint())
		r := c.must("send", expiry("r-1"))
		contains(t, r.stderr, "queues at "+aws.Endpoint()+", tables at http://127.0.0.1:1", "account unknown")
	})
}

func TestMissingStack(t *testing.T) {
	c, aws := embedded(t)
	wanted := []string{"stack other does not exist at " + aws.Endpoint() + ", or not completely", "acklast local --stack other", "--stack"}
	for _, args := range [][]string{
		{"status"}, {"watch", "--once"}, {"send", expiry("r-1")}, {"job", "r-1"},
	} {
		c.refused(exitFailed, wanted, append(args, "--stack", "other")...)
	}
}

// Before the first write the command prints the place and the account. It does not do so before a read.
func TestAnnouncesBeforeWriting(t *testing.T) {
	for _, args := range [][]string{{"send", expiry("r-1")}} {
		t.Run(args[0], func(t *testing.T) {
			c, _ := embedded(t)
			var said buffer
			wrote := 0
			proxy := c.faulty()
			for _, operation := range []string{"SendMessageBatch", "PutItem", "UpdateItem", "TransactWriteItems"} {
				proxy.Add(faults.Rule{Operation: operation, Match: func([]byte) bool {
					if wrote++; !strings.Contains(said.String(), "Writing to stack "+c.stack+" at "+c.env["AWS_ENDPOINT_URL"]+" (account 000000000000") {
						t.Errorf("%s came before the announcement", operation)
					}
					return false
				}})
			}
			if r := c.runContext(t.Context(), &said, args...); r.code != exitOK || wrote == 0 {
				t.Errorf("exit code %d after %d writes: %s", r.code, wrote, r.stderr)
			}
		})
	}
	for _, args := range [][]string{{"status"}, {"job", "nobody"}} {
		c, _ := embedded(t)
		if r := c.run(args...); strings.Contains(r.stderr, "Writing") {
			t.Errorf("%s announced a write: %s", args[0], r.stderr)
		}
	}
}
