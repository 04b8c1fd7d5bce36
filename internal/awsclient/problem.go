package awsclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
)

// Cause says in general why a call to AWS failed.
type Cause int

// The causes.
const (
	// Other: AWS answered with an error that none of the other causes describes.
	Other Cause = iota
	// Missing: what the call names does not exist in this account and region.
	Missing
	// Denied: the caller may not make the call.
	Denied
	// Expired: the caller's credentials have expired.
	Expired
	// NotKnown: AWS does not accept the caller's credentials.
	NotKnown
	// Clock: the time of the request differs too much from AWS's.
	Clock
	// Throttled: AWS answers fewer calls than were made.
	Throttled
	// Failing: the service itself is in trouble.
	Failing
	// NoCredentials: no credentials were found, or they could not be renewed.
	NoCredentials
	// NoAddress: the host has no address: a wrong region or endpoint, or no network.
	NoAddress
	// Closed: nothing listens at the address.
	Closed
	// HungUp: the connection ended without an answer.
	HungUp
	// Late: no answer came in time.
	Late
	// Certificate: the server's certificate is not accepted.
	Certificate
	// Foreign: the answer is not one of AWS: something else, such as a proxy, answered.
	Foreign
)

// Problem is an error of an AWS client, without the SDK's chain of wrappers.
type Problem struct {
	Cause Cause
	// Service and Operation name the call, such as DynamoDB and GetItem; empty if that is not known.
	Service, Operation string
	// Code and Message are AWS's own; empty if AWS did not answer.
	Code, Message string
	// Status is the HTTP status of the answer, 0 if there is none.
	Status int
	// Host is the name that has no address.
	Host string
}

// ProblemOf reads an error of an AWS client. ok is false if the error is of no call: it is then the program's own.
func ProblemOf(err error) (p Problem, ok bool) {
	var operation *smithy.OperationError
	if errors.As(err, &operation) {
		p.Service, p.Operation = operation.ServiceID, operation.OperationName
	}
	var response *awshttp.ResponseError
	if errors.As(err, &response) {
		p.Status = response.HTTPStatusCode()
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		p.Code, p.Message = api.ErrorCode(), strings.TrimSuffix(strings.TrimSpace(api.ErrorMessage()), ".")
		p.Cause = causeOf(p)
		return p, true
	}
	var (
		host        *net.DNSError
		certificate *tls.CertificateVerificationError
		unreadable  *smithy.DeserializationError
		timeout     net.Error
	)
	switch {
	case signing(err):
		p.Cause = NoCredentials
	case errors.As(err, &host):
		p.Cause, p.Host = NoAddress, host.Name
	case errors.Is(err, syscall.ECONNREFUSED):
		p.Cause = Closed
	case errors.As(err, &certificate):
		p.Cause = Certificate
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		p.Cause = Late
	case errors.As(err, &unreadable), p.Status > 0:
		p.Cause = Foreign
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		p.Cause = HungUp
	default:
		return p, false
	}
	return p, true
}

// signing says that a call failed before it was sent, because there are no credentials for it.
func signing(err error) bool {
	var sign *smithy.OperationError
	for e := err; errors.As(e, &sign); e = sign.Err {
		if sign.ServiceID == "ec2imds" { // the last place that the SDK asks for credentials
			return true
		}
	}
	return false
}

// causeOf reads AWS's code. Services name the same condition differently, and engines send codes that the SDK has no
// type for. So codes are compared and not types.
func causeOf(p Problem) Cause {
	code := p.Code
	switch code {
	case "QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue", "ResourceNotFoundException", "NotFound", "NoSuchEntity":
		return Missing
	case "AccessDenied", "AccessDeniedException", "AuthorizationError", "UnauthorizedOperation", "NotAuthorized":
		return Denied
	case "ExpiredToken", "ExpiredTokenException":
		return Expired
	case "RequestExpired", "RequestInTheFuture", "RequestTimeTooSkewed":
		return Clock
	case "InvalidSignatureException", "SignatureDoesNotMatch":
		// AWS has one code for a wrong secret and for a wrong time. Only the text tells them apart.
		if strings.HasPrefix(p.Message, "Signature expired") || strings.HasPrefix(p.Message, "Signature not yet current") {
			return Clock
		}
		return NotKnown
	case "UnrecognizedClientException", "InvalidClientTokenId", "InvalidAccessKeyId", "AuthFailure", "IncompleteSignature",
		"IncompleteSignatureException", "MissingAuthenticationToken", "MissingAuthenticationTokenException", "OptInRequired":
		return NotKnown
	case "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled", "RequestThrottledException", "TooManyRequestsException",
		"ProvisionedThroughputExceededException", "RequestLimitExceeded", "SlowDown":
		return Throttled
	case "UnknownError": // the SDK's word for an answer without a code
		return Foreign
	}
	if p.Status >= 500 {
		return Failing
	}
	return Other
}

// Call names the call, such as "DynamoDB GetItem".
func (p Problem) Call() string { return strings.TrimSpace(p.Service + " " + p.Operation) }

// String is the call and its answer.
func (p Problem) String() string { return strings.TrimPrefix(p.Call()+": "+p.Answer(), ": ") }

// Answer is AWS's code and message, or the cause in words if AWS did not answer.
func (p Problem) Answer() string {
	switch {
	case p.Cause == Foreign:
		return fmt.Sprintf("the answer is not one of AWS (HTTP status %d)", p.Status)
	case p.Code != "":
		return strings.TrimSuffix(p.Code+": "+p.Message, ": ")
	}
	switch p.Cause {
	case NoCredentials:
		return "there are no AWS credentials"
	case NoAddress:
		return "the host " + p.Host + " has no address"
	case Closed:
		return "nothing listens at the address"
	case HungUp:
		return "the connection ended without an answer"
	case Late:
		return "no answer came in time"
	case Certificate:
		return "the server's certificate is not accepted"
	}
	return "the call failed"
}

// Advice says in few words what the caller can do; empty if only the message can tell.
func (p Problem) Advice() string {
	switch p.Cause {
	case Expired, NoCredentials:
		return "sign in again"
	case NotKnown:
		return "check your AWS credentials"
	case Clock:
		return "set this machine's clock"
	case Throttled, Failing, Late:
		return "repeat it in a minute"
	case NoAddress, Closed, HungUp, Certificate, Foreign:
		return "check --endpoint-url, --region and whether a proxy answers"
	}
	return ""
}
