package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// The defaults of Config.
const (
	defaultGrace = 10 * time.Second
	defaultText  = 64 << 10
	defaultError = storage.MaxText - 2<<10 // with the status, an error has at most storage.MaxText
	defaultLine  = 1 << 20
)

// The bounds of Config.
const (
	leastText = 1 << 10
	mostText  = 16 << 20
	leastMB   = 1 << 20
)

// Config decides how the child of a task is run. Path and Reaper are required.
type Config struct {
	// Path is the program: a name that is searched for in PATH, or a path. [Handle] resolves it once, in the
	// current folder.
	Path string
	// Args are the arguments of the program, without its name.
	Args []string
	// Dir is the folder in which the program runs, by default the current folder.
	Dir string
	// Env is the environment of the program, as name=value. Nil means [Environment]. The variables of the task
	// are added to it.
	Env []string
	// Grace is the time from SIGTERM to SIGKILL for a child that has to end: default 10 s, [midge.None] for
	// SIGKILL at once. When a runner stops, [midge.RunnerConfig.ReturnWithin] must be longer than Grace.
	// Otherwise SIGKILL comes shortly before the end of that time.
	Grace time.Duration
	// Memory bounds the data of each process of a task, in bytes: default 0 for no bound, at least 1 MiB. It is
	// RLIMIT_DATA of Linux. [Main] sets it in another process of this program, which then becomes the program of
	// the task; that costs some milliseconds for each start. Elsewhere it must be 0.
	Memory int64
	// Stdout and Stderr also receive what the programs write to their standard output and standard error:
	// default nil for nobody. Programs that run at the same time write between each other's lines.
	// A writer that is no *os.File is called by several goroutines at once. If a writer panics, the output of
	// all programs of the kind is lost from then on. A call of Write that does not return holds up its program
	// until the task is cancelled or its timeout is over. On Linux and macOS the call is left alone soon after
	// the program has ended, and until the call returns the output of the programs of the kind is lost.
	Stdout, Stderr io.Writer
	// ResultFromStdout makes the whole standard output of a program, as text, the result of the task. The
	// program must then send no result on file descriptor 3.
	ResultFromStdout bool
	// MaxResult bounds a result, as JSON or as standard output, in bytes: default 64 KiB, at least 1 KiB. A
	// longer result fails the attempt.
	MaxResult int
	// MaxError bounds the standard error that an error holds, in bytes: default and most 62 KiB, at least 1 KiB.
	// Only the end of a longer standard error is kept.
	MaxError int
	// MaxLine bounds a line on file descriptor 3, in bytes: default 1 MiB, at least 1 KiB. A longer line fails
	// the attempt.
	MaxLine int
	// Reaper is the value that [Main] has returned.
	Reaper *Reaper
}

// Handle registers a program for the jobs of a kind. See the comment of the package for the program's side.
//
// Handle returns an *[midge.InvalidError] if the program is not there or may not be executed, and for a
// Config that is not valid, besides the errors of [midge.HandleRaw]. It starts the reaper, and returns the
// error of that start.
func Handle(r *midge.Runner, kind string, cfg Config) error {
	if err := cfg.fill(); err != nil {
		return fmt.Errorf("command: %s: %w", kind, err)
	}
	w := &worker{Config: cfg, outputs: outputs{broken: make(chan struct{})}}
	if err := midge.HandleRaw(r, kind, w.run); err != nil {
		return err //nolint:wrapcheck // it names the kind
	}
	if err := cfg.Reaper.start(); err != nil {
		return fmt.Errorf("command: start the reaper: %w", err)
	}
	return nil
}

// Check returns an *[midge.InvalidError] if the configuration is not valid, or if the program is not there or
// may not be executed. [Handle] checks the same; Check is for programs that check before they open a
// storage.
func (c *Config) Check() error {
	checked := *c
	return checked.fill()
}

// fill checks the configuration, looks up the program and sets the defaults.
func (c *Config) fill() error {
	if c.Reaper == nil {
		return storage.Invalid("Config.Reaper", "nil", "the value that command.Main returned at the start of main")
	}
	if err := c.find(); err != nil {
		return err
	}
	if c.Env == nil {
		c.Env = Environment(os.Environ())
	}
	c.Args, c.Env = slices.Clone(c.Args), slices.Clone(c.Env)
	for _, given := range c.Env {
		if name, _, ok := strings.Cut(given, "="); !ok || strings.ContainsRune(given, 0) {
			name = storage.PrintableText(name, storage.MaxName)
			return storage.Invalid("Config.Env", "an entry "+name, "name=value")
		}
	}
	switch {
	case c.Grace < 0 && c.Grace != midge.None || c.Grace > storage.MaxDelay:
		return storage.Invalid("Config.Grace", c.Grace, "0 for the default, a time, or midge.None")
	case c.Memory != 0 && !limitsMemory:
		return storage.Invalid("Config.Memory", c.Memory, "0: only Linux has such a bound")
	case c.Memory != 0 && c.Memory < leastMB:
		return storage.Invalid("Config.Memory", c.Memory, "0 for no bound, or at least %d bytes", leastMB)
	case c.ResultFromStdout && !hasReports:
		return storage.Invalid("Config.ResultFromStdout", true, "false: only Linux and macOS have results")
	}
	c.Grace = cmp.Or(c.Grace, defaultGrace)
	c.MaxResult, c.MaxError = cmp.Or(c.MaxResult, defaultText), cmp.Or(c.MaxError, defaultError)
	c.MaxLine = cmp.Or(c.MaxLine, defaultLine)
	for _, bound := range []struct {
		name    string
		n, most int
	}{
		{"Config.MaxResult", c.MaxResult, mostText},
		{"Config.MaxError", c.MaxError, defaultError},
		{"Config.MaxLine", c.MaxLine, mostText},
	} {
		if bound.n < leastText || bound.n > bound.most {
			return storage.Invalid(bound.name, bound.n, "0 for the default, or %d to %d", leastText, bound.most)
		}
	}
	return nil
}

// find makes Path and Dir absolute, and refuses a program that cannot be executed.
func (c *Config) find() error {
	if c.Path == "" {
		return storage.Invalid("Config.Path", `""`, "a program")
	}
	found, err := exec.LookPath(c.Path)
	if err == nil {
		found, err = filepath.Abs(found)
	}
	if err != nil {
		if why, ok := errors.AsType[*exec.Error](err); ok {
			err = why.Err
		}
		return storage.Invalid("program", c.Path, "a program that is there and may be executed (%v)", err)
	}
	c.Path = found
	if c.Dir == "" {
		return nil
	}
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return storage.Invalid("Config.Dir", c.Dir, "a folder: %v", err)
	}
	if info, err := os.Stat(c.Dir); err != nil || !info.IsDir() {
		return storage.Invalid("Config.Dir", c.Dir, "a folder that is there")
	}
	return nil
}

// Environment returns the variables of an environment that a child may see by default: all but those with a
// name that begins with MIDGE_, which name the storage, and the variables by which PostgreSQL's clients find
// passwords.
func Environment(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(given string) bool {
		name, _, _ := strings.Cut(given, "=")
		switch name {
		case "PGPASSWORD", "PGPASSFILE", "PGSERVICEFILE", "PGSSLPASSWORD":
			return true
		}
		return strings.HasPrefix(name, "MIDGE_")
	})
}

// worker runs the tasks of one kind.
type worker struct {
	Config

	outputs outputs
}

// run is the job of a task.
func (w *worker) run(ctx context.Context, job midge.RawJob) error {
	params, err := job.JSON()
	if err != nil {
		return err //nolint:wrapcheck // midge recognizes it
	}
	t, err := w.newAttempt(ctx, params)
	if err != nil {
		return err
	}
	defer t.close()
	return t.run(ctx)
}
