package load

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// rig loads files into a storage.
type rig struct {
	t     testing.TB
	store storage.Storage
	dir   string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	store, err := memory.Open(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return &rig{t: t, store: store, dir: t.TempDir()}
}

// write writes a file, and returns its path. A file whose name ends with .gz is compressed, in two members.
func (r *rig) write(name, text string) string {
	r.t.Helper()
	data := []byte(text)
	if strings.HasSuffix(name, ".gz") {
		data = slices.Concat(zipped(text[:len(text)/2]), zipped(text[len(text)/2:]))
	}
	path := filepath.Join(r.dir, name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

func zipped(text string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.Bytes()
}

// source is the source for a file.
func source(path string) Source {
	return Source{Name: path, Open: func(context.Context) (io.ReadCloser, int64, error) {
		file, err := os.Open(path)
		if err != nil {
			return nil, 0, err
		}
		info, err := file.Stat()
		return file, info.Size(), err
	}}
}

// loader makes a loader of a file into the queue q.
func (r *rig) loader(path string) *Loader {
	return &Loader{
		Session: storage.NewSession(r.store, -1), Source: source(path), Name: NameOf(path),
		Rows: Rows{Format: FormatOf(path), Task: bulk.Add{
			Ref: storage.Ref{Queue: "q"}, Kind: "k", Encoding: "json", CrashLimit: 3,
		}},
	}
}

// rejecting opens the file for wrong rows.
func (r *rig) rejecting(l *Loader) *Loader {
	r.t.Helper()
	file, err := os.OpenFile(filepath.Join(r.dir, "wrong"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = file.Close() })
	l.Reject = file
	return l
}

// rejected returns the contents of the file for wrong rows.
func (r *rig) rejected() string {
	text, _ := os.ReadFile(filepath.Join(r.dir, "wrong")) // "" if there is none
	return string(text)
}

// ok runs a loader to the end of its file.
func (r *rig) ok(l *Loader) Report {
	r.t.Helper()
	report, err := l.Run(r.t.Context())
	if err != nil || !report.Finished {
		r.t.Fatalf("load %s: %+v, %v", l.Source.Name, report, err)
	}
	return report
}

// tasks returns the tasks of the queue without the markers, by their ids.
func (r *rig) tasks() (tasks []storage.Task) {
	r.t.Helper()
	for t, err := range storage.Each(r.t.Context(), r.store, "q", storage.Waiting) {
		if err != nil {
			r.t.Fatal(err)
		}
		if t.Kind != storage.LoadKind {
			tasks = append(tasks, t)
		}
	}
	slices.SortFunc(tasks, func(a, b storage.Task) int { return strings.Compare(a.ID, b.ID) })
	return tasks
}

// rows returns the parameters of the tasks.
func (r *rig) rows() []string {
	r.t.Helper()
	rows := []string{}
	for _, t := range r.tasks() {
		text, err := payload.Params(t).JSON()
		if err != nil {
			r.t.Fatal(err)
		}
		rows = append(rows, string(text))
	}
	return rows
}

// loaded checks the parameters of the tasks.
func (r *rig) loaded(want ...string) {
	r.t.Helper()
	if got := r.rows(); !slices.Equal(got, want) {
		r.t.Errorf("got the rows\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// marker reads the marker of a load.
func (r *rig) marker(name string) storage.Task {
	r.t.Helper()
	t, err := r.store.Task(r.t.Context(), MarkerRef("q", name))
	if err != nil {
		r.t.Fatal(err)
	}
	return t
}

// apply makes a change by hand.
func (r *rig) apply(tx storage.Tx) {
	r.t.Helper()
	if _, err := storage.NewSession(r.store, 0).ApplyOne(r.t.Context(), tx); err != nil {
		r.t.Fatal(err)
	}
}
