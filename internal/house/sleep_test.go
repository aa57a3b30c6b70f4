package house

import (
	"go/ast"
	"slices"
	"testing"
)

// TestTestsDoNotSleep allows time.Sleep only in test files that use testing/synctest,
// whose bubbles have a clock of their own. All other tests must wait for a condition.
func TestTestsDoNotSleep(t *testing.T) {
	for _, src := range sources(t) {
		bubbles := slices.ContainsFunc(src.file.Imports, func(spec *ast.ImportSpec) bool {
			return spec.Path.Value == `"testing/synctest"`
		})
		if !src.test || bubbles {
			continue
		}
		ast.Inspect(src.file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Sleep" {
				if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "time" {
					t.Errorf("%s sleeps", src.fset.Position(sel.Pos()))
				}
			}
			return true
		})
	}
}
