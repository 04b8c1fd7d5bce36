package local

import "syscall"

// processAttributes also has the kernel kill the process when we die without a chance to.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
