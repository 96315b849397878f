package embedpg

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is whom the server runs as.
type account struct{ uid, gid int }

// self is the caller's own account.
func self() account { return account{os.Geteuid(), os.Getegid()} }

// credential is what a child process is started with: nothing where the
// caller stays who it is.
func (a account) credential() *syscall.Credential {
	if a == self() {
		return nil
	}
	return &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
}

// serverAccount is the caller's, or for root the owner of the data, or the
// first of postgres and nobody: Postgres refuses root.
func serverAccount(data string) (account, error) {
	if os.Geteuid() != 0 {
		return self(), nil
	}
	if info, err := os.Stat(data); err == nil {
		if st := info.Sys().(*syscall.Stat_t); st.Uid != 0 {
			return account{int(st.Uid), int(st.Gid)}, nil
		}
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errU := strconv.Atoi(u.Uid)
		gid, errG := strconv.Atoi(u.Gid)
		if errU == nil && errG == nil && uid != 0 {
			return account{uid, gid}, nil
		}
	}
	return account{}, fmt.Errorf("postgres refuses to run as root, and there is no account postgres or nobody to run it as")
}

// canReach tells whether the account may pass through dir and every folder
// above it.
func (a account) canReach(dir string) bool {
	if a.uid == os.Geteuid() {
		return true
	}
	for {
		info, err := os.Stat(dir)
		if err != nil || !a.canPass(info) {
			return false
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return true
		}
		dir = parent
	}
}

func (a account) canPass(info os.FileInfo) bool {
	st := info.Sys().(*syscall.Stat_t)
	switch {
	case int(st.Uid) == a.uid:
		return st.Mode&0o100 != 0
	case int(st.Gid) == a.gid:
		return st.Mode&0o010 != 0
	}
	return st.Mode&0o001 != 0
}
