package awsclient

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
)

const (
	// dialTimeout bounds one connection attempt. Within a region a healthy one takes milliseconds.
	dialTimeout = time.Second
	// attemptTimeout bounds one HTTP request to DynamoDB or SQS with its answer. The SDK then tries again, so
	// that one dead connection costs one try and not the whole record.
	attemptTimeout = 3 * time.Second
	// longPoll is the longest time that ReceiveMessage may wait for a message before it answers.
	longPoll = 20 * time.Second
)

// dialing returns the client with a bound on each connection attempt.
func dialing(c *awshttp.BuildableClient) *awshttp.BuildableClient {
	return c.WithDialerOptions(func(d *net.Dialer) { d.Timeout = dialTimeout })
}

// attempts bounds each request of next, including the reading of the answer. An answer that stops in the middle
// is a failed try as well.
type attempts struct {
	next  aws.HTTPClient
	limit time.Duration
}

func (c attempts) Do(req *http.Request) (*http.Response, error) {
	limit := c.limit
	if strings.HasSuffix(req.Header.Get("X-Amz-Target"), ".ReceiveMessage") {
		limit += longPoll
	}
	ctx, cancel := context.WithTimeout(req.Context(), limit)
	defer cancel()
	resp, err := c.next.Do(req.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}
