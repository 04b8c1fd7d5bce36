//go:build unix && !linux

package local

import "syscall"

func processAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// stopped always returns true, because there is no portable way to ask. The signal has been sent.
func stopped(int) bool { return true }
