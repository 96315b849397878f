// Command mutants holds the tests to account: it changes one condition of the code at a time, as an edit by mistake
// would, and expects the tests of that room to fail. The table is in table.go; make mutants runs all of it.
//
// The code on disk is never touched: a change is an overlay of the build. The run fails where a mutant survives that
// the table does not explain, where one that it explains is killed after all, where a change does not compile, where
// the text to change is not found exactly once (the code moved: so must the table), and where the tests fail without
// any change.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"refundd/internal/embedpg"
)

// patience bounds the tests against one mutant; one that hangs them is killed by it.
const patience = 90 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	root := flags.String("C", ".", "the module's folder")
	pattern := flags.String("run", "", "only mutants whose name matches")
	few := flags.Bool("few", false, "only those that the check of every change runs")
	if err := flags.Parse(args); err != nil {
		return err
	}
	names, err := regexp.Compile(*pattern)
	if err != nil {
		return fmt.Errorf("pattern: %w", err)
	}
	chosen := slices.DeleteFunc(slices.Clone(table), func(m mutant) bool {
		return !names.MatchString(m.name) || *few && !m.few
	})
	if len(chosen) == 0 {
		return errors.New("no mutant has such a name")
	}
	b, err := newBench(ctx, *root)
	if err != nil {
		return err
	}
	defer b.close()
	if err := b.found(table); err != nil {
		return err
	}
	return b.all(ctx, chosen, out)
}

// bench is where mutants are tried: a folder for what is built, and a Postgres that all of them share.
type bench struct {
	root, dir string
	postgres  *embedpg.Server
}

func newBench(ctx context.Context, root string) (b *bench, err error) {
	b = &bench{}
	if b.root, err = filepath.Abs(root); err != nil {
		return nil, err
	}
	if b.dir, err = os.MkdirTemp("", "refundd-mutants-"); err != nil {
		return nil, err
	}
	if os.Getenv("TEST_DATABASE_URL") == "" {
		if b.postgres, err = embedpg.Start(ctx, embedpg.Options{}); err != nil {
			return nil, errors.Join(err, os.RemoveAll(b.dir))
		}
	}
	return b, nil
}

func (b *bench) close() {
	if b.postgres != nil {
		_ = b.postgres.Stop(context.Background())
	}
	_ = os.RemoveAll(b.dir)
}

// found expects the text of every mutant where the table says, of those too that are not tried now: the table does not
// rot.
func (b *bench) found(all []mutant) error {
	var lost []error
	for _, m := range all {
		if _, err := b.changed(m); err != nil {
			lost = append(lost, fmt.Errorf("%s: %w", m.name, err))
		}
	}
	return errors.Join(lost...)
}

// all tries the unchanged code first, and then each mutant.
func (b *bench) all(ctx context.Context, mutants []mutant, out io.Writer) error {
	began := time.Now()
	if err := b.unchanged(ctx, mutants); err != nil {
		return err
	}
	killed, explained, wrong := 0, 0, 0
	for _, m := range mutants {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		start := time.Now()
		dead, err := b.try(ctx, m)
		says := "killed"
		switch {
		case err != nil:
			says = "NOT TRIED: " + err.Error()
			wrong++
		case dead && m.survives != "":
			says = "KILLED, and the table says that it survives: " + m.survives
			wrong++
		case !dead && m.survives == "":
			says = "SURVIVED"
			wrong++
		case !dead:
			says = "survives: " + m.survives
			explained++
		default:
			killed++
		}
		fmt.Fprintf(out, "%5.1fs  %s: %s\n", time.Since(start).Seconds(), m.name, says)
	}
	fmt.Fprintf(out, "%d mutants in %s: %d killed, %d explained, %d wrong\n", len(mutants),
		time.Since(began).Round(time.Second), killed, explained, wrong)
	if wrong > 0 {
		return fmt.Errorf("%d of %d mutants are not as the table says", wrong, len(mutants))
	}
	return nil
}

// unchanged expects the tests that are to fail to pass as yet.
func (b *bench) unchanged(ctx context.Context, mutants []mutant) error {
	tests := map[string][]string{}
	for _, m := range mutants {
		if !slices.Contains(tests[m.room], m.tests) {
			tests[m.room] = append(tests[m.room], m.tests)
		}
	}
	for room, patterns := range tests {
		binary, err := b.build(ctx, room, "")
		if err != nil {
			return fmt.Errorf("%s as it is: %w", room, err)
		}
		for _, pattern := range patterns {
			text, err := b.test(ctx, binary, room, pattern)
			if err != nil { // once more: on a busy machine a moment may pass in which nothing runs
				text, err = b.test(ctx, binary, room, pattern)
			}
			if err != nil {
				return fmt.Errorf("the tests %s of %s fail without any change:\n%s", pattern, room, text)
			}
			if bytes.Contains(text, []byte("no tests to run")) {
				return fmt.Errorf("%s has no test %s", room, pattern)
			}
		}
	}
	return nil
}

// try reports whether the tests notice the mutant.
func (b *bench) try(ctx context.Context, m mutant) (dead bool, err error) {
	overlay, err := b.overlay(m)
	if err != nil {
		return false, err
	}
	binary, err := b.build(ctx, m.room, overlay)
	if err != nil {
		return false, err
	}
	_, err = b.test(ctx, binary, m.room, m.tests)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	return err != nil, nil
}

// changed is the text of the mutant's file with the change in it.
func (b *bench) changed(m mutant) (string, error) {
	text, err := os.ReadFile(filepath.Join(b.root, m.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		return "", fmt.Errorf("%s has the text %d times, not once: %q", m.file, n, m.old)
	}
	return strings.Replace(string(text), m.old, m.new, 1), nil
}

// overlay writes the changed file, and the list that tells the build to take it instead of the one that is there.
func (b *bench) overlay(m mutant) (list string, err error) {
	text, err := b.changed(m)
	if err != nil {
		return "", err
	}
	file := filepath.Join(b.dir, "mutant"+filepath.Ext(m.file))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(b.root, m.file): file}})
	if err != nil {
		return "", err
	}
	list = filepath.Join(b.dir, "overlay.json")
	return list, os.WriteFile(list, replace, 0o600)
}

// build makes the room's tests.
func (b *bench) build(ctx context.Context, room, overlay string) (binary string, err error) {
	binary = filepath.Join(b.dir, "room.test")
	args := []string{"test", "-c", "-ldflags=-s -w", "-o", binary}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	c := exec.CommandContext(ctx, "go", append(args, "./"+room)...)
	c.Dir = b.root
	if text, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("it does not compile:\n%s", text)
	}
	return binary, nil
}

// test runs the room's tests that match until one fails.
func (b *bench) test(ctx context.Context, binary, room, pattern string) ([]byte, error) {
	c := exec.CommandContext(ctx, binary, "-test.failfast", "-test.run", pattern, "-test.timeout", patience.String())
	c.Dir = filepath.Join(b.root, room)
	c.Env = os.Environ()
	if b.postgres != nil {
		c.Env = append(c.Env, "TEST_DATABASE_URL="+b.postgres.URL())
	}
	return c.CombinedOutput()
}
