//go:build unix

package local

import (
	"syscall"
	"time"
)

// A worker process leads a group of its own, so that what it starts can be signalled with it. A
// signal that finds nobody is fine: the process has just exited.

func killGroup(pid int)     { _ = syscall.Kill(-pid, syscall.SIGKILL) }
func continueGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGCONT) }

// stopGroup returns when the process has stopped. The kernel stops it only when one of its threads is
// scheduled; on a busy machine the others work on until then.
func stopGroup(pid int) {
	if syscall.Kill(-pid, syscall.SIGSTOP) != nil {
		return
	}
	for !stopped(pid) {
		time.Sleep(time.Millisecond)
	}
}
