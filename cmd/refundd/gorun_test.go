package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// go run keeps what it has built in a folder of its own the first time, and in its cache from then on.
func TestA78_AProgramOfGoRun_EndsWithIt(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"Built": "go-build123/b001/exe/refundd", "FromTheCache": "3c/3c" + strings.Repeat("0de4", 15) + "de-d/refundd",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := dataFolder(t)
			program := filepath.Join(t.TempDir(), path)
			if err := os.MkdirAll(filepath.Dir(program), 0o700); err != nil {
				t.Fatal(err)
			}
			raw, err := os.ReadFile(self)
			if err == nil {
				err = os.WriteFile(program, raw, 0o700) // #nosec G306 -- it is run
			}
			if err != nil {
				t.Fatal(err)
			}
			// Of a shell in go run's place, SIGKILL is passed on as little as SIGTERM is by go run.
			parent := exec.CommandContext(t.Context(), "sh", "-c", `"$0" dev --addr 127.0.0.1:0 --data "$1"; true`,
				program,
				folder)
			parent.Env = append(os.Environ(), asProgram+"=yes", "DATABASE_URL=")
			if err := parent.Start(); err != nil {
				t.Fatal(err)
			}
			announced := func() bool {
				_, err := os.Stat(filepath.Join(folder, "dev.json"))
				return err == nil
			}
			eventually(t, "dev.json", announced)
			_ = parent.Process.Kill()
			_ = parent.Wait()
			began := time.Now()
			eventually(t, "dev to end", func() bool { return !announced() })
			if took := time.Since(began); took > stopLimit {
				t.Errorf("it went on for %v", took)
			}
		})
	}
}
