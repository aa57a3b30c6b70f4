package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/midgehq/midge/examples/internal/store"
	"github.com/midgehq/midge/storage"
)

// These environment variables make this program a mapper in a process of its own. After
// each claim the mapper prints a line and waits for its fate on standard input, so that
// a kill always falls between claim and commit.
const (
	envMapper = "WORDCOUNT_MAPPER" // name of the mapper
	envCount  = "WORDCOUNT_COUNT"  // name and parts of the count
	envRedis  = "WORDCOUNT_REDIS"
)

// process starts mappers as child processes with an environment.
type process struct {
	env []string
}

// run runs one child and decides its fate. It returns errKilled if it killed the child.
func (p *process) run(ctx context.Context, w *crew, name string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	cmd := exec.CommandContext(ctx, self) //nolint:gosec // this program itself
	cmd.Env = slices.Concat(p.env,
		[]string{envMapper + "=" + name, envCount + "=" + w.count.name + " " + strconv.Itoa(w.count.parts)})
	cmd.Stderr = os.Stderr
	tell, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	hear, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	killed := w.direct(name, hear, tell, cmd.Process)
	if err := cmd.Wait(); err != nil && !killed {
		return fmt.Errorf("%s: %w", name, err)
	}
	if killed {
		return errKilled
	}
	return nil
}

// direct answers the lines of a child until it ends, and reports whether the child was
// killed.
func (w *crew) direct(name string, hear io.Reader, tell io.Writer, child *os.Process) (killed bool) {
	lines := bufio.NewScanner(hear)
	for lines.Scan() {
		what, rest, _ := strings.Cut(lines.Text(), " ")
		switch what {
		case "claimed":
			first, n, _ := strings.Cut(rest, " ")
			claimed, _ := strconv.Atoi(n)
			f := w.decide(name, first, claimed)
			if f == dies {
				killed = child.Kill() == nil
				continue
			}
			sayf(tell, "%s", f)
		case "refused":
			w.tooLate(storage.Ref{Queue: w.count.mapQueue(), ID: rest})
		}
	}
	return killed
}

// mapperMain is the main function of the child.
func mapperMain(ctx context.Context, name string, hear io.Reader, tell io.Writer) (err error) {
	opened, err := store.Open(ctx, os.Getenv(envRedis))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	var count string
	var parts int
	if _, err := fmt.Sscan(os.Getenv(envCount), &count, &parts); err != nil {
		return fmt.Errorf("read %s: %w", envCount, err)
	}
	answers := bufio.NewScanner(hear)
	m := &mapper{count: newCount(opened, count, parts), name: name}
	m.refused = func(ref storage.Ref) { sayf(tell, "refused %s", ref.ID) }
	m.fate = func(first storage.Ref, claimed int) (fate, error) {
		sayf(tell, "claimed %s %d", first.ID, claimed)
		if !answers.Scan() {
			return "", fmt.Errorf("%s: the parent is gone", name)
		}
		return fate(answers.Text()), nil
	}
	return m.run(ctx)
}
