package show

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// TestTheFieldsOfJSONAreDocumented wants every field of every record in docs/operating.md.
func TestTheFieldsOfJSONAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := make(map[string]bool)
	for _, code := range regexp.MustCompile("`[^`\n]+`").FindAllString(string(text), -1) {
		for word := range strings.FieldsSeq(strings.Trim(code, "`")) {
			documented[word] = true
		}
	}
	for _, record := range []any{
		Queue{},
		Kind{},
		Totals{},
		Task{},
		Attempt{},
		Why{},
		Act{},
		ActReason{},
		Schedule{},
		Runner{},
		Running{},
		Stats{},
		Rates{},
		Import{},
		Left{},
		Cause{},
	} {
		typ := reflect.TypeOf(record)
		for field := range typ.Fields() {
			if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); !documented[name] {
				t.Errorf("field %s of %s is not documented in docs/operating.md", name, typ)
			}
		}
	}
}
