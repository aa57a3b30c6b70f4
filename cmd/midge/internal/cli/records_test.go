package cli

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/midgehq/midge/cmd/midge/internal/show"
)

// records are the types that are written as JSON, by the first words of their rows in docs/operating.md.
var records = map[string]any{
	"a cause": show.Cause{}, "a count": show.Tally{}, "a load": show.Load{}, "a queue": show.Queue{}, "a partition": show.Partition{}, "a task": show.Task{}, "a verdict": show.Why{}, "an action": show.Action{}, "`task restore`": show.Restored{},
	"a schedule": show.Schedule{}, "a runner": show.Runner{}, "`stats`": show.Stats{}, "`doctor`": Report{},
	"an import": show.Import{}, "an enqueued task": show.Added{}, "a user": show.User{}, "`audit`": show.Entry{}, "`history`": show.History{}, "`version`": show.Version{},
}

// fieldsOf lists the fields of a record and of the records in it, as "attempts.at time.Time".
func fieldsOf(typ reflect.Type, within string) (fields []string) {
	for f := range typ.Fields() {
		name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		of := f.Type
		for of.Kind() == reflect.Slice || of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		record := of.Kind() == reflect.Struct && of.PkgPath() != "time"
		switch {
		case !f.IsExported() || name == "-":
		case f.Anonymous:
			fields = append(fields, fieldsOf(of, within)...)
		default:
			fields = append(fields, strings.TrimSpace(fmt.Sprintf("%s%s %s %s", within, name, f.Type, rest)))
			if record {
				fields = append(fields, fieldsOf(of, within+name+".")...)
			}
		}
	}
	return fields
}

// TestTheFieldsOfJSONAreFrozen compares the fields with a golden file. A new field may be added to the file,
// by -update; no other change is allowed.
func TestTheFieldsOfJSONAreFrozen(t *testing.T) {
	var all strings.Builder
	for _, row := range slices.Sorted(maps.Keys(records)) {
		all.WriteString(row + "\n")
		for _, field := range fieldsOf(reflect.TypeOf(records[row]), "") {
			all.WriteString("  " + field + "\n")
		}
	}
	golden(t, "fields", all.String())
}

// documented returns the names that each row of docs/operating.md lists.
func documented(t *testing.T) map[string]map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../../../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	name, code := regexp.MustCompile(`^[a-z_]+$`), regexp.MustCompile("`[^`]+`")
	words := make(map[string]map[string]bool)
	for _, row := range regexp.MustCompile(`(?m)^\| (.*) \| (.*) \|$`).FindAllStringSubmatch(string(text), -1) {
		of, _, _ := strings.Cut(row[1], " (")
		told := make(map[string]bool)
		for _, text := range code.FindAllString(row[2], -1) {
			for word := range strings.FieldsSeq(strings.Trim(text, "`")) {
				if name.MatchString(word) && !strings.HasSuffix(text, " show`") { // this one is a command
					told[word] = true
				}
			}
		}
		words[of] = told
	}
	return words
}

// TestTheFieldsOfJSONAreDocumented checks that the row of a record in docs/operating.md lists exactly its
// fields.
func TestTheFieldsOfJSONAreDocumented(t *testing.T) {
	words := documented(t)
	for name, record := range records {
		told, fields := words[name], make(map[string]bool)
		for _, field := range fieldsOf(reflect.TypeOf(record), "") {
			field, _, _ = strings.Cut(field, " ")
			fields[field[strings.LastIndexByte(field, '.')+1:]] = true
		}
		for field := range fields {
			// The row of stats refers to the row of a queue.
			if !told[field] && (name != "`stats`" || !words["a queue"][field]) {
				t.Errorf("field %s of %s is not in its row", field, name)
			}
		}
		for word := range told {
			if !fields[word] {
				t.Errorf("the row of %s tells of %s, which is no field", name, word)
			}
		}
	}
}
