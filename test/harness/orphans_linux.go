package harness

import "syscall"

// dieWithParent leaves no server behind when the test process is killed or panics.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
