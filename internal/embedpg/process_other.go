//go:build !linux

package embedpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// dieWithParent does nothing here: an orphaned server is ended by the next
// start on its folder.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func childrenOf(pid int) []int {
	out, err := exec.CommandContext(context.Background(), "pgrep", "-P", strconv.Itoa(pid)).Output()
	if err != nil {
		return nil
	}
	var children []int
	for _, line := range strings.Fields(string(out)) {
		if child, err := strconv.Atoi(line); err == nil {
			children = append(children, child)
		}
	}
	return children
}

// serversOf returns the postmaster that the cluster's pid file names, and its
// children, where that process is a server of this cluster.
func serversOf(data string) ([]int, error) {
	b, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read postmaster.pid: %w", err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	pid, err := strconv.Atoi(line)
	if err != nil || !alive(pid) || !strings.Contains(commandOf(pid), data) {
		return nil, nil
	}
	return append([]int{pid}, childrenOf(pid)...), nil
}

func commandOf(pid int) string {
	out, err := exec.CommandContext(context.Background(), "ps", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return string(out)
}

// freeSpace is asked for Linux's shared memory folder only.
func freeSpace(string) uint64 { return 0 }

// dropSharedMemory leaves the small segment of a SIGKILLed postmaster to the
// next start in its folder.
func dropSharedMemory(string) {}
