package house

import (
	"flag"
	"fmt"
	"go/ast"
	"go/printer"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// surfaceFile lists the exported surface, so that a change of it is a visible diff.
const surfaceFile = "docs/api.txt"

var update = flag.Bool("update", false, "rewrite "+surfaceFile)

func TestSurface(t *testing.T) {
	rooms := public(t)
	var b strings.Builder
	b.WriteString("# The exported surface. make generate rewrites this file.\n")
	for _, room := range slices.Sorted(maps.Keys(rooms)) {
		if within(room, "examples") {
			continue
		}
		fmt.Fprintf(&b, "\npackage %s\n", path.Join(module, room))
		for _, line := range surfaceOf(t, rooms[room]) {
			b.WriteString("\t" + line + "\n")
		}
	}
	got := b.String()
	name := filepath.Join(root(t), filepath.FromSlash(surfaceFile))
	if *update {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	kept, err := os.ReadFile(name)
	if err != nil {
		t.Fatalf("%v; make generate writes it", err)
	}
	want := strings.ReplaceAll(string(kept), "\r\n", "\n")
	if got != want {
		t.Errorf("the exported surface is not that of %s; look at the difference and, "+
			"where it is meant, run make generate and commit it:\n%s", surfaceFile, difference(want, got))
	}
}

// difference returns the lines that only one of two texts has.
func difference(old, fresh string) string {
	had, has := strings.Split(old, "\n"), strings.Split(fresh, "\n")
	var b strings.Builder
	for _, line := range had {
		if !slices.Contains(has, line) {
			b.WriteString("-" + line + "\n")
		}
	}
	for _, line := range has {
		if !slices.Contains(had, line) {
			b.WriteString("+" + line + "\n")
		}
	}
	return b.String()
}

// surfaceOf returns a line for each exported name of the files of a package, sorted.
func surfaceOf(t *testing.T, files []source) []string {
	t.Helper()
	var lines []string
	for _, src := range files {
		for _, decl := range src.file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				lines = append(lines, funcLine(t, d)...)
			case *ast.GenDecl:
				for i, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						lines = append(lines, typeLines(t, s)...)
					case *ast.ValueSpec:
						lines = append(lines, valueLines(t, d, i, s)...)
					}
				}
			}
		}
	}
	slices.Sort(lines)
	return lines
}

func funcLine(t *testing.T, f *ast.FuncDecl) []string {
	t.Helper()
	on, pointer := receiver(f)
	if !f.Name.IsExported() || on != "" && !ast.IsExported(on) {
		return nil
	}
	if pointer {
		on = "*" + on
	}
	head := "func "
	if on != "" {
		head = "method (" + on + ") "
	}
	return []string{head + f.Name.Name + strings.TrimPrefix(show(t, f.Type), "func")}
}

func typeLines(t *testing.T, s *ast.TypeSpec) []string {
	t.Helper()
	if !s.Name.IsExported() {
		return nil
	}
	head := "type " + s.Name.Name
	params := ""
	if s.TypeParams != nil {
		params = typeParams(t, s.TypeParams)
	}
	var lines []string
	switch typ := s.Type.(type) {
	case *ast.StructType:
		lines = append(lines, head+params+" struct")
		for _, field := range typ.Fields.List {
			lines = append(lines, fieldLines(t, head+" struct, ", field)...)
		}
	case *ast.InterfaceType:
		lines = append(lines, head+params+" interface")
		for _, method := range typ.Methods.List {
			lines = append(lines, fieldLines(t, head+" interface, ", method)...)
		}
	default:
		if s.Assign != token.NoPos {
			params += " ="
		}
		lines = append(lines, head+params+" "+show(t, s.Type))
	}
	return lines
}

// typeParams prints type parameters as the printer prints the type parameters of a function.
func typeParams(t *testing.T, params *ast.FieldList) string {
	t.Helper()
	shown := show(t, &ast.FuncType{TypeParams: params, Params: &ast.FieldList{}})
	return strings.TrimSuffix(strings.TrimPrefix(shown, "func"), "()")
}

// fieldLines returns the lines of a field of a struct or a method of an interface,
// including embedded ones.
func fieldLines(t *testing.T, head string, field *ast.Field) []string {
	t.Helper()
	shown := show(t, field.Type)
	if len(field.Names) == 0 {
		base := shown[strings.LastIndex(shown, ".")+1:]
		if strings.Contains(head, "struct") && !ast.IsExported(strings.TrimPrefix(base, "*")) {
			return nil
		}
		return []string{head + "embedded " + shown}
	}
	var lines []string
	for _, name := range field.Names {
		if !name.IsExported() {
			continue
		}
		if _, method := field.Type.(*ast.FuncType); method && strings.Contains(head, "interface") {
			lines = append(lines, head+name.Name+strings.TrimPrefix(shown, "func"))
		} else {
			lines = append(lines, head+name.Name+" "+shown)
		}
	}
	return lines
}

// valueLines returns the lines of constants and variables. A constant's line has its
// value or, if it repeats an expression such as iota, the type of that expression. A
// variable's line has its type if the source names one.
func valueLines(t *testing.T, group *ast.GenDecl, at int, s *ast.ValueSpec) []string {
	t.Helper()
	typ := s.Type
	for i := at; typ == nil && group.Tok == token.CONST && len(s.Values) == 0 && i >= 0; i-- {
		typ = group.Specs[i].(*ast.ValueSpec).Type
	}
	var lines []string
	for i, name := range s.Names {
		if !name.IsExported() {
			continue
		}
		line := group.Tok.String() + " " + name.Name
		if typ != nil {
			line += " " + show(t, typ)
		}
		if group.Tok == token.CONST && i < len(s.Values) {
			line += " = " + show(t, s.Values[i])
		}
		lines = append(lines, line)
	}
	return lines
}

// show prints a node on one line, without comments.
func show(t *testing.T, node ast.Node) string {
	t.Helper()
	var b strings.Builder
	if err := printer.Fprint(&b, token.NewFileSet(), node); err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
