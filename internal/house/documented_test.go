package house

import (
	"go/ast"
	"go/token"
	"strings"
	"testing"
)

// TestExportedNamesAreDocumented requires a comment on every exported type, function,
// method, constant and variable (or on its group), on every method of an exported
// interface that has several, on every field of a Config, and on every package.
func TestExportedNamesAreDocumented(t *testing.T) {
	for room, files := range public(t) {
		documented := false
		for _, src := range files {
			documented = documented || src.file.Doc != nil
			for _, decl := range src.file.Decls {
				for _, name := range undocumented(decl) {
					t.Errorf("%s: %s has no doc comment", src.path, name)
				}
			}
		}
		if !documented {
			t.Errorf("package %s has no doc comment", room)
		}
	}
}

// undocumented returns the exported names of a declaration that have no comment.
func undocumented(decl ast.Decl) []string {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		on, _ := receiver(d)
		if d.Doc == nil && d.Name.IsExported() && (on == "" || ast.IsExported(on)) {
			return []string{strings.TrimPrefix(on+"."+d.Name.Name, ".")}
		}
	case *ast.GenDecl:
		var names []string
		for _, spec := range d.Specs {
			names = append(names, undocumentedSpec(d, spec)...)
		}
		return names
	}
	return nil
}

func undocumentedSpec(group *ast.GenDecl, spec ast.Spec) []string {
	var names []string
	switch s := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range s.Names {
			if name.IsExported() && group.Doc == nil && s.Doc == nil && s.Comment == nil {
				names = append(names, name.Name)
			}
		}
	case *ast.TypeSpec:
		if !s.Name.IsExported() {
			return nil
		}
		if s.Doc == nil && (group.Doc == nil || group.Lparen != token.NoPos && len(group.Specs) > 1) {
			names = append(names, s.Name.Name)
		}
		switch typ := s.Type.(type) {
		case *ast.InterfaceType:
			if len(typ.Methods.List) > 1 { // the comment on the type documents a single method
				names = append(names, undocumentedFields(s.Name.Name, typ.Methods)...)
			}
		case *ast.StructType:
			if strings.HasSuffix(s.Name.Name, "Config") {
				names = append(names, undocumentedFields(s.Name.Name, typ.Fields)...)
			}
		}
	}
	return names
}

func undocumentedFields(of string, fields *ast.FieldList) []string {
	var names []string
	for _, field := range fields.List {
		for _, name := range field.Names {
			if name.IsExported() && field.Doc == nil && field.Comment == nil {
				names = append(names, of+"."+name.Name)
			}
		}
	}
	return names
}
