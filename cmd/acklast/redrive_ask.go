package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/spf13/cobra"

	"acklast/internal/awsclient"
	"acklast/internal/redrive"
	"acklast/internal/topology"
	"acklast/internal/version"
)

// What may be redriven is the redrive function's to say. These commands put requests and answers into
// words, and poll.

// silence is how long a command waits before it says what it waits for.
const silence = 2 * time.Second

// governor invokes the redrive function.
type governor struct {
	*target
	lambda *lambda.Client
	stderr io.Writer
	// skew says that the function has another version, by its latest answer; nil before the first.
	skew atomic.Pointer[string]
	// user is who runs the command, by the environment.
	user string
}

func (a *app) govern(ctx context.Context) (*governor, error) {
	t, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	return a.governing(t), nil
}

// governing is what asks the redrive function of the target.
func (a *app) governing(t *target) *governor {
	return &governor{target: t, stderr: a.stderr, user: a.getenv("USER"), lambda: lambda.NewFromConfig(t.config, func(o *lambda.Options) {
		overrule(&o.BaseEndpoint, a.endpoint)
		o.RetryMaxAttempts = 1 // a request that takes long must not be made twice
	})}
}

func (g *governor) invoke(ctx context.Context, r redrive.Request, how types.InvocationType) (redrive.Response, error) {
	var resp redrive.Response
	r.Format = redrive.Format
	payload, err := json.Marshal(r)
	if err != nil {
		return resp, err
	}
	reads := redrive.Reads(r.Action)
	alias := topology.AliasOperate
	if r.Action == "approve" || r.Action == "discard" || r.Action == "decide" || reads && g.approving.Load() {
		alias = topology.AliasApprove
	}
	if how == types.InvocationTypeRequestResponse {
		waiting := time.AfterFunc(silence, func() { say(g.stderr, "waiting for the redrive function: %s\n", r.Action) })
		defer waiting.Stop()
	}
	through := func(alias string) (*lambda.InvokeOutput, error) {
		return g.lambda.Invoke(ctx, &lambda.InvokeInput{
			FunctionName: &g.names.RedriveFunction, Qualifier: &alias, Payload: payload, InvocationType: how,
		})
	}
	out, err := through(alias)
	if reads && alias == topology.AliasOperate && denied(err) {
		// An approver may invoke the other alias alone.
		if answer, failed := through(topology.AliasApprove); !denied(failed) {
			g.approving.Store(true)
			out, err = answer, failed
		}
	}
	switch {
	case err != nil:
		return resp, g.explain(err)
	case out.FunctionError != nil:
		return resp, fmt.Errorf("the redrive function failed: %s: its log says more, in the log group of %s", plain(saidBy(out.Payload)), g.names.RedriveFunction)
	case how == types.InvocationTypeEvent:
		return resp, nil
	}
	if err := json.Unmarshal(out.Payload, &resp); err != nil {
		return resp, fmt.Errorf("the redrive function's answer is not readable: a proxy may answer at %s, or a function of another version; check --endpoint-url and \"acklast version\"", g.place)
	}
	skew := version.Skew("redrive", resp.Version)
	if before := g.skew.Swap(&skew); before == nil && skew != "" {
		say(g.stderr, "Note: %s\n", skew)
	}
	if resp.Refused != "" {
		return resp, refuse("refused: %s", resp.Refused)
	}
	if missing(r, resp) {
		return resp, fmt.Errorf("the redrive function's answer to %s is incomplete: another program may answer at %s, or another version; look with \"acklast redrive status\"",
			r.Action, g.place)
	}
	return resp, nil
}

// denied says whether AWS refused a call for want of a permission.
func denied(err error) bool {
	p, ok := awsclient.ProblemOf(err)
	return ok && p.Cause == awsclient.Denied
}

// saidBy is the error's text in the answer of a function that failed, or else the answer.
func saidBy(payload []byte) string {
	var failed struct {
		ErrorMessage string `json:"errorMessage"`
	}
	if err := json.Unmarshal(payload, &failed); err == nil && failed.ErrorMessage != "" {
		return failed.ErrorMessage
	}
	return string(payload)
}

// missing says whether an answer lacks what the commands read in it.
func missing(r redrive.Request, resp redrive.Response) bool {
	switch r.Action {
	case "plan", "mend", "resend":
		return resp.Plan == nil
	case "run", "revoke":
		return resp.Run == nil
	case "status":
		return r.Run != "" && resp.Run == nil || r.Plan != "" && resp.Plan == nil && resp.Run == nil
	case "stop":
		return r.Run != "" && resp.Run == nil || r.Run == "" && resp.Switch == nil
	case "decide":
		return r.Job != "" && resp.Entry == nil
	case "inspect":
		return (r.Message != "" || r.Job != "") && resp.Message == nil && resp.Run == nil // a run answers for the DLQ
	}
	return false
}

func (g *governor) ask(ctx context.Context, r redrive.Request) (redrive.Response, error) {
	return g.invoke(ctx, r, types.InvocationTypeRequestResponse)
}

// at says where a command looks. It asks nobody.
func (a *app) at(t *target) { say(a.stderr, "Stack %s at %s\n", t.names.Stack, t.place) }

// who are the flags that say who asks, and why.
type who struct{ by, reason string }

func (w *who) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&w.by, "by", "", "who asks (default: whom AWS says you are)")
	cmd.Flags().StringVar(&w.reason, "reason", "", "why, for the audit")
	_ = cmd.MarkFlagRequired("reason")
}

// name fills in who asks.
func (g *governor) name(ctx context.Context, w who) string {
	if w.by != "" {
		return w.by
	}
	ctx, cancel := context.WithTimeout(ctx, identityLimit)
	defer cancel()
	out, err := g.sts.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{}, func(o *sts.Options) { o.RetryMaxAttempts = 1 })
	if err == nil && aws.ToString(out.Arn) != "" {
		return aws.ToString(out.Arn)
	}
	return g.user
}

// request makes one request that changes something, and prints the answer.
func (a *app) request(ctx context.Context, w who, r redrive.Request, table func(io.Writer, redrive.Response)) error {
	g, err := a.govern(ctx)
	if err != nil {
		return err
	}
	a.announce(ctx, g.target)
	r.By, r.Reason = g.name(ctx, w), w.reason
	resp, err := g.ask(ctx, r)
	if err != nil {
		return err
	}
	return a.answer(resp, func(out io.Writer) { table(out, resp) })
}
