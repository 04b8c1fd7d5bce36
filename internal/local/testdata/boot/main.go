// Command boot is a real Lambda bootstrap for the tests of internal/local. The bodies of a batch say what it
// does with them. It shows every event to the test before it acts on it.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
)

func main() {
	if reason := os.Getenv("BOOT_DIES"); reason != "" {
		fmt.Fprintln(os.Stderr, reason)
		os.Exit(3)
	}
	lambda.Start(boot{})
}

type boot struct{}

func (boot) Invoke(ctx context.Context, payload []byte) ([]byte, error) {
	if err := report(ctx, payload); err != nil {
		return nil, err
	}
	var event events.SQSEvent
	if err := json.Unmarshal(payload, &event); err != nil {
		return nil, err
	}
	var response events.SQSEventResponse
	for _, r := range event.Records {
		verb, rest, _ := strings.Cut(r.Body, " ")
		switch verb {
		case "fail":
			response.BatchItemFailures = append(response.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: r.MessageId})
		case "error":
			return nil, fmt.Errorf("as asked")
		case "panic":
			panic("as asked")
		case "exit":
			os.Exit(7)
		case "hang":
			select {}
		case "raw":
			return []byte(rest), nil
		}
	}
	return json.Marshal(response)
}

// report shows the event to the test, which answers when the function may go on.
func report(ctx context.Context, payload []byte) error {
	req, err := http.NewRequest(http.MethodPost, os.Getenv("BOOT_REPORT"), bytes.NewReader(payload))
	if err != nil {
		return err
	}
	deadline, _ := ctx.Deadline()
	req.Header.Set("Deadline-Ms", strconv.FormatInt(deadline.UnixMilli(), 10))
	req.Header.Set("Pid", strconv.Itoa(os.Getpid()))
	req.Header["Env"] = os.Environ()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, res.Body)
	return err
}
