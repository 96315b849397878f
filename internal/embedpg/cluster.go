package embedpg

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// ensureCluster makes the cluster unless it is there. It is made under another
// name and renamed, so that a start that dies half-way leaves none.
func (s *Server) ensureCluster(ctx context.Context) error {
	h := s.home
	if h.version() != 0 {
		return h.link()
	}
	var fresh string
	var err error
	for _, ctype := range ctypes() {
		if fresh, err = s.initdb(ctx, ctype); err == nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("make the cluster: %w", err)
	}
	if err := errors.Join(openHBA(fresh), os.Rename(fresh, h.data()), syncFolder(h.place)); err != nil {
		return fmt.Errorf("make the cluster: %w", err)
	}
	return h.link()
}

// ctypes are the locales to try, by which letters fold their case: all of
// Unicode's, which C does not, and C where the system has no other.
func ctypes() []string {
	if runtime.GOOS == "darwin" {
		return []string{"UTF-8", "C"}
	}
	return []string{"C.UTF-8", "C"}
}

// initdb makes a cluster in a folder of its own and returns that folder.
func (s *Server) initdb(ctx context.Context, ctype string) (string, error) {
	fresh := s.home.data() + ".new-" + rand.Text()
	words := fresh + ".password"
	if err := s.home.give(fresh, words, s.password); err != nil {
		return "", err
	}
	args := []string{
		"-D", fresh, "--username", superuser, "--pwfile", words, "--auth", "scram-sha-256",
		"--encoding", "UTF8", "--locale", "C", "--lc-ctype", ctype, "--data-checksums",
	}
	if s.throwAway() && !s.options.Durable {
		args = append(args, "--no-sync")
	}
	if err := run(s.command(ctx, "initdb", 0, args...), s.runAs()); err != nil {
		return "", errors.Join(err, removeFolder(fresh), os.Remove(words))
	}
	return fresh, os.Remove(words)
}

// give makes the folder and the password file that initdb reads, as the
// server's account's own.
func (h *home) give(folder, words, password string) error {
	err := errors.Join(
		os.Mkdir(folder, 0o700),
		os.WriteFile(words, []byte(password+"\n"), 0o600),
		os.Chown(folder, h.account.uid, h.account.gid),
		os.Chown(words, h.account.uid, h.account.gid),
	)
	if err != nil {
		return fmt.Errorf("make its folder: %w", err)
	}
	return nil
}

// link points the data folder at a cluster that is kept elsewhere.
func (h *home) link() error {
	if h.place == h.dir {
		return nil
	}
	link := filepath.Join(h.dir, "pgdata")
	if _, err := os.Lstat(link); err == nil {
		return nil
	}
	if err := errors.Join(os.Symlink(h.data(), link), syncFolder(h.dir)); err != nil {
		return fmt.Errorf("link the cluster: %w", err)
	}
	return nil
}

// openHBA lets every address try its password: the listen address is the gate,
// and Docker's network has others than 127.0.0.1.
func openHBA(data string) error {
	f, err := os.OpenFile(filepath.Join(data, "pg_hba.conf"), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("host all all all scram-sha-256\n")
	return errors.Join(err, f.Sync(), f.Close())
}

func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (s *Server) throwAway() bool { return s.options.Dir == "" }

// launch starts a postmaster on the port.
func (s *Server) launch(port int) (*process, error) {
	file, log, err := s.serverLog()
	if err != nil {
		return nil, err
	}
	defer file.Close() // the process has a copy, or the goroutine that feeds both logs is behind one
	if s.home.place != s.home.dir {
		fmt.Fprintf(log, "The cluster of %s is kept in %s: the account that Postgres runs as cannot reach the former.\n",
			s.home.dir, s.home.place)
	}
	var args []string
	settings := s.settings(port)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	cmd := s.command(context.Background(), "postgres", port, append([]string{"-D", s.home.data()}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if s.install.docker() {
		if err := os.WriteFile(filepath.Join(s.home.place, "container"),
			[]byte(s.home.containerName()), 0o600); err != nil {
			return nil, err
		}
	} else if err := os.Remove(filepath.Join(s.home.place, "container")); err != nil &&
		!errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("write data folder: %w", err)
	}
	// An immediate shutdown: bounded, and safe for the data.
	p, err := start(cmd, s.runAs(), syscall.SIGQUIT)
	if err != nil {
		return nil, err
	}
	if s.install.docker() {
		p.container = s.home.containerName()
	}
	return p, nil
}

// runAs is the account of the processes that we start: docker's command is the
// caller's, and the engine changes the account.
func (s *Server) runAs() account {
	if s.install.docker() {
		return self()
	}
	return s.home.account
}

// settings of the server. A persistent cluster is durable whatever its
// postgresql.conf says; a throw-away one trades that for speed.
func (s *Server) settings(port int) map[string]string {
	durable, walSize := "on", "1GB"
	if s.throwAway() && !s.options.Durable {
		durable, walSize = "off", "256MB" // it may be kept in memory
	}
	settings := map[string]string{
		"fsync":                      durable,
		"synchronous_commit":         durable,
		"full_page_writes":           durable,
		"max_wal_size":               walSize,
		"max_connections":            "300",
		"timezone":                   "UTC",
		"logging_collector":          "off",
		"log_destination":            "stderr",
		"dynamic_shared_memory_type": "mmap", // files of the cluster: none stay in /dev/shm after SIGKILL
	}
	maps.Copy(settings, s.options.Settings)
	settings["listen_addresses"] = "127.0.0.1"
	if s.install.docker() {
		settings["listen_addresses"] = "*" // of the container; the published port is on 127.0.0.1
	}
	settings["port"] = strconv.Itoa(port)
	settings["unix_socket_directories"] = "" // a socket's path may have 107 bytes, and leaves a lock behind
	settings["cluster_name"] = marker
	return settings
}

// command is one of the server's programs, with an environment of its own: no
// PG variable of the caller's reaches it.
func (s *Server) command(ctx context.Context, program string, port int, args ...string) *exec.Cmd {
	if s.install.docker() {
		return s.dockerCommand(ctx, program, port, args)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.install.bin, program), args...)
	cmd.Dir = s.home.place
	cmd.Env = []string{"PATH=" + s.install.bin + ":/usr/bin:/bin", "LC_ALL=C", "TZ=UTC", "HOME=" + s.home.place}
	if v := os.Getenv("LD_LIBRARY_PATH"); v != "" {
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+v)
	}
	return cmd
}

// dockerCommand runs the program of the official image on the same folder and
// as the same account. In the foreground: docker passes our signals on.
func (s *Server) dockerCommand(ctx context.Context, program string, port int, args []string) *exec.Cmd {
	h := s.home
	id := fmt.Sprintf("%d:%d", h.account.uid, h.account.gid)
	docker := []string{
		"run", "--rm", "--name", h.containerName(), "--user", id, "--shm-size", "256m",
		"--volume", h.place + ":" + h.place, "--entrypoint", program,
	}
	if passwd := filepath.Join(h.place, "passwd"); os.WriteFile(passwd,
		[]byte("refundd:x:"+id+"::/:/bin/sh\n"), 0o644) == nil {
		docker = append(docker, "--volume", passwd+":/etc/passwd:ro") // initdb wants a name for its user
	}
	if port != 0 {
		docker = append(docker, "--publish", fmt.Sprintf("127.0.0.1:%d:%d", port, port))
	}
	docker = append(docker, "postgres:"+strconv.Itoa(s.install.major))
	return exec.CommandContext(ctx, "docker", append(docker, args...)...)
}

// containerName is one name per data folder, so that a dead owner's container
// can be found and none is started beside it.
func (h *home) containerName() string {
	return fmt.Sprintf("refundd-%.6x", sha256.Sum256([]byte(h.dir)))
}

// removeContainer ends a container at once and returns when it is gone; one that is not there is fine. One whose docker
// command has just ended may be about to remove itself.
func removeContainer(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		out, err := exec.CommandContext(ctx, "docker", "rm", "--force", name).CombinedOutput()
		if err == nil || strings.Contains(string(out), "No such container") {
			return nil
		}
		if ctx.Err() != nil || !strings.Contains(string(out), "already in progress") {
			return fmt.Errorf("end container %s: %w: %s", name, err, strings.TrimSpace(string(out)))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// awaitReady returns once the server lets the superuser in with its password,
// which no other process on that port would.
func (s *Server) awaitReady(ctx context.Context) error {
	refused := 0
	for {
		err := ping(ctx, s.databaseURL("postgres"))
		if err == nil {
			return nil
		}
		var pgErr *pgconn.PgError
		if errors.As(err, &pgErr) && strings.HasPrefix(pgErr.Code, "28") {
			refused++
		}
		if refused > 100 {
			return fmt.Errorf("the password in %s is not the cluster's: %w", s.home.dir, err)
		}
		select {
		case <-s.proc.done:
			return errors.New("the server ended")
		case <-ctx.Done():
			return fmt.Errorf("wait for the server: %w (%w)", context.Cause(ctx), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func ping(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgconn.Connect(ctx, url)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// choosePort returns the wanted port where it is free, else a free one.
func choosePort(ctx context.Context, want int) (int, error) {
	if want != 0 && portFree(ctx, want) {
		return want, nil
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}

func portFree(ctx context.Context, port int) bool {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
