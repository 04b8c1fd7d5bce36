//go:build unix

package local

import "syscall"

// A worker process leads a group of its own, so that what it starts can be signalled with it. A
// signal that finds nobody is fine: the process has just exited.

func killGroup(pid int)     { _ = syscall.Kill(-pid, syscall.SIGKILL) }
func stopGroup(pid int)     { _ = syscall.Kill(-pid, syscall.SIGSTOP) }
func continueGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGCONT) }
