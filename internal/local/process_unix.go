//go:build unix

package local

import (
	"syscall"
	"time"
)

// A worker process leads its own process group, so that a signal also reaches the processes that it starts. An
// error of a signal is ignored: the process has just exited.

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
