// Command worker is the Lambda function that runs jobs.
package main

import (
	"acklast"
	"acklast/internal/kinds"
)

func main() { acklast.StartWorker(kinds.All()...) }
