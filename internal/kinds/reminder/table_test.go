package reminder_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"acklast"
	"acklast/internal/awsclient"
	"acklast/internal/dynamo"
	"acklast/internal/job"
	"acklast/internal/kinds/reminder"
	"acklast/internal/ledger"
	"acklast/internal/local/fakeprovider"
	"acklast/internal/retry"
	"acklast/internal/topology"
)

// verdict is the worker's knowledge after the first attempt.
type verdict string

const (
	accepted verdict = "accepted"
	declined verdict = "declined"
	unsent   verdict = "unsent" // certainly not accepted
	unknown  verdict = "unknown"
)

// end is the end of a job if every later call succeeds.
type end string

const (
	done      end = "done"
	terminal  end = "terminal"
	rejected  end = "rejected"
	ambiguous end = "ambiguous"
)

const html = "<html><body>upstream connect error or disconnect/reset before headers</body></html>"

// cells are the answers of a provider to one request and their results if the fake provider's codes are declared: the verdict, and for a provider without
// abilities, one that deduplicates and one that looks up, the number of accepted requests and the job's end. An
// answer that proves nothing stands twice: for a request that was accepted and for one that was not.
var cells = map[string]struct {
	do                           fakeprovider.Behaviour
	verdict                      verdict
	plain, deduplicates, looksUp end
	// the number of accepted requests with each of the three providers
	accepted [3]int
}{
	"no answer, accepted":          {fakeprovider.Late(time.Minute), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"reset, accepted":              {fakeprovider.Drop(), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"reset, not accepted":          {fakeprovider.HangUp(), unknown, ambiguous, done, ambiguous, [3]int{0, 1, 0}},
	"200 id":                       {fakeprovider.Foreign(200, `{"requestId":"r-1"}`, true), accepted, done, done, done, [3]int{1, 1, 1}},
	"200 id as a number":           {fakeprovider.Foreign(200, `{"message_id":17}`, true), accepted, done, done, done, [3]int{1, 1, 1}},
	"201 id in an envelope":        {fakeprovider.Foreign(201, `{"data":{"id":"r-1"}}`, true), accepted, done, done, done, [3]int{1, 1, 1}},
	"200 empty":                    {fakeprovider.Foreign(200, ``, true), accepted, done, done, done, [3]int{1, 1, 1}},
	"200 null":                     {fakeprovider.Foreign(200, `null`, true), accepted, done, done, done, [3]int{1, 1, 1}},
	"201 empty":                    {fakeprovider.Foreign(201, ``, true), accepted, done, done, done, [3]int{1, 1, 1}},
	"202 null":                     {fakeprovider.Foreign(202, ` null `, true), accepted, done, done, done, [3]int{1, 1, 1}},
	"204":                          {fakeprovider.Foreign(204, ``, true), accepted, done, done, done, [3]int{1, 1, 1}},
	"203 empty, which is no yes":   {fakeprovider.Foreign(203, ``, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"200 {}":                       {fakeprovider.Foreign(200, `{}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"200 status ok":                {fakeprovider.Foreign(200, `{"status":"ok"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"200 list":                     {fakeprovider.Foreign(200, `[{"requestId":"r-1"}]`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"200 error text":               {fakeprovider.Foreign(200, `{"error":"quota exceeded"}`, false), unknown, ambiguous, done, ambiguous, [3]int{0, 1, 0}},
	"200 error with an id":         {fakeprovider.Foreign(200, `{"requestId":"r-1","error":"quota exceeded"}`, false), unknown, ambiguous, done, ambiguous, [3]int{0, 1, 0}},
	"200 failed with an id":        {fakeprovider.Foreign(200, `{"requestId":"r-1","status":"FAILED"}`, false), unknown, ambiguous, done, ambiguous, [3]int{0, 1, 0}},
	"200 id of another key":        {fakeprovider.Foreign(200, `{"requestId":"r-1","key":"k-2"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"200 HTML, accepted":           {fakeprovider.Foreign(200, html, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"200 HTML, not accepted":       {fakeprovider.Foreign(200, html, false), unknown, ambiguous, done, ambiguous, [3]int{0, 1, 0}},
	"200 text":                     {fakeprovider.Foreign(200, `accepted`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"302":                          {fakeprovider.Foreign(302, ``, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"303 in the provider's shape":  {fakeprovider.Foreign(303, `{"error":"moved"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"307":                          {fakeprovider.Foreign(307, ``, false), unknown, ambiguous, done, ambiguous, [3]int{0, 1, 0}},
	"400":                          {fakeprovider.Fail(400), unsent, rejected, rejected, rejected, [3]int{0, 0, 0}},
	"400 of a proxy":               {fakeprovider.Foreign(400, html, false), unknown, ambiguous, done, ambiguous, [3]int{0, 1, 0}},
	"401":                          {fakeprovider.Fail(401), unsent, done, done, done, [3]int{1, 1, 1}},
	"404 of a proxy":               {fakeprovider.Foreign(404, html, false), unknown, ambiguous, done, ambiguous, [3]int{0, 1, 0}},
	"408":                          {fakeprovider.Foreign(408, `{"error":"timeout"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"409":                          {fakeprovider.Foreign(409, `{"error":"in_progress"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"409 invalid recipient":        {fakeprovider.Foreign(409, `{"error":"invalid_recipient"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"422 invalid recipient":        {fakeprovider.Refuse("invalid_recipient"), declined, terminal, terminal, terminal, [3]int{0, 0, 0}},
	"429":                          {fakeprovider.Throttle(""), unsent, done, done, done, [3]int{1, 1, 1}},
	"429 Retry-After":              {fakeprovider.Throttle("7"), unsent, done, done, done, [3]int{1, 1, 1}},
	"429 of a proxy":               {fakeprovider.Foreign(429, html, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"429 of a proxy, Retry-After":  {fakeprovider.Foreign(429, html, true).After("7"), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"500":                          {fakeprovider.Foreign(500, `{"error":"internal"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"500 invalid recipient":        {fakeprovider.Foreign(500, `{"error":"invalid_recipient"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"500 Retry-After":              {fakeprovider.Foreign(500, `{"error":"internal"}`, true).After("7"), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"502":                          {fakeprovider.Foreign(502, html, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"503":                          {fakeprovider.Fail(503), unsent, done, done, done, [3]int{1, 1, 1}},
	"503 Retry-After":              {fakeprovider.Fail(503).After("7"), unsent, done, done, done, [3]int{1, 1, 1}},
	"503 of a proxy, accepted":     {fakeprovider.Foreign(503, html, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"503 of a proxy, Retry-After":  {fakeprovider.Foreign(503, html, true).After("7"), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"503 of a proxy, not accepted": {fakeprovider.Foreign(503, html, false), unknown, ambiguous, done, ambiguous, [3]int{0, 1, 0}},
	// The bodies of frameworks and proxies, which have fields with the provider's names.
	"503 of Spring":                      {fakeprovider.Foreign(503, `{"timestamp":"2026-12-01T10:00:00.000+00:00","status":503,"error":"Service Unavailable","path":"/messages"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"503 of Fastify":                     {fakeprovider.Foreign(503, `{"statusCode":503,"code":"FST_UNDER_PRESSURE","error":"Service Unavailable","message":"Service Unavailable"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"503 of Envoy":                       {fakeprovider.Foreign(503, `{"error":"upstream connect error or disconnect/reset before headers. reset reason: connection termination"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"503 of Envoy, Retry-After":          {fakeprovider.Foreign(503, `{"code":503,"message":"no healthy upstream"}`, true).After("7"), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"503 of nginx":                       {fakeprovider.Foreign(503, `{"error":"service_unavailable"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"503 of nginx, in one word":          {fakeprovider.Foreign(503, `{"error":"ServiceUnavailable","status":503}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"503 of an API Gateway":              {fakeprovider.Foreign(503, `{"message":"Service Unavailable"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"503 of Kong":                        {fakeprovider.Foreign(503, `{"message":"failure to get a peer from the ring-balancer","request_id":"f0"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"503, the field in another spelling": {fakeprovider.Foreign(503, `{"Error":"busy"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"400 of Spring":                      {fakeprovider.Foreign(400, `{"status":400,"error":"Bad Request","path":"/messages"}`, false), unknown, ambiguous, done, ambiguous, [3]int{0, 1, 0}},
	"401 of Fastify":                     {fakeprovider.Foreign(401, `{"statusCode":401,"error":"Unauthorized","message":"no token"}`, false), unknown, ambiguous, done, ambiguous, [3]int{0, 1, 0}},
	"403 of a mesh":                      {fakeprovider.Foreign(403, `{"error":"RBAC: access denied"}`, false), unknown, ambiguous, done, ambiguous, [3]int{0, 1, 0}},
	"403 of Spring":                      {fakeprovider.Foreign(403, `{"status":403,"error":"Forbidden","path":"/messages"}`, false), unknown, ambiguous, done, ambiguous, [3]int{0, 1, 0}},
	"404 of Kong":                        {fakeprovider.Foreign(404, `{"message":"no Route matched with those values","request_id":"f0"}`, false), unknown, ambiguous, done, ambiguous, [3]int{0, 1, 0}},
	"413 of nginx":                       {fakeprovider.Foreign(413, `{"error":"Request Entity Too Large"}`, false), unknown, ambiguous, done, ambiguous, [3]int{0, 1, 0}},
	"429 of Fastify":                     {fakeprovider.Foreign(429, `{"statusCode":429,"error":"Too Many Requests","message":"Rate limit exceeded, retry in 1 minute"}`, true).After("7"), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"429 of an API Gateway":              {fakeprovider.Foreign(429, `{"message":"Too Many Requests"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"429 of Kong":                        {fakeprovider.Foreign(429, `{"message":"API rate limit exceeded","request_id":"f0"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"503 of the provider":                {fakeprovider.Foreign(503, `{"error":"BUSY"}`, false), unsent, done, done, done, [3]int{1, 1, 1}},
	"200 a trace and a code":             {fakeprovider.Foreign(200, `{"requestId":"trace-1","code":"NOT_FOUND","message":"no such request"}`, false), unknown, ambiguous, done, ambiguous, [3]int{0, 1, 0}},
	"200 a trace and a message":          {fakeprovider.Foreign(200, `{"requestId":"t","message":"request not found"}`, false), unknown, ambiguous, done, ambiguous, [3]int{0, 1, 0}},
	"200 not sent":                       {fakeprovider.Foreign(200, `{"id":"m","status":"not_sent"}`, false), unknown, ambiguous, done, ambiguous, [3]int{0, 1, 0}},
	"200 a status as an object":          {fakeprovider.Foreign(200, `{"id":"m","status":{"code":"failed"}}`, false), unknown, ambiguous, done, ambiguous, [3]int{0, 1, 0}},
	"200 a result in words":              {fakeprovider.Foreign(200, `{"id":"m","result":"failed"}`, false), unknown, ambiguous, done, ambiguous, [3]int{0, 1, 0}},
	"201 sid":                            {fakeprovider.Foreign(201, `{"sid":"SM1","status":"queued","error_code":null,"error_message":null}`, true), accepted, done, done, done, [3]int{1, 1, 1}},
	"202 one of a list":                  {fakeprovider.Foreign(202, `{"messages":[{"id":"m","status":"accepted"}]}`, true), accepted, done, done, done, [3]int{1, 1, 1}},
	"504 of a proxy with no body":        {fakeprovider.Foreign(504, ``, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	// An answer with a code in one word. Only the codes that the configuration declares are the provider's own.
	"503 of a proxy, one word":                 {fakeprovider.Foreign(503, `{"error":"unavailable"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"503 of a proxy, one word, Retry-After":    {fakeprovider.Foreign(503, `{"error":"unavailable"}`, true).After("7"), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"503 of a proxy, one word, not accepted":   {fakeprovider.Foreign(503, `{"error":"upstream_reset"}`, false), unknown, ambiguous, done, ambiguous, [3]int{0, 1, 0}},
	"503 of a proxy, a code":                   {fakeprovider.Foreign(503, `{"code":"UPSTREAM_ERROR"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"503 of a proxy, a code, Retry-After":      {fakeprovider.Foreign(503, `{"code":"UPSTREAM_ERROR"}`, true).After("7"), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"503 a declared code in another spelling":  {fakeprovider.Foreign(503, `{"error":"FAILED"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"503 a declared code in another field":     {fakeprovider.Foreign(503, `{"code":"failed"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"503 a declared code inside an object":     {fakeprovider.Foreign(503, `{"error":{"code":"failed"}}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"503 a declared code among other words":    {fakeprovider.Foreign(503, `{"error":"failed to reach upstream"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"503 invalid recipient":                    {fakeprovider.Foreign(503, `{"error":"invalid_recipient"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"429 of a gateway, one word":               {fakeprovider.Foreign(429, `{"error":"throttled"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"429 of a gateway, one word, Retry-After":  {fakeprovider.Foreign(429, `{"error":"throttled"}`, true).After("7"), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"429 of a gateway, one word, not accepted": {fakeprovider.Foreign(429, `{"error":"throttled"}`, false), unknown, ambiguous, done, ambiguous, [3]int{0, 1, 0}},
	"429 invalid recipient":                    {fakeprovider.Foreign(429, `{"error":"invalid_recipient"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"400 of a gateway, one word":               {fakeprovider.Foreign(400, `{"error":"malformed"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"401 of a gateway, one word":               {fakeprovider.Foreign(401, `{"error":"invalid_token"}`, false), unknown, ambiguous, done, ambiguous, [3]int{0, 1, 0}},
	"403 of a firewall, one word":              {fakeprovider.Foreign(403, `{"error":"blocked"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"404 of a gateway, one word":               {fakeprovider.Foreign(404, `{"error":"no_route"}`, false), unknown, ambiguous, done, ambiguous, [3]int{0, 1, 0}},
	"422 of a gateway, one word":               {fakeprovider.Foreign(422, `{"error":"invalid"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"425 of a gateway, one word":               {fakeprovider.Foreign(425, `{"error":"too_early"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	// A declared code counts only with a status that refuses.
	"408 a declared code":              {fakeprovider.Foreign(408, `{"error":"failed"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"408 a declared code, Retry-After": {fakeprovider.Foreign(408, `{"error":"failed"}`, true).After("7"), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"409 a declared code":              {fakeprovider.Foreign(409, `{"error":"failed"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"500 a declared code":              {fakeprovider.Foreign(500, `{"error":"failed"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"502 a declared code":              {fakeprovider.Foreign(502, `{"error":"failed"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"504 a declared code, Retry-After": {fakeprovider.Foreign(504, `{"error":"failed"}`, true).After("7"), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"200 a declared code":              {fakeprovider.Foreign(200, `{"error":"failed"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"303 a declared code":              {fakeprovider.Foreign(303, `{"error":"failed"}`, true), unknown, ambiguous, done, done, [3]int{1, 1, 1}},
	"401 a declared code, Retry-After": {fakeprovider.Fail(401).After("7"), unsent, done, done, done, [3]int{1, 1, 1}},
	"425 a declared code":              {fakeprovider.Fail(425), unsent, done, done, done, [3]int{1, 1, 1}},
}

// unproven is a cell whose request was not accepted, if the configuration does not declare the answer's code.
var unproven = [3]end{ambiguous, done, ambiguous}

// Whatever a provider answers, at most one request of a reminder is accepted, or the job is ambiguous. No
// reminder is sent twice or lost. A code that is not declared proves nothing: a proxy may have written it.
func TestEveryAnswerOfAProvider(t *testing.T) {
	b := newBench(t)
	names := topology.NamesOf("kind")
	store := dynamo.New(awsclient.DynamoDB(b.services.AWS), names.LedgerTable, dynamo.Options{Now: b.services.Now})
	for i, can := range []fakeprovider.Options{{}, {Deduplicates: true}, {LooksUp: true}} {
		for _, declared := range []string{"none", strings.Join(fakeprovider.Refusals, ", ") + ", BUSY"} {
			provider := box(t, can)
			for name, c := range cells {
				want, accepted := [3]end{c.plain, c.deduplicates, c.looksUp}[i], c.accepted[i]
				if declared == "none" && c.verdict == unsent {
					c.verdict, want, accepted = unknown, unproven[i], [3]int{0, 1, 0}[i]
				}
				t.Run(fmt.Sprintf("deduplicates %v, looks up %v, declared %v/%s", can.Deduplicates, can.LooksUp, declared != "none", name), func(t *testing.T) {
					now := t0
					run := &tableRun{T: t, store: store, now: &now, environment: map[string]string{
						reminder.EnvProvider: "http", reminder.EnvURL: provider.URL(), reminder.EnvKeyWindow: "24h", reminder.EnvRefusals: declared,
						reminder.EnvDeduplicates: fmt.Sprint(can.Deduplicates), reminder.EnvLooksUp: fmt.Sprint(can.LooksUp),
					}}
					run.services = acklast.NewServices(b.services.AWS, "kind", func() time.Time { return now })
					run.services.Getenv = environment(run.environment)
					p := payload()
					p.ReminderID, p.Recipient = fmt.Sprint(i, declared != "none", " ", name), fmt.Sprint("customer ", i, " ", name)
					if err := b.subscriptions.Put(t.Context(), reminder.Subscription{ID: p.SubscriptionID, Plan: p.Plan, RenewsAt: p.RenewsAt}); err != nil {
						t.Fatal(err)
					}
					provider.Add(fakeprovider.Rule{Recipient: p.Recipient, Times: 1, Do: c.do})
					if name == "no answer, accepted" {
						run.environment[reminder.EnvTimeout] = "50ms" // of the first call only
					}
					run.attempt(p)
					if got := run.verdict(p); got != c.verdict {
						t.Errorf("the first answer counts as %s, want %s: %+v", got, c.verdict, run.entry(p))
					}
					delete(run.environment, reminder.EnvTimeout)
					for n := 0; n < 5 && run.end(p) == ""; n++ {
						run.attempt(p)
					}
					if got := run.end(p); got != want {
						t.Errorf("the job ends %s, want %s: %+v", got, want, run.entry(p))
					}
					if got := len(provider.Accepted(p.Recipient)); got != accepted {
						t.Errorf("%d acceptances, want %d", got, accepted)
					}
				})
			}
		}
	}
}

// tableRun is one reminder from its first attempt to its end.
type tableRun struct {
	*testing.T
	services    acklast.Services
	store       *dynamo.Store
	now         *time.Time
	environment map[string]string
}

var tableRules = ledger.Rules{
	Retry:       retry.Policy{Base: time.Second, Cap: time.Second, MaxAttempts: 10, AttemptTime: time.Second},
	MaxRedrives: 3, Retention: 1000 * 24 * time.Hour, // the engine removes entries whose retention is over by its own clock
}

func (r *tableRun) entry(p reminder.Payload) ledger.Entry {
	r.Helper()
	key, err := p.Key()
	if err != nil {
		r.Fatal(err)
	}
	e, err := r.store.Get(r.Context(), key)
	if err != nil {
		r.Fatal(err)
	}
	return e
}

// attempt makes one attempt as soon as the entry allows it, and records a failure as the worker does.
func (r *tableRun) attempt(p reminder.Payload) {
	r.Helper()
	body, err := p.Job(time.Time{})
	if err != nil {
		r.Fatal(err)
	}
	if e := r.entry(p); e.RetryAt.After(*r.now) {
		*r.now = e.RetryAt
	}
	kind, err := reminder.Kind().Start(r.Context(), r.services)
	if err != nil {
		r.Fatal(err)
	}
	got, err := kind.Try(r.Context(), body)
	if err != nil {
		r.Fatal(err)
	}
	switch got.Verdict {
	case acklast.Committed:
	case acklast.Failed:
		e := r.entry(p)
		if _, err := r.store.Update(r.Context(), e.Key, e.Owner, func(e ledger.Entry) (ledger.Entry, error) {
			d := job.Delivery{Message: job.Message{ID: "m-1"}, Key: e.Key, Token: e.Owner}
			return tableRules.Fail(e, d, job.AsFailure(got.Err), *r.now, 0)
		}); err != nil {
			r.Fatal(err)
		}
	default:
		r.Fatalf("the attempt is %s: %v", got.Verdict, got.Err)
	}
}

func (r *tableRun) verdict(p reminder.Payload) verdict {
	switch e := r.entry(p); {
	case e.Status == ledger.Done:
		return accepted
	case e.Status == ledger.Terminal:
		return declined
	case e.Unresolved:
		return unknown
	}
	return unsent
}

func (r *tableRun) end(p reminder.Payload) end {
	switch e := r.entry(p); {
	case e.Status == ledger.Done:
		return done
	case e.Status == ledger.Terminal:
		return terminal
	case e.Status == ledger.Isolated && e.LastClass == job.Ambiguous:
		return ambiguous
	case e.Status == ledger.Isolated:
		return rejected
	}
	return ""
}

// The answers to look-ups that name the request in some form, and those that do not.
func TestWhatALookupProves(t *testing.T) {
	for body, want := range map[string]struct {
		status int
		id     string // "": it proves nothing
	}{
		`{"requestId":"r-1"}`:                            {200, "r-1"},
		`{"request_id":" r-1 "}`:                         {200, "r-1"},
		`{"Message-Id":"<0101@mail.example>"}`:           {200, "<0101@mail.example>"},
		`{"id":4711}`:                                    {200, "4711"},
		`{"id":123456789012345678901}`:                   {200, "123456789012345678901"},
		`{"data":{"id":"r-1","status":"delivered"}}`:     {200, "r-1"},
		`{"key":"k1"}`:                                   {200, "k1"},
		`{"idempotencyKey":"k1","status":"accepted"}`:    {200, "k1"},
		`{"key":"k1","error":null,"errors":[],"id":"7"}`: {200, "7"},
		`{}`:                                    {200, ""},
		`{"status":"ok"}`:                       {200, ""},
		`[]`:                                    {200, ""},
		`[{"requestId":"r-1"}]`:                 {200, ""},
		`null`:                                  {200, ""},
		``:                                      {200, ""},
		`"r-1"`:                                 {200, ""},
		html:                                    {200, ""},
		`{"requestId":null}`:                    {200, ""},
		`{"requestId":""}`:                      {200, ""},
		`{"requestId":0}`:                       {200, ""},
		`{"requestId":true}`:                    {200, ""},
		`{"requestId":"r-1","key":"k2"}`:        {200, ""},
		`{"requestId":"r-1","error":"no"}`:      {200, ""},
		`{"requestId":"r-1","status":"Failed"}`: {200, ""},
		`{"requestId":"r-1","success":false}`:   {200, ""},
		`{"requestId":"r-1"`:                    {200, ""},
		// Nothing but a yes, where an answer says how the request stands.
		`{"requestId":"trace-1","code":"NOT_FOUND","message":"no such request"}`: {200, ""},
		`{"requestId":"t","message":"request not found"}`:                        {200, ""},
		`{"requestId":"t","key":"k1","message":"request not found"}`:             {200, ""},
		`{"requestId":"t","code":404}`:                                           {200, ""},
		`{"requestId":"t","reason":"expired"}`:                                   {200, ""},
		`{"requestId":"t","found":false}`:                                        {200, ""},
		`{"id":"m","status":"not_sent"}`:                                         {200, ""},
		`{"id":"m","status":"undelivered"}`:                                      {200, ""},
		`{"id":"m","status":"cancelled"}`:                                        {200, ""},
		`{"id":"m","status":404}`:                                                {200, ""},
		`{"id":"m","status":{"code":"failed"}}`:                                  {200, ""},
		`{"id":"m","status":["failed"]}`:                                         {200, ""},
		`{"id":"m","result":"failed"}`:                                           {200, ""},
		`{"id":"m","state":"bounced"}`:                                           {200, ""},
		`{"id":"m","message":{"status":"undelivered"}}`:                          {200, ""},
		`{"data":{"id":"m","status":"no_such_request"}}`:                         {200, ""},
		`{"messages":[{"id":"m","status":"failed"}]}`:                            {200, ""},
		`{"messages":[{"id":"m"},{"id":"n"}]}`:                                   {200, ""},
		`{"messages":[]}`:                                                        {200, ""},
		`{"id":"m","status":"In Progress","code":202,"message":"queued"}`:        {200, "m"},
		`{"id":"m","status":200,"success":true,"error_code":0,"reason":""}`:      {200, "m"},
		// An id looks like this, too.
		`{"sid":"SM1"}`:                                {200, "SM1"},
		`{"messageSid":"SM1","status":"queued"}`:       {200, "SM1"},
		`{"uuid":"u-1"}`:                               {200, "u-1"},
		`{"message_uuid":"u-1"}`:                       {200, "u-1"},
		`{"messages":[{"id":"m"}]}`:                    {200, "m"},
		`{"messages":[{"message-id":"m","key":"k2"}]}`: {200, ""},
		`{"error":"not_found"}`:                        {200, ""},
		`{"requestId":"r-2"}`:                          {202, ""},
		`{"error":"invalid_recipient"}`:                {422, ""},
	} {
		srv := serve(t, func(w http.ResponseWriter) { w.WriteHeader(want.status); _, _ = fmt.Fprint(w, body) })
		id, err := provider(t, srv.URL, "").Lookup(t.Context(), "k1", payload())
		if id != want.id {
			t.Errorf("%d %s: id %q, want %q", want.status, body, id, want.id)
		}
		if want.id != "" && err != nil || want.id == "" && job.AsFailure(err).Class != job.Transient {
			t.Errorf("%d %s: %v", want.status, body, err)
		}
	}
}
