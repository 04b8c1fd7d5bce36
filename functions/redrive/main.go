// Command redrive is the Lambda function that governs the DLQ.
package main

import (
	"acklast"
	"acklast/internal/kinds"
)

func main() { acklast.StartRedrive(kinds.All()...) }
