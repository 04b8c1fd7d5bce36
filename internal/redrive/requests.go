package redrive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"

	"acklast/internal/job"
	"acklast/internal/ledger"
	"acklast/internal/telemetry"
	"acklast/internal/topology"
)

// Request is what the function is invoked with. Names in it are recorded as claimed: a Lambda cannot
// see who its caller is.
type Request struct {
	// Action is one of Actions.
	Action string `json:"action"`
	// Format is the request's form: the constant Format in requests of this version. 0 stands for 1.
	Format int `json:"format,omitempty"`
	// By names the person who asks, Reason says why. Every action that changes something needs both.
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Select is what inspect and plan look at.
	Select *Filter `json:"select,omitempty"`
	// Plan and Run are ids.
	Plan string `json:"plan,omitempty"`
	Run  string `json:"run,omitempty"`
	// Begin asks run to create its run, or to check that it may go on, and to answer at once. So a caller learns of a refusal
	// at once, and then makes the request without Begin, for whose answer it does not wait.
	Begin bool `json:"begin,omitempty"`
	// Message is the id of one message: inspect shows it whole, mend mends it, run plans and redrives it alone. Job, a
	// key, stands for its message, also in a discard.
	Message string `json:"message,omitempty"`
	// WithBody asks inspect for the body of Message, and audit for the body that it keeps.
	WithBody bool `json:"withBody,omitempty"`
	// Body is the new body that mend gives to Message.
	Body string `json:"body,omitempty"`
	// List asks inspect for the name of every message that is selected; After, alone beside it, for the page of such a list
	// that an answer's Next names.
	List  bool   `json:"list,omitempty"`
	After string `json:"after,omitempty"`
	// Open asks plan to freeze the selection instead of the messages; its run then takes Count messages at most.
	Open bool `json:"open,omitempty"`
	// Messages and Jobs are the ids and the keys of what discard discards. With Select instead, also for decide, Count
	// is how many messages it has to select.
	Messages []string `json:"messages,omitempty"`
	Jobs     []string `json:"jobs,omitempty"`
	Count    int      `json:"count,omitempty"`
	// Page is the page of a run's or a job's audit, from 0; After is where in it the answer starts.
	Page int `json:"page,omitempty"`
	// Ending asks for those messages of a run's audit alone that ended so, each with its last line.
	Ending Ending `json:"ending,omitempty"`
	// RatePerSecond is a plan's rate; 0 is the default, -1 none at all. Run takes it, and Canary, only with a message or a
	// job.
	RatePerSecond int `json:"ratePerSecond,omitempty"`
	// Canary is how many jobs go first; 0 is the default.
	Canary int `json:"canary,omitempty"`
	// Job is the key of the job that decide decides, or whose audit is asked for, or "switch" for that of the kill switch; Decision is sent or not-sent.
	// explain takes the key of a job, or a Subject.
	Job      string              `json:"job,omitempty"`
	Decision ledger.DecisionKind `json:"decision,omitempty"`
	// Kind is the kind that pause and unpause are about.
	Kind string `json:"kind,omitempty"`
	// Subject is what explain asks all kinds about.
	Subject string `json:"subject,omitempty"`
}

// Response is what the function answers. A request that is refused is no error of the function's.
type Response struct {
	Action string `json:"action"`
	// Version is the redrive function's.
	Version string `json:"version,omitempty"`
	// Refused says why nothing was done.
	Refused string `json:"refused,omitempty"`

	Scan    *Scan        `json:"scan,omitempty"`
	Groups  []Group      `json:"groups,omitzero"`
	Message *MessageView `json:"message,omitempty"`
	// Messages are those of a list; Next names the page that follows, for the request's After, and is empty if none does.
	Messages []Listed `json:"messages,omitzero"`
	Next     string   `json:"next,omitempty"`
	Plan     *Plan    `json:"plan,omitempty"`
	Run      *Run     `json:"run,omitempty"`
	Runs     []Run    `json:"runs,omitzero"`
	Switch   *Switch  `json:"switch,omitempty"`
	// Discard is the id under which the audit has what was discarded.
	Discard string        `json:"discard,omitempty"`
	Results []Result      `json:"results,omitzero"`
	Entry   *ledger.Entry `json:"entry,omitempty"`
	Audit   []AuditRecord `json:"audit,omitzero"`
	// EndingsAt is when the ledger was asked for the endings in the audit of a run.
	EndingsAt time.Time `json:"endingsAt,omitzero"`
	// NextPage is the page of the audit that follows, after Next in it; 0 without Next when none does.
	NextPage int `json:"nextPage,omitempty"`
	// Body is a discarded message's, from the audit.
	Body string `json:"body,omitempty"`

	// Kinds are the kinds and who paused them.
	Kinds []KindState `json:"kinds,omitzero"`

	Explanations []Explanation `json:"explanations,omitzero"`
	Census       *Census       `json:"census,omitempty"`
}

// Result is what became of one message of a discard or a decision.
type Result struct {
	Message string `json:"message,omitempty"`
	Job     string `json:"job,omitempty"`
	Result  string `json:"result"`
	Why     string `json:"why,omitempty"`
}

// refusal is an error that lies in what was asked for.
type refusal struct{ why string }

func (r *refusal) Error() string { return r.why }

func refuse(format string, args ...any) error { return &refusal{fmt.Sprintf(format, args...)} }

// action is one of the function's actions.
type action struct {
	do func(*Service, context.Context, Request) (Response, error)
	// approver says that it is for the alias approve alone.
	approver bool
	// named says that it needs By and Reason.
	named bool
	// reads says that it changes nothing: it is accepted through both aliases, so that an approver sees
	// what is approved.
	reads bool
	// takes are the request's fields that it uses, beside those that every action takes.
	takes string
}

var actions = map[string]action{
	"inspect":    {do: (*Service).inspect, reads: true, takes: "select list after message job withBody"},
	"plan":       {do: (*Service).plan, named: true, takes: "select open count ratePerSecond canary"},
	"mend":       {do: (*Service).mend, named: true, takes: "message job body"},
	"resend":     {do: (*Service).resend, named: true, takes: "run message job"},
	"approve":    {do: (*Service).approve, approver: true, named: true, takes: "plan"},
	"run":        {do: (*Service).run, takes: "plan run message job begin ratePerSecond canary"},
	"status":     {do: (*Service).status, reads: true, takes: "plan run"},
	"audit":      {do: (*Service).audit, reads: true, takes: "job run plan message withBody page after ending"},
	"stop":       {do: (*Service).stop, takes: "run"},
	"resume":     {do: (*Service).resume, named: true},
	"revoke":     {do: (*Service).revoke, named: true, takes: "plan run"},
	"discard":    {do: (*Service).discard, approver: true, named: true, takes: "messages jobs select count"},
	"decide":     {do: (*Service).decideJobs, approver: true, named: true, takes: "job decision select count"},
	"explain":    {do: (*Service).explain, reads: true, takes: "job subject"},
	"kinds":      {do: (*Service).kindsOf, reads: true},
	"pause":      {do: (*Service).pauseKind, named: true, takes: "kind"},
	"unpause":    {do: (*Service).unpauseKind, named: true, takes: "kind"},
	ActionCensus: {do: (*Service).census, reads: true},
}

// unused are the fields of a request that its action does nothing with.
func (a action) unused(req Request) (names []string) {
	takes := append(strings.Fields(a.takes), "action", "format", "by", "reason")
	v := reflect.ValueOf(req)
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if !v.Field(i).IsZero() && !slices.Contains(takes, name) {
			names = append(names, name)
		}
	}
	return names
}

// Reads says whether an action changes nothing, so that both aliases take it.
func Reads(name string) bool { return actions[name].reads }

// Actions are the names of all actions, in order.
func Actions() []string {
	var names []string
	for name := range actions {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// maxRequest bounds a request, in bytes; maxText a name or a reason.
const (
	maxRequest = 5 << 20 // a whole body, escaped, below Lambda's 6 MB
	maxText    = 1000
	maxID      = 100
)

// Handle is the Lambda handler.
func (s *Service) Handle(ctx context.Context, raw json.RawMessage) (Response, error) {
	req, err := DecodeRequest(raw)
	if err == nil {
		err = s.admit(ctx, req)
	}
	var resp Response
	if err == nil {
		resp, err = actions[req.Action].do(s, ctx, req)
	}
	resp.Switch = s.named(ctx, resp.Switch)
	resp.Action, resp.Version = req.Action, s.version
	var refused *refusal
	if errors.As(err, &refused) {
		resp.Refused, err = refused.why, nil
	}
	attrs := []any{"action", req.Action, "by", job.SafeText(req.By)}
	if resp.Run != nil {
		attrs = append(attrs, "run", resp.Run.ID, "state", resp.Run.State, "code", resp.Run.Code)
	}
	switch {
	case err != nil:
		s.log.Error("request failed", append(attrs, telemetry.KeyError, job.SafeText(err.Error()))...)
	case resp.Refused != "":
		s.log.Warn("request refused", append(attrs, telemetry.KeyError, job.SafeText(resp.Refused))...)
	default:
		s.log.Info("request answered", attrs...)
	}
	return resp, err
}

// named is the switch for an answer: it is named while it is on, or cannot be read.
func (s *Service) named(ctx context.Context, answered *Switch) *Switch {
	if answered != nil {
		return answered
	}
	sw, err := s.readSwitch(ctx)
	switch {
	case err != nil:
		return &Switch{On: true, Reason: job.SafeText("it cannot be read, which counts as on: " + err.Error())}
	case sw.On:
		return &sw
	}
	return nil
}

// DecodeRequest reads a request. A field that nobody knows is refused: it might have been the one
// that was to keep something from happening.
func DecodeRequest(raw []byte) (Request, error) {
	var req Request
	if len(raw) > maxRequest {
		return req, refuse("the request has %d bytes, more than %d", len(raw), maxRequest)
	}
	// Read first: a newer request has fields that this version does not know.
	var newer struct {
		Action string `json:"action"`
		Format int    `json:"format"`
	}
	if err := json.Unmarshal(raw, &newer); err == nil && newer.Format > Format {
		return Request{Action: newer.Action}, refuse("the request has format %d, and this redrive function reads up to %d: deploy the version that the request was made for", newer.Format, Format)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&req); err != nil {
		return Request{Action: req.Action}, refuse("the request is not readable: %s", unreadable(raw, err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Request{Action: req.Action}, refuse("the request is followed by something else")
	}
	return req, nil
}

// unreadable says in words why a request cannot be decoded, for people who typed or pasted it.
func unreadable(raw []byte, err error) string {
	var syntax *json.SyntaxError
	var mistyped *json.UnmarshalTypeError
	encoding := job.CheckEncoding(raw)
	switch {
	case encoding != nil:
		return encoding.Error()
	case len(bytes.TrimSpace(raw)) == 0:
		return `it is empty; want a JSON object such as {"action": "status"}`
	case errors.As(err, &mistyped) && mistyped.Field == "":
		return fmt.Sprintf(`it is a JSON %s; want an object such as {"action": "status"}`, mistyped.Value)
	case errors.As(err, &mistyped):
		return fmt.Sprintf("%s is a JSON %s, which it cannot be", mistyped.Field, mistyped.Value)
	case errors.As(err, &syntax):
		return fmt.Sprintf("it is no JSON from byte %d on", syntax.Offset)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "it is JSON that ends too early"
	}
	if _, field, ok := strings.Cut(err.Error(), "unknown field "); ok {
		return "it has the field " + field + ", which no action has"
	}
	return err.Error()
}

// admit checks who may ask for what: the alias is all that IAM and the function share.
func (s *Service) admit(ctx context.Context, req Request) error {
	a, ok := actions[req.Action]
	if !ok {
		return refuse("action %q is none of %s", req.Action, strings.Join(Actions(), ", "))
	}
	alias := ""
	if lc, ok := lambdacontext.FromContext(ctx); ok {
		alias = qualifier(lc.InvokedFunctionArn)
	}
	want := topology.AliasOperate
	if a.approver {
		want = topology.AliasApprove
	}
	switch {
	case alias == want, a.reads && alias == topology.AliasApprove:
	case alias == "" && s.unqualified:
	case alias == "":
		return refuse("%s is accepted through the alias %s only, and this was invoked without one", req.Action, want)
	default:
		return refuse("%s is accepted through the alias %s only, and this came through %s", req.Action, want, alias)
	}
	if unused := a.unused(req); len(unused) > 0 {
		return refuse("%s does nothing with %s", req.Action, strings.Join(unused, ", "))
	}
	if a.named && (strings.TrimSpace(req.By) == "" || strings.TrimSpace(req.Reason) == "") {
		return refuse("%s needs a name (by) and a reason", req.Action)
	}
	for _, text := range []string{req.By, req.Reason} {
		if len(text) > maxText {
			return refuse("a name or a reason has more than %d bytes", maxText)
		}
	}
	for _, id := range append([]string{req.Plan, req.Run, req.Message, req.Kind}, req.Messages...) {
		if len(id) > maxID {
			return refuse("an id has more than %d bytes", maxID)
		}
	}
	return nil
}

// qualifier is the last part of arn:aws:lambda:region:account:function:name:qualifier.
func qualifier(arn string) string {
	parts := strings.Split(arn, ":")
	if len(parts) == 8 {
		return parts[7]
	}
	return ""
}
