//go:build !unix

package main

import "io"

// terminalWidth is how many columns a terminal has; this system has no way to ask.
func terminalWidth(_ io.Writer, unknown int) int { return unknown }
