package main

import (
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/config"

	"acklast/internal/awsclient"
	"acklast/internal/doctor"
	"acklast/internal/job"
)

// explained is an error of a call to AWS in words for people: what happened, to which stack, and what to do next.
type explained struct {
	text  string
	cause awsclient.Cause
	err   error
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.err }

// lasts says whether a repetition of the same call must fail again.
func lasts(err error) bool {
	var e *explained
	if !errors.As(err, &e) {
		return false
	}
	if newer := new(job.NewerError); errors.As(err, &newer) {
		return true
	}
	switch e.cause {
	case awsclient.Missing, awsclient.Denied, awsclient.Expired, awsclient.NotKnown, awsclient.Clock, awsclient.NoCredentials:
		return true
	}
	return false
}

// explain puts an error of a call to AWS into words for people. It returns any other error unchanged.
func (t *target) explain(err error) error {
	var before *explained
	var refused *refusal
	if err == nil || errors.As(err, &before) || errors.As(err, &refused) {
		return err
	}
	if newer := new(job.NewerError); errors.As(err, &newer) {
		return &explained{text: newerWords(newer), err: err}
	}
	p, ok := awsclient.ProblemOf(err)
	if !ok {
		return err
	}
	return &explained{text: t.words(p), cause: p.Cause, err: err}
}

// newerWords advise to update this program. The text of a NewerError advises to finish a roll-out, which is right for the
// functions only.
func newerWords(e *job.NewerError) string {
	return fmt.Sprintf("%s has format %d, but this acklast reads up to %d: update this acklast", e.What, e.Format, e.Known)
}

// words say what a problem is and what to do next.
func (t *target) words(p awsclient.Problem) string {
	local := onThisMachine(t.endpoint)
	start := `deploy it with "cdk deploy"`
	if local {
		start = fmt.Sprintf(`start it with "acklast local --stack %s", or deploy it there`, t.names.Stack)
	}
	stack := fmt.Sprintf("stack %s at %s", t.names.Stack, t.place)
	switch p.Cause {
	case awsclient.Missing:
		return fmt.Sprintf("stack %s does not exist at %s, or not completely (%s): %s, or name another with --stack, --region or --endpoint-url",
			t.names.Stack, t.place, p.Answer(), start)
	case awsclient.Denied:
		return fmt.Sprintf("you may not do this to %s (%s). \"acklast %s\" needs the policy %s of the stack: have it attached to your role; "+
			"the stack's output %[4]sPolicyArn names it", stack, p, t.command, doctor.PolicyOf(t.command))
	case awsclient.Expired:
		return fmt.Sprintf("your AWS credentials have expired (%s): sign in again, for instance with \"aws sso login\", and repeat the command", p)
	case awsclient.NotKnown:
		return fmt.Sprintf("%s does not accept your AWS credentials (%s): check --profile, AWS_PROFILE and the AWS_ variables, and whether the account uses the region",
			t.place, p)
	case awsclient.Clock:
		return fmt.Sprintf("the clock of this machine differs from that of %s (%s): set it, for instance by NTP, and repeat the command", t.place, p)
	case awsclient.Throttled:
		return fmt.Sprintf("%s is throttled (%s): repeat the command in a minute", stack, p)
	case awsclient.Failing:
		return fmt.Sprintf("%s is in trouble (%s): repeat the command in a minute", t.place, p)
	case awsclient.NoCredentials:
		return noCredentials
	case awsclient.NoAddress:
		return fmt.Sprintf("the host %s is not found: check --region and --endpoint-url for a wrong letter, and your network", p.Host)
	case awsclient.Closed:
		return fmt.Sprintf("nothing answers at %s: %s, or name another address with --endpoint-url", t.place, start)
	case awsclient.HungUp:
		return fmt.Sprintf("%s ended the connection without an answer to %s: repeat the command, and check --endpoint-url and HTTPS_PROXY if that does not help",
			t.place, p.Call())
	case awsclient.Late:
		return fmt.Sprintf("%s did not answer %s in time: repeat the command, and check your network if that does not help", t.place, p.Call())
	case awsclient.Certificate:
		return fmt.Sprintf("the certificate of %s is not accepted: if a proxy of your own makes it, name its authority's file in AWS_CA_BUNDLE", t.place)
	case awsclient.Foreign:
		return fmt.Sprintf("what answers at %s is not AWS (HTTP status %d for %s), perhaps a proxy: check --endpoint-url and HTTPS_PROXY", t.place, p.Status, p.Call())
	}
	return fmt.Sprintf("%s refused the call (%s)", stack, p)
}

const (
	orLocal       = "or, for the embedded AWS of acklast local, set AWS_ENDPOINT_URL=http://127.0.0.1:4566"
	noCredentials = `there are no AWS credentials: sign in with "aws sso login" or "aws configure", and name the profile with --profile or AWS_PROFILE; ` + orLocal
)

// unsettled puts an error of the SDK's own settings into words.
func unsettled(err error) error {
	var profile config.SharedConfigProfileNotExistError
	if errors.As(err, &profile) {
		return fmt.Errorf("there is no AWS profile %q: \"aws configure list-profiles\" lists those that exist", profile.Profile)
	}
	return err
}

// uncredited puts an error of the search for credentials into words.
func uncredited(err error) error {
	if p, ok := awsclient.ProblemOf(err); ok && p.Cause == awsclient.NoCredentials {
		return errors.New(noCredentials)
	}
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(next) {
		err = next // the innermost error says why, the others only where
	}
	return fmt.Errorf("your AWS credentials cannot be used (%w): sign in again, for instance with \"aws sso login\", and check --profile and AWS_PROFILE", err)
}

// reason is an error in few words: the service's own code and message, or why there is no answer.
func reason(err error) string {
	var e *explained
	if errors.As(err, &e) {
		return e.text
	}
	if newer := new(job.NewerError); errors.As(err, &newer) {
		return newerWords(newer)
	}
	if p, ok := awsclient.ProblemOf(err); ok {
		return p.Answer()
	}
	return err.Error()
}
