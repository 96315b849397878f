package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the flags into docs/reference.md")

var referencePath = filepath.Join("..", "..", "docs", "reference.md")

func reference(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(referencePath)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The flags stand between these lines, as `go test ./cmd/refundd -run Reference -update` writes them.
const flagsBegin, flagsEnd = "<!-- flags: begin -->\n", "<!-- flags: end -->\n"

func TestReference_ListsEveryFlag(t *testing.T) {
	t.Parallel()
	text := reference(t)
	before, rest, begun := strings.Cut(text, flagsBegin)
	told, after, ended := strings.Cut(rest, flagsEnd)
	if !begun || !ended {
		t.Fatalf("docs/reference.md has no lines %q and %q", flagsBegin, flagsEnd)
	}
	want := flagTable(t)
	if *update {
		if err := os.WriteFile(referencePath, []byte(before+flagsBegin+want+flagsEnd+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(want, told); d != "" {
		t.Errorf("docs/reference.md differs from the commands: run this test with -update\n(-want +got):\n%s", d)
	}
}

// flagTable lists each flag once for all commands in which it means the same.
func flagTable(t *testing.T) string {
	t.Helper()
	parser, err := kong.New(&commandLine{})
	if err != nil {
		t.Fatal(err)
	}
	commands := map[string][]string{} // by the rest of the row
	var walk func(n *kong.Node)
	walk = func(n *kong.Node) {
		for _, f := range n.Flags {
			if f.Name == "help" || f.Hidden {
				continue
			}
			help := strings.ReplaceAll(f.Help, "|", `\|`)
			row := fmt.Sprintf("| `--%s` | %s | %s |", f.Name, defaultOf(f), help)
			commands[row] = append(commands[row], strings.TrimPrefix(n.Path(), "refundd "))
		}
		for _, child := range n.Children {
			walk(child)
		}
	}
	parser.Model.Name = "refundd"
	walk(parser.Model.Node)
	rows := make([]string, 0, len(commands))
	for row, of := range commands {
		rows = append(rows, fmt.Sprintf("%s %s |\n", row, strings.Join(of, ", ")))
	}
	slices.Sort(rows)
	if len(rows) < 30 {
		t.Errorf("only %d flags", len(rows))
	}
	return "\n| flag | default | tells | commands |\n|---|---|---|---|\n" + strings.Join(rows, "") + "\n"
}

func defaultOf(f *kong.Flag) string {
	switch {
	case f.Required:
		return "needed"
	case f.HasDefault && f.Default != "":
		return "`" + f.Default + "`"
	case f.IsBool():
		return "off"
	}
	return ""
}

var documentedEvent = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([A-Za-z ]+) \\| .+ \\|$")

func TestReference_ListsEveryLogEvent(t *testing.T) {
	t.Parallel()
	_, part, _ := strings.Cut(reference(t), "\n## Log events\n")
	part, _, _ = strings.Cut(part, "\n## ")
	told := map[string]string{}
	for _, row := range documentedEvent.FindAllStringSubmatch(part, -1) {
		told[row[1]] = row[2]
	}
	logged := loggedEvents(t)
	if d := cmp.Diff(logged, told); d != "" || len(told) < 20 {
		t.Errorf("docs/reference.md lists %d events; code (-), reference (+):\n%s", len(told), d)
	}
}

const varying = "by what happened"

// levels are what slog's methods log at.
var levels = map[string]string{"Debug": "DEBUG", "Info": "INFO", "Warn": "WARN", "Error": "ERROR", "Log": varying,
	"LogAttrs": varying, "NewRecord": varying}

// loggedEvents are the messages in the calls of loggers, of all that is no test.
func loggedEvents(t *testing.T) map[string]string {
	t.Helper()
	events := map[string]string{}
	files := token.NewFileSet()
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() &&
			slices.Contains([]string{"test", "examples", ".git", ".cache", "testdata"}, d.Name()) {
			return cmp2(err, fs.SkipDir)
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			method, message := logCall(call)
			if method == "" {
				return true
			}
			literal, ok := message.(*ast.BasicLit)
			if !ok {
				t.Errorf("%s: the message of a log event is no literal", files.Position(call.Pos()))
				return true
			}
			text, _ := strconv.Unquote(literal.Value)
			if before := events[text]; before != "" && before != levels[method] {
				method = "Log"
			}
			events[text] = levels[method]
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// cmp2 is the first of two errors that is one.
func cmp2(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

// logCall is the method and the message of a call of a logger: what is named log, Log or Logger, or slog.New(…).
func logCall(call *ast.CallExpr) (method string, message ast.Expr) {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || levels[f.Sel.Name] == "" {
		return "", nil
	}
	var receiver string
	switch x := f.X.(type) {
	case *ast.Ident:
		receiver = x.Name
	case *ast.SelectorExpr:
		receiver = x.Sel.Name
	case *ast.CallExpr:
		if s, ok := x.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "New" {
			receiver = fmt.Sprint(s.X)
		}
	}
	if !strings.HasSuffix(strings.ToLower(receiver), "log") && !strings.HasSuffix(strings.ToLower(receiver), "logger") {
		return "", nil
	}
	at := 0
	if strings.HasPrefix(f.Sel.Name, "Log") || f.Sel.Name == "NewRecord" {
		at = 2
	}
	if len(call.Args) <= at {
		return "", nil
	}
	return f.Sel.Name, call.Args[at]
}
