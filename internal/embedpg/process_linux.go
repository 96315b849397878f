package embedpg

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent asks the kernel to send sig when our process dies, kill -9
// included.
func dieWithParent(attr *syscall.SysProcAttr, sig syscall.Signal) { attr.Pdeathsig = sig }

// alive tells whether a process runs; one that is only not reaped yet does not.
func alive(pid int) bool {
	state, _ := stateOf(pid)
	return state != 0 && state != 'Z' && state != 'X'
}

// stateOf reads a process's state letter and parent, 0 where it is gone.
func stateOf(pid int) (state byte, parent int) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	// The command's name, in brackets, may hold spaces and brackets itself.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 2 {
		return 0, 0
	}
	parent, _ = strconv.Atoi(fields[1]) // the kernel writes numbers
	return fields[0][0], parent
}

func childrenOf(pid int) []int {
	var children []int
	for _, other := range processes() {
		if _, parent := stateOf(other); parent == pid {
			children = append(children, other)
		}
	}
	return children
}

func processes() []int {
	found, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well-formed
	pids := make([]int, 0, len(found))
	for _, path := range found {
		if pid, err := strconv.Atoi(filepath.Base(path)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// serversOf lists the postgres processes at work in a cluster, a postmaster's
// orphaned children included: each has the cluster as its working folder.
func serversOf(data string) ([]int, error) {
	var pids []int
	for _, pid := range processes() {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err != nil || !strings.HasPrefix(string(name), "postgres") {
			continue
		}
		if cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err == nil && cwd == data {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// commandOf is a process's command line; Postgres writes the cluster's name
// into that of every child.
func commandOf(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	return string(bytes.ReplaceAll(b, []byte{0}, []byte{' '}))
}

// freeSpace is what a file system has left, in bytes; 0 where there is none.
func freeSpace(dir string) uint64 {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0
	}
	return st.Bavail * uint64(st.Bsize)
}

// dropSharedMemory removes the small System V segment that a SIGKILLed
// postmaster leaves, which only the next start in the same folder would: the
// system holds few of them. It is the one that the pid file names, provided
// that postmaster made it and nobody is attached.
func dropSharedMemory(data string) {
	b, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	lines := strings.Split(string(b), "\n")
	if err != nil || len(lines) < 7 {
		return
	}
	pid, errPID := strconv.Atoi(lines[0])
	var key, id int
	if _, err := fmt.Sscan(lines[6], &key, &id); err != nil || errPID != nil {
		return
	}
	var segment unix.SysvShmDesc
	if _, err := unix.SysvShmCtl(id, unix.IPC_STAT, &segment); err != nil || segment.Nattch != 0 ||
		int(segment.Cpid) != pid {
		return
	}
	_, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) // best effort
}
