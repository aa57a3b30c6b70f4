package midge_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// snippetHead holds the declarations that the programs of the pages leave out.
const snippetHead = `
type (
	shop struct {
		db     *sql.DB
		client *midge.Client
		store  *postgres.Storage
	}
	Receipt     struct{ Order string }
	Order       struct{ Number int }
	Invoice     struct{ Order int }
	Resize      struct{ Image, Width int }
	SendWelcome struct{ UserID int64 }
	Cleanup     struct{}
	Report      struct{}
)

func snippet(ctx context.Context, client *midge.Client, runner *midge.Runner, store storage.Storage,
	db *pgxpool.Pool, url, order string, ref midge.Ref, task midge.Task) (err error) {
	{
%s
	}
	return err
}
`

// snippetImports lists the packages that these programs may import.
var snippetImports = []string{
	"context", "database/sql", "errors", "log", "net/http", "os", "os/signal", "syscall", "time",
	"github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgxpool", "github.com/midgehq/midge",
	"github.com/midgehq/midge/storage", "github.com/midgehq/midge/storage/postgres",
	"github.com/midgehq/midge/storage/redis",
}

// foreign matches programs about modules that midge does not require.
var foreign = regexp.MustCompile(`\b(asynq|river|gorm|ent|orders|inspector|modernc)\.`)

// Programs in the pages that are in no Go file compile.
func TestDocsSnippetsCompile(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := outsideModule(t)
	shown := regexp.MustCompile("(?s)(<!-- [a-z_/]+\\.go -->\n)?```go\n(.*?)```")
	var from []string
	for _, page := range append(pages, "README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range shown.FindAllStringSubmatch(string(text), -1) {
			program := block[2]
			if block[1] != "" || foreign.MatchString(program) || strings.HasPrefix(program, "package main") {
				continue // in a Go file, about another module, or built by another test
			}
			writeSnippet(t, filepath.Join(dir, fmt.Sprintf("s%d", len(from))), program)
			from = append(from, page+":\n"+program)
		}
	}
	if len(from) < 5 {
		t.Errorf("the pages show %d programs, want more: this test looks for them wrongly", len(from))
	}
	build := exec.Command("go", "build", "-mod=mod", "-gcflags=-e", "./...")
	build.Dir = dir
	output, _ := build.CombinedOutput() // the errors are in the output; some are ignored
	for line := range strings.Lines(string(output)) {
		if strings.HasPrefix(line, "#") || strings.Contains(line, "declared and not used") {
			continue
		}
		var n int
		if _, err := fmt.Sscanf(line, "s%d/", &n); err != nil || n >= len(from) {
			t.Error(line)
			continue
		}
		t.Errorf("%s\n%s", line, from[n])
	}
}

// writeSnippet makes a package from a program: the program's declarations, and a function with the
// rest.
func writeSnippet(t *testing.T, dir, program string) {
	t.Helper()
	top := regexp.MustCompile(`(?ms)^(?:// [^\n]*\n)*(?:func .*?^}\n|type [^\n]*\n)`)
	decls := strings.Join(top.FindAllString(program, -1), "\n")
	body := strings.ReplaceAll(top.ReplaceAllString(program, ""), "…", "")
	source := fmt.Sprintf(snippetHead, body) + decls
	for _, own := range regexp.MustCompile(`(?m)^type (\w+)`).FindAllStringSubmatch(decls, -1) {
		source = regexp.MustCompile(`(?m)^\t`+own[1]+` +struct.*$`).ReplaceAllString(source, "")
	}
	head := "package snippet\n\nimport (\n"
	for _, path := range snippetImports {
		parts := slices.DeleteFunc(strings.Split(path, "/"), func(part string) bool { return part == "v5" })
		if strings.Contains(source, parts[len(parts)-1]+".") {
			head += fmt.Sprintf("\t%q\n", path)
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "snippet.go"), []byte(head+")\n"+source), 0o600); err != nil {
		t.Fatal(err)
	}
}
