package reminder_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"acklast/internal/marks"
)

// A provider, or something in front of it, that sends the request back gets neither recipient nor secret into an
// error.
func TestNoAnswerBringsTheRecipientOrTheSecretIntoAnError(t *testing.T) {
	secret, recipient := marks.New("secret"), marks.New("recipient")
	p := payload()
	p.Recipient = recipient + "@example.test"
	try := func(name, url string) {
		t.Helper()
		h := provider(t, url, secret)
		_, sent := h.Send(t.Context(), "k1", p)
		_, found := h.Lookup(t.Context(), "k1", p)
		for call, err := range map[string]error{"Send": sent, "Lookup": found} {
			if err == nil {
				t.Errorf("%s: %s has no error", name, call)
				continue
			}
			for _, mark := range []string{secret, recipient} {
				if form := marks.In(err.Error(), mark); form != "" {
					t.Errorf("%s: the error of %s has %s, %s: %v", name, call, mark, form, err)
				}
			}
		}
	}
	var status int
	var shape string
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		all := fmt.Sprint(r.Header, string(body))
		w.Header().Set("Retry-After", strings.ReplaceAll(all, "\n", " "))
		w.Header().Set("Location", "/"+secret)
		w.WriteHeader(status)
		text, _ := json.Marshal(all)
		_, _ = fmt.Fprintf(w, shape, text)
	}))
	t.Cleanup(echo.Close)
	for _, status = range []int{200, 204, 301, 400, 401, 403, 404, 408, 409, 422, 429, 500, 502, 503} {
		for _, shape = range []string{`{"error":%s}`, `{"error":"x","message":%s}`, `%s`, `[%s`, `{"status":%s,"error":"x","id":7}`} {
			try(fmt.Sprint(status, " ", shape), echo.URL)
		}
	}
	for name, answer := range map[string]string{
		"no HTTP": "%s\r\n\r\n", "no status": "HTTP/1.1 %s\r\n\r\n", "a header without a colon": "HTTP/1.1 500 x\r\n%s\r\n\r\n",
		"a wrong length": "HTTP/1.1 500 x\r\nContent-Length: %s\r\n\r\n", "a wrong encoding": "HTTP/1.1 500 x\r\nTransfer-Encoding: %s\r\n\r\n",
	} {
		try(name, answering(t, strings.ReplaceAll(answer, "%s", "Bearer "+secret+" "+recipient)))
	}
}

// answering is the address of a server that gives every request the same answer, as it is.
func answering(t *testing.T, answer string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-over })
	go func() {
		defer close(over)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				_, _ = io.WriteString(c, answer)
			}
			_ = c.Close()
		}
	}()
	return "http://" + l.Addr().String()
}
