// Command worker is the Lambda function that runs the shop's jobs.
package main

import (
	"acklast"

	"example.com/shop/carts"
)

func main() { acklast.StartWorker(carts.Kind()) }
