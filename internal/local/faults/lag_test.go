package faults_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"acklast/internal/local/faults"
)

func TestLagAnswersWithAnEarlierAnswerToTheSameRequest(t *testing.T) {
	t.Parallel()
	var hits atomic.Int64
	counting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, hits.Add(1)) }))
	t.Cleanup(counting.Close)
	proxy := faults.New(counting.URL)
	t.Cleanup(proxy.Close)
	c := newClient(t, proxy.URL())
	remove := proxy.Add(faults.Rule{Operation: "GetQueueAttributes", Fault: faults.Lag(time.Hour)})
	for i, want := range []string{"1", "1", "1"} {
		if got := c.mustPost("AmazonSQS.GetQueueAttributes", "a").body; got != want {
			t.Errorf("answer %d is %q, want %q", i, got, want)
		}
	}
	if got := c.mustPost("AmazonSQS.GetQueueAttributes", "b").body; got != "4" {
		t.Errorf("the first answer to another request is %q, want the target's 4", got)
	}
	remove()
	proxy.Add(faults.Rule{Fault: faults.Lag(0)})
	for _, want := range []string{"5", "6"} {
		if got := c.mustPost("AmazonSQS.GetQueueAttributes", "a").body; got != want {
			t.Errorf("an answer without a lag is %q, want %q", got, want)
		}
	}
}
