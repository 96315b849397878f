//go:build !linux

package harness

import "syscall"

// dieWithParent is Linux's alone.
func dieWithParent() *syscall.SysProcAttr { return nil }
