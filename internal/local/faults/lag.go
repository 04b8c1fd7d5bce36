package faults

import (
	"bytes"
	"io"
	"net/http"
	"sync"
	"time"
)

// Lag forwards each request, and answers with the oldest known answer to an equal request that is at most as old as by.
// So a client reads stale answers, as it does with the counts of SQS. If no such answer is known, it passes on the new one.
func Lag(by time.Duration) Fault {
	type past struct {
		at     time.Time
		status int
		header http.Header
		body   []byte
	}
	var mu sync.Mutex
	known := map[string][]past{}
	return Fault{func(x *exchange) {
		res, err := x.forward()
		if err != nil {
			x.answer(nil, err)
			return
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK {
			res.Body = io.NopCloser(bytes.NewReader(body))
			x.answer(res, err)
			return
		}
		now := time.Now()
		request := x.r.URL.String() + "\n" + x.r.Header.Get("X-Amz-Target") + "\n" + string(x.body)
		mu.Lock()
		known[request] = append(known[request], past{now, res.StatusCode, res.Header, body})
		answers := known[request]
		for now.Sub(answers[0].at) > by {
			answers = answers[1:]
		}
		known[request] = answers
		old := answers[0]
		mu.Unlock()
		x.answer(&http.Response{StatusCode: old.status, Header: old.header.Clone(), Body: io.NopCloser(bytes.NewReader(old.body))}, nil)
	}}
}
