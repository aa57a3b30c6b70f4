package midgetest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/codec"
	"github.com/midgehq/midge/internal/runner"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// updateVariable is the environment variable under which Golden rewrites its file.
const updateVariable = "MIDGETEST_UPDATE"

// Golden compares the jobs that register registers with a file in the application's repository,
// such as testdata/jobs.json. It fails the test at once if a deploy of these jobs could not read
// the tasks that wait: if a kind is gone and is no alias of another, or if a field of its
// parameters was renamed or removed, or has another type that cannot hold its values. The failure names
// each problem. Kinds of [midge.HandleRaw] count as not registered, because they have no fields. Golden
// also warns of a field that this program reads by the tag `midge:"was=old"`: the program before it runs
// new tasks with the field empty, unless the field keeps its stored name.
//
// With MIDGETEST_UPDATE=1 in the environment, Golden writes the file instead. Do that first, then
// when a kind or a field is new, and after an incompatible change once no task waits that the
// change cannot read. For each kind the file holds the fields and the encoded parameters of an
// example, which midge makes up. A value whose type has its own encoder is zero there, and is
// compared as a whole.
//
// The names of steps and the types of their results stand in the code of a job only. Given the
// attempts of a test, Golden also compares the steps that are stored after them: it fails if a step
// no longer exists under its name, so that tasks that have finished it may do it again, or if a
// field of its result is gone or has another type.
func Golden(t testing.TB, path string, register func(*midge.Runner) error, worked ...Worked) {
	t.Helper()
	kinds, steps := kindsOf(t, register), stepsOf(t, worked)
	was, err := readGolden(path)
	if os.Getenv(updateVariable) == "1" {
		now, err := writeGolden(path, kinds, steps, was)
		if err != nil {
			t.Fatalf("midgetest: %v", err)
		}
		t.Logf("midgetest: wrote %s%s", path, warning(was, now, kinds))
		return
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		t.Fatalf("midgetest: there is no %s: run the test once with %s=1, which writes it, and commit it",
			path, updateVariable)
	case err != nil:
		t.Fatalf("midgetest: %v", err)
	}
	if bad := append(unreadable(was, kinds), otherSteps(was, steps)...); len(bad) > 0 {
		t.Fatalf("midgetest: this deploy cannot read what waits, by %s:\n  %s\n"+
			"Once no such task waits any more, run the test with %s=1, which rewrites the file.",
			path, strings.Join(bad, "\n  "), updateVariable)
	}
	now, err := describe(kinds, steps, was)
	if err != nil {
		t.Fatalf("midgetest: %v", err)
	}
	if fresh := unrecorded(was, now); len(fresh) > 0 {
		t.Fatalf("midgetest: %s does not have what is new:\n  %s\n"+
			"Run the test with %s=1, which rewrites the file.%s",
			path, strings.Join(fresh, "\n  "), updateVariable, warning(was, now, kinds))
	}
}

// golden is the content of the file: kinds by name.
type golden map[string]goldenKind

// goldenKind is a kind as it was when the file was written.
type goldenKind struct {
	Encoding string            `json:"encoding"`
	Fields   map[string]string `json:"fields"`  // what each field holds, by its path
	Example  []byte            `json:"example"` // encoded parameters
	Steps    goldenSteps       `json:"steps,omitempty"`
}

// goldenSteps is the content of the result of each step: by the name of the step, what each field holds, by
// its path. The path of the whole result is "".
type goldenSteps map[string]map[string]string

// stepsOf returns the steps that are stored after attempts, by kind.
func stepsOf(t testing.TB, worked []Worked) map[string]goldenSteps {
	t.Helper()
	all := make(map[string]goldenSteps)
	for _, w := range worked {
		of := all[w.Task.Kind]
		if of == nil {
			of = make(goldenSteps)
			all[w.Task.Kind] = of
		}
		for _, s := range w.Steps() {
			var v any
			switch err := s.Decode(&v); {
			case errors.Is(err, midge.ErrNoResult):
				of[s.Name] = map[string]string{"": "sleep"}
				continue
			case err != nil:
				t.Fatalf("midgetest: %v", err)
			}
			of[s.Name] = map[string]string{"": nameOf(v)}
			for _, p := range pathsIn(nil, v) {
				of[s.Name][p.String()] = nameOf(p.value)
			}
		}
	}
	return all
}

// otherSteps returns how the steps of the file differ from those of the current attempts.
func otherSteps(was golden, now map[string]goldenSteps) (bad []string) {
	for _, kind := range slices.Sorted(maps.Keys(now)) {
		for _, step := range slices.Sorted(maps.Keys(was[kind].Steps)) {
			fields, ok := now[kind][step]
			if !ok {
				bad = append(bad, fmt.Sprintf("%s: no step %q is done any more: under another name, "+
					"tasks that have finished it do it again", kind, step))
				continue
			}
			for _, field := range slices.Sorted(maps.Keys(was[kind].Steps[step])) {
				before, got := was[kind].Steps[step][field], fields[field]
				if got != before {
					bad = append(bad, fmt.Sprintf("%s: the result of step %q has %s for %q, and had %s",
						kind, step, cmp.Or(got, "nothing"), field, before))
				}
			}
		}
	}
	return bad
}

// listingStore is a storage to which a runner lists its registered types.
type listingStore struct {
	storage.Storage

	types func() map[string]runner.JobType
}

// Stepped keeps the function that lists types.
func (s *listingStore) Stepped(
	_ func(ctx context.Context, want storage.Ref) (runner.Step, error), types func() map[string]runner.JobType,
) {
	s.types = types
}

// Within is part of the interface, and never called here.
func (s *listingStore) Within(tx storage.Applier) storage.Applier { return tx }

// kindsOf returns the kinds that register registers.
func kindsOf(t testing.TB, register func(*midge.Runner) error) map[string]runner.JobType {
	t.Helper()
	store, err := memory.Open(memory.Config{})
	if err != nil {
		t.Fatalf("midgetest: %v", err)
	}
	list := &listingStore{Storage: store}
	r, err := midge.NewRunner(list, midge.RunnerConfig{})
	if err != nil {
		t.Fatalf("midgetest: %v", err)
	}
	if register == nil {
		t.Fatalf("midgetest: invalid register nil: want the function that registers the jobs")
	}
	if err := register(r); err != nil {
		t.Fatalf("midgetest: register: %v", err)
	}
	return list.types()
}

func readGolden(path string) (was golden, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &was); err != nil {
		return nil, fmt.Errorf("read %s, which %s=1 writes: %w", path, updateVariable, err)
	}
	return was, nil
}

func writeGolden(
	path string, kinds map[string]runner.JobType, steps map[string]goldenSteps, was golden,
) (golden, error) {
	now, err := describe(kinds, steps, was)
	if err != nil {
		return nil, err
	}
	data, err := json.MarshalIndent(now, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, err
	}
	return now, os.WriteFile(path, append(data, '\n'), 0o600)
}

// describe returns the content of the file for the current kinds. The steps of a kind without attempts
// stay as they were.
func describe(kinds map[string]runner.JobType, steps map[string]goldenSteps, was golden) (golden, error) {
	now := make(golden, len(kinds))
	for kind, of := range kinds {
		job := exampleOf(of.Type)
		example, err := codec.ParametersOf(of.Type).Encode(of.Encoding, job.Interface())
		if err != nil {
			return nil, fmt.Errorf("make an example of %s: %w", kind, err)
		}
		one := goldenKind{Encoding: of.Encoding, Fields: map[string]string{}, Example: example, Steps: steps[kind]}
		if one.Steps == nil {
			one.Steps = was[kind].Steps
		}
		paths, err := pathsOf(of.Encoding, example)
		if err != nil {
			return nil, fmt.Errorf("make an example of %s: %w", kind, err)
		}
		for _, p := range paths {
			if reads(of, one, p) {
				one.Fields[p.String()] = nameOf(p.value)
			}
		}
		now[kind] = one
	}
	return now, nil
}

// unreadable returns the parts of the file that the current types cannot read.
func unreadable(was golden, kinds map[string]runner.JobType) (bad []string) {
	for _, kind := range slices.Sorted(maps.Keys(was)) {
		one := was[kind]
		of, ok := kinds[kind]
		if !ok {
			bad = append(bad, kind+": no job of this kind is registered any more")
			continue
		}
		err := codec.ParametersOf(of.Type).Decode(one.Encoding, one.Example, reflect.New(of.Type).Interface())
		if err != nil {
			bad = append(bad, kind+": "+err.Error())
			continue
		}
		paths, err := pathsOf(one.Encoding, one.Example)
		if err != nil {
			bad = append(bad, kind+": "+err.Error())
		}
		for _, p := range paths {
			if typ, ok := one.Fields[p.String()]; ok && !reads(of, one, p) {
				bad = append(bad, fmt.Sprintf("%s: %s (%s) is read by nothing: the field was removed or renamed. "+
					"The tag `%s:\"%s\"` keeps its stored name, for the program before this one too; "+
					"`midge:\"was=%s\"` reads it in this one alone", kind, p, typ, one.Encoding, p.name(), p.name()))
			}
		}
	}
	return bad
}

// warning warns of fields that the current types read under their earlier names, and store under other
// ones. It is empty if there are none.
func warning(was, now golden, kinds map[string]runner.JobType) string {
	var text strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(was)) {
		one := was[kind]
		paths, err := pathsOf(one.Encoding, one.Example)
		if err != nil || now[kind].Encoding != one.Encoding {
			continue // the names of another encoding may differ
		}
		outer := "\n"
		for _, p := range paths {
			_, had := one.Fields[p.String()]
			_, has := now[kind].Fields[p.String()]
			inside := strings.HasPrefix(p.String(), outer+".") || strings.HasPrefix(p.String(), outer+"[")
			if !had || has || inside || !reads(kinds[kind], one, p) {
				continue
			}
			outer = p.String()
			fmt.Fprintf(&text, "\n  warning: %s: %s has another stored name now. The program before this one runs "+
				"new tasks with this field empty. The tag `%s:\"%s\"` keeps the name until it is gone; "+
				"see docs/deploying.md", kind, p, one.Encoding, p.name())
		}
	}
	return text.String()
}

// unrecorded returns the kinds and fields that are not in the file.
func unrecorded(was, now golden) (fresh []string) {
	for _, kind := range slices.Sorted(maps.Keys(now)) {
		before, ok := was[kind]
		if !ok {
			fresh = append(fresh, kind)
			continue
		}
		for _, field := range slices.Sorted(maps.Keys(now[kind].Fields)) {
			if _, ok := before.Fields[field]; !ok {
				fresh = append(fresh, kind+": "+field)
			}
		}
		for _, step := range slices.Sorted(maps.Keys(now[kind].Steps)) {
			for _, field := range slices.Sorted(maps.Keys(now[kind].Steps[step])) {
				if _, ok := before.Steps[step][field]; !ok {
					fresh = append(fresh, strings.TrimSpace(fmt.Sprintf("%s: step %q %s", kind, step, field)))
				}
			}
		}
	}
	return fresh
}

// reads reports whether a type reads the value at a path of an example: if it does, the job decoded
// without that value differs.
func reads(of runner.JobType, one goldenKind, p path) bool {
	c := codec.ParametersOf(of.Type)
	whole, without := reflect.New(of.Type).Interface(), reflect.New(of.Type).Interface()
	if c.Decode(one.Encoding, one.Example, whole) != nil {
		return false
	}
	rest, err := removed(one.Encoding, one.Example, p.steps)
	if err != nil {
		return true // unknown
	}
	return c.Decode(one.Encoding, rest, without) != nil || !reflect.DeepEqual(whole, without)
}
