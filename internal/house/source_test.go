package house

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// module is the path of this module.
const module = "github.com/midgehq/midge"

// source is one Go file of the repository.
type source struct {
	path string // from the module's root, with slashes
	room string // its directory in the same form
	test bool
	fset *token.FileSet
	file *ast.File
}

// sources parses the Go files of this module and of those nested in it.
func sources(t *testing.T) []source {
	t.Helper()
	var found []source
	root := root(t)
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name != "." && aside(name) {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		fset := token.NewFileSet()
		mode := parser.ParseComments | parser.SkipObjectResolution
		file, err := parser.ParseFile(fset, filepath.Join(root, name), nil, mode)
		found = append(found, source{
			path: name, room: path.Dir(name), test: strings.HasSuffix(name, "_test.go"), fset: fset, file: file,
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// aside reports whether the go command leaves a directory out of ./...
func aside(dir string) bool {
	base := path.Base(dir)
	return base == "testdata" || base == "vendor" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")
}

// root returns the module's directory.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Fatalf("%s is not the root of the module: %v", dir, err)
	}
	return dir
}

// public returns the files of the exported surface on Linux, by room. It leaves out
// tests, internal packages and main packages.
func public(t *testing.T) map[string][]source {
	t.Helper()
	linux := build.Default
	linux.GOOS, linux.GOARCH, linux.CgoEnabled = "linux", "amd64", false
	rooms := map[string][]source{}
	for _, src := range sources(t) {
		if src.test || src.file.Name.Name == "main" || strings.Contains("/"+src.room+"/", "/internal/") {
			continue
		}
		ok, err := linux.MatchFile(filepath.Join(root(t), filepath.FromSlash(src.room)), path.Base(src.path))
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			rooms[src.room] = append(rooms[src.room], src)
		}
	}
	return rooms
}

// within reports whether a room is the named room or inside it.
func within(room, name string) bool { return room == name || strings.HasPrefix(room, name+"/") }

// receiver returns the name of a method's receiver type and whether the receiver is a
// pointer. The name is "" for a function.
func receiver(f *ast.FuncDecl) (name string, pointer bool) {
	if f.Recv == nil {
		return "", false
	}
	expr := f.Recv.List[0].Type
	if star, ok := expr.(*ast.StarExpr); ok {
		expr, pointer = star.X, true
	}
	switch e := expr.(type) {
	case *ast.IndexExpr:
		expr = e.X
	case *ast.IndexListExpr:
		expr = e.X
	}
	if id, ok := expr.(*ast.Ident); ok {
		name = id.Name
	}
	return name, pointer
}
