//go:build unix

package main

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// terminalWidth is how many columns a terminal has.
func terminalWidth(w io.Writer, unknown int) int {
	f, ok := w.(*os.File)
	if !ok {
		return unknown
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return unknown
	}
	return int(size.Col)
}
