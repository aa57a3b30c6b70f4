package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const (
	startBudget  = 60 * time.Millisecond
	binaryBudget = 400 << 10
)

// command times how long the command takes to answer.
func (r *rig) command(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "midge-measure-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program := filepath.Join(dir, "midge")
	if err := run(ctx, "../../cmd/midge", "go", "build", "-trimpath", "-o", program, "."); err != nil {
		return err
	}
	for _, line := range [][]string{{"version"}, {"queue", "ls", "--storage", r.place.url}} {
		var took []time.Duration
		for range 21 {
			began := time.Now()
			if err := run(ctx, dir, program, line...); err != nil {
				return err
			}
			took = append(took, time.Since(began))
		}
		p95 := quantile(took, 0.95)
		name := "midge " + line[0]
		if len(line) > 1 {
			name += " " + line[1]
		}
		half := quantile(took, 0.5)
		r.table.set(name+", ms", "60", millis(half)+" · "+millis(p95), half <= startBudget)
	}
	return nil
}

// run runs a program in a folder. The error has the output of a program that fails.
func run(ctx context.Context, dir, program string, arguments ...string) error {
	cmd := exec.CommandContext(ctx, program, arguments...) //nolint:gosec // this program's own lines
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w\n%s", program, arguments, err, out)
	}
	return nil
}

// application is a program that uses midge on Redis and serves HTTP. It has three gaps: for an import, for
// the import of the dashboard, and for the statements that use them.
const application = `package main

import (
	"context"
	%s
	"net/http"
	"os"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage/redis"
	%s
)

func main() {
	store, err := redis.Open(context.Background(), redis.Config{URL: os.Args[1]})
	if err != nil {
		panic(err)
	}
	r, err := midge.NewRunner(store, midge.RunnerConfig{})
	if err != nil {
		panic(err)
	}
	go r.Run(context.Background())
	%s
	_ = http.ListenAndServe(os.Args[2], nil)
}
`

// weigh measures by how much a program grows when it mounts a dashboard: a program that serves HTTP, and a
// program that also renders templates of its own.
func weigh(ctx context.Context, t *table) (err error) {
	dir, err := os.MkdirTemp("", "midge-measure-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	const templates = `template.Must(template.ParseFiles("a.html")).Execute(os.Stdout, nil)`
	const mounted = `d, err := dashboard.Handler(store, dashboard.Config{Token: os.Args[3]})
	if err != nil {
		panic(err)
	}
	go d.Run(context.Background())
	http.Handle("/", d)`
	const imported = `"github.com/midgehq/midge/dashboard"`
	sizes := map[string]int64{}
	for name, words := range map[string][3]any{
		"plain": {"", "", ""}, "with": {"", imported, mounted},
		"templates": {`"html/template"`, "", templates},
		"both":      {`"html/template"`, imported, templates + "\n\t" + mounted},
	} {
		if sizes[name], err = built(ctx, dir, name, fmt.Sprintf(application, words[:]...)); err != nil {
			return err
		}
	}
	for _, pair := range [][3]string{
		{"an application on Redis grows by, KB", "plain", "with"},
		{"one that renders html/template, KB", "templates", "both"},
	} {
		grows := sizes[pair[2]] - sizes[pair[1]]
		t.setIn(everywhere, pair[0], "400",
			fmt.Sprintf("%d of %d", grows>>10, sizes[pair[1]]>>10), grows <= binaryBudget)
	}
	return nil
}

// built builds a program of this module from a text, and returns its size in bytes.
func built(ctx context.Context, dir, name, text string) (int64, error) {
	source, overlay := filepath.Join(dir, name+".go"), filepath.Join(dir, name+".json")
	here, err := filepath.Abs("measure/weighed/main.go")
	if err != nil {
		return 0, err
	}
	replaced, err := json.Marshal(map[string]any{"Replace": map[string]string{here: source}})
	if err != nil {
		return 0, err
	}
	err = errors.Join(os.WriteFile(source, []byte(text), 0o600), os.WriteFile(overlay, replaced, 0o600))
	if err != nil {
		return 0, err
	}
	program := filepath.Join(dir, name)
	err = run(ctx, ".", "go", "build", "-trimpath", "-ldflags=-s -w", "-overlay", overlay, "-o", program,
		"./measure/weighed")
	if err != nil {
		return 0, err
	}
	info, err := os.Stat(program)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
