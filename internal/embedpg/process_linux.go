package embedpg

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// dieWithParent asks the kernel to send sig when our process dies, kill -9
// included.
func dieWithParent(attr *syscall.SysProcAttr, sig syscall.Signal) { attr.Pdeathsig = sig }

// alive tells whether a process runs; one that is only not reaped yet does not.
func alive(pid int) bool {
	stat, ok := statOf(pid)
	return ok && stat.State != "Z" && stat.State != "X"
}

// statOf is what the kernel tells of a process, if it is there.
func statOf(pid int) (procfs.ProcStat, bool) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}, false
	}
	stat, err := p.Stat()
	return stat, err == nil
}

func childrenOf(pid int) []int {
	var children []int
	all, _ := procfs.AllProcs() // without /proc nothing of ours runs
	for _, p := range all {
		if stat, err := p.Stat(); err == nil && stat.PPID == pid {
			children = append(children, p.PID)
		}
	}
	return children
}

// serversOf lists the postgres processes at work in a cluster, a postmaster's orphaned children included: each has the
// cluster as its working folder.
func serversOf(data string) ([]int, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, p := range all {
		if name, err := p.Comm(); err != nil || !strings.HasPrefix(name, "postgres") {
			continue
		}
		if cwd, err := p.Cwd(); err == nil && cwd == data {
			pids = append(pids, p.PID)
		}
	}
	return pids, nil
}

// commandOf is a process's command line; Postgres writes the cluster's name into that of every child.
func commandOf(pid int) string {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return ""
	}
	words, _ := p.CmdLine() // none of one that has just ended
	return strings.Join(words, " ")
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
