// Command redrive is the redrive function's entry point.
//
// Its code is not written yet. The function is deployed all the same, so that its role, its aliases
// and the policies of those who may invoke it are there, and can be reviewed, before it does anything.
package main

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/aws/aws-lambda-go/lambda"
)

// ErrNotBuilt answers every request.
var ErrNotBuilt = errors.New("the redrive is not built yet: this function answers nothing but this error, and touches nothing")

func main() { lambda.Start(handle) }

func handle(context.Context, json.RawMessage) (any, error) { return nil, ErrNotBuilt }
