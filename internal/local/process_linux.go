package local

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// processAttributes also makes the kernel kill the process when ours is killed and cannot do it.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// stopped says whether every thread of a process is stopped, or the process is gone.
func stopped(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return true
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil {
			continue // this thread has ended
		}
		// The state follows the command's name, which stands in parentheses and may contain any byte.
		if i := bytes.LastIndexByte(stat, ')'); i >= 0 && i+2 < len(stat) && !bytes.ContainsRune([]byte("TtZX"), rune(stat[i+2])) {
			return false
		}
	}
	return true
}
