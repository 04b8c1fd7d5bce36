// Command redrive is the Lambda function that governs the shop's dead-letter queue.
package main

import (
	"acklast"

	"example.com/shop/carts"
)

func main() { acklast.StartRedrive(carts.Kind()) }
