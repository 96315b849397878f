// Package model holds the protocol's model to the code: README.md's table says which function each step of refund.pml
// is, and this test fails where one of them is renamed.
package model

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// rows of README.md's table: a step of the model, and the functions that it is.
var (
	row  = regexp.MustCompile("(?m)^\\| `([a-z_A-Z]+)` \\| (.+?) \\|")
	name = regexp.MustCompile("`([a-z/]+): ([A-Za-z_.0-9]+)`")
)

func TestREADME_NamesFunctionsThatThereAre(t *testing.T) {
	readme := read(t, "README.md")
	promela := read(t, "refund.pml")
	steps := row.FindAllStringSubmatch(readme, -1)
	if len(steps) < 15 {
		t.Fatalf("README.md's table has %d rows that can be read", len(steps))
	}
	known := map[string]map[string]bool{}
	for _, step := range steps {
		if !regexp.MustCompile(`\b` + step[1] + `\b`).MatchString(promela) {
			t.Errorf("refund.pml has no %s", step[1])
		}
		functions := name.FindAllStringSubmatch(step[2], -1)
		if len(functions) == 0 {
			t.Errorf("%s names no function", step[1])
		}
		for _, f := range functions {
			room := f[1]
			if known[room] == nil {
				known[room] = functionsOf(t, filepath.Join("..", "..", room))
			}
			if !known[room][f[2]] {
				t.Errorf("%s is %s of %s, which is not there: was it renamed? Mend README.md, and the model where the protocol changed",
					step[1], f[2], room)
			}
		}
	}
}

// Every mutation of the model is one that .ci/model runs.
func TestMutants_AreThoseOfTheModel(t *testing.T) {
	mutants := read(t, "mutants")
	for _, m := range regexp.MustCompile(`(?m)^#(?:if|ifdef|ifndef) ([A-Z_]+)`).FindAllStringSubmatch(read(t,
		"refund.pml"), -1) {
		if m[1] != "WORKERS" && !regexp.MustCompile(`\s`+m[1]+`\b`).MatchString(mutants) {
			t.Errorf("%s is a symbol that .ci/model never sets", m[1])
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// functionsOf are the functions of a package, methods as Type.Name, and the functions that its SQL makes.
func functionsOf(t *testing.T, room string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(room, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		switch {
		case strings.HasSuffix(file, ".up.sql"):
			for _, f := range regexp.MustCompile(`(?i)FUNCTION ([a-z_0-9]+) ?\(`).FindAllStringSubmatch(read(t, file),
				-1) {
				found[f[1]] = true
			}
		case strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go"):
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range parsed.Decls {
				if f, ok := d.(*ast.FuncDecl); ok {
					found[receiver(f)+f.Name.Name] = true
				}
			}
		}
	}
	return found
}

// receiver is the type of a method and a point, or nothing.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	kind := f.Recv.List[0].Type
	if star, ok := kind.(*ast.StarExpr); ok {
		kind = star.X
	}
	if id, ok := kind.(*ast.Ident); ok {
		return id.Name + "."
	}
	return ""
}
