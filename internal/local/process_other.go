//go:build unix && !linux

package local

import "syscall"

func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// stopped cannot be asked of every system; the signal has been sent.
func stopped(int) bool { return true }
