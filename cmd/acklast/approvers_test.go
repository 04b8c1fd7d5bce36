package main

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"acklast/internal/redrive"
	"acklast/internal/topology"
)

// approvers is a command line whose user holds the approvers' policy alone. AWS denies every call but an invocation of
// the redrive function's alias approve. operate counts the invocations of the alias operate.
func approvers(t *testing.T) (c *cli, operate *atomic.Int64) {
	t.Helper()
	c, _ = governed(t)
	c.env[envStack] = c.stack
	through := func(env map[string]string) http.Handler {
		to, err := url.Parse(env["AWS_ENDPOINT_URL"])
		if err != nil {
			t.Fatal(err)
		}
		return httputil.NewSingleHostReverseProxy(to)
	}
	allowed := through(c.env)
	denied := through(refusing(t, 403, func(service, operation string) (string, string) {
		return "AccessDeniedException", "User: " + caller + " is not authorized to perform: " + service + ":" + operation
	}))
	operate = new(atomic.Int64)
	c.env["AWS_ENDPOINT_URL"] = serving(t, func(w http.ResponseWriter, r *http.Request) {
		alias := ""
		if strings.HasSuffix(r.URL.Path, "/functions/"+c.stack+"-redrive/invocations") {
			alias = r.URL.Query().Get("Qualifier")
		}
		switch alias {
		case topology.AliasApprove:
			allowed.ServeHTTP(w, r)
			return
		case topology.AliasOperate:
			operate.Add(1)
		}
		denied.ServeHTTP(w, r)
	})["AWS_ENDPOINT_URL"]
	return c, operate
}

// Approvers need to see what they discard and decide, and hold the alias approve alone.
func TestApproversReadThroughTheirAlias(t *testing.T) {
	c, _ := approvers(t)
	for _, args := range [][]string{{"dlq"}, {"dlq", "--list"}, {"audit", someJob}, {"redrive", "status"}} {
		c.must(args...)
	}
}

func TestApproversMayNotOperate(t *testing.T) {
	c, operate := approvers(t)
	c.refused(exitFailed, []string{"redrive plan", "policy Operators"}, "redrive", "plan", "--all", "--reason", "why")
	if n := operate.Load(); n != 1 {
		t.Errorf("the alias operate was invoked %d times, want once", n)
	}
}

// A command that looks again and again is denied once.
func TestTheAliasThatAllowsReadingIsRemembered(t *testing.T) {
	c, operate := approvers(t)
	a := &app{stack: c.stack, endpoint: c.env["AWS_ENDPOINT_URL"], getenv: func(string) string { return "" }, now: time.Now, stderr: &buffer{}}
	to, err := a.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := a.governing(to).ask(t.Context(), redrive.Request{Action: "status"}); err != nil {
			t.Fatal(err)
		}
	}
	if n := operate.Load(); n != 1 {
		t.Errorf("the alias operate was invoked %d times, want once", n)
	}
}
