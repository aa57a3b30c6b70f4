package modernc_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/midgehq/midge/storage"
)

// work enqueues, claims and completes until the process is killed, and prints the acknowledgements:
// "e id" and "d id".
func work(ctx context.Context, s *side) error {
	for i := 0; ; i++ {
		id := fmt.Sprintf("%d-%d", os.Getpid(), i)
		in := job(id)
		in.Partition = []string{"", "a", "b", "c"}[i%4]
		if _, err := s.session.ApplyOne(ctx, storage.Tx{Inserts: []storage.Insert{in}}); err != nil {
			return err
		}
		fmt.Println("e", id)
		claimed, err := s.claim(ctx, 2)
		if err != nil {
			return err
		}
		for _, fence := range claimed.Fences {
			switch err := s.complete(ctx, fence); {
			case err == nil:
				fmt.Println("d", fence.ID)
			case !errors.Is(err, storage.ErrLeaseLost):
				return err
			}
		}
	}
}

// powerTasks is how many tasks the process of the power cuts enqueues. It completes every third of
// them.
const powerTasks = 150

// write enqueues and completes tasks, and prints the acknowledgements.
func write(ctx context.Context, s *side) error {
	for i := range powerTasks {
		if err := s.insert(ctx, strconv.Itoa(i)); err != nil {
			return err
		}
		fmt.Printf("e %d\n", i)
		if i%3 != 0 {
			continue
		}
		claimed, err := s.claim(ctx, 1)
		if err != nil {
			return err
		}
		for _, fence := range claimed.Fences {
			if err := s.complete(ctx, fence); err != nil {
				return err
			}
			fmt.Printf("d %s\n", fence.ID)
		}
	}
	return nil
}

// ledger holds the output of processes.
type ledger struct {
	mu       sync.Mutex
	enqueued map[string]int
	done     map[string]int
	failed   []string
}

func (l *ledger) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		what, id, whole := strings.Cut(lines.Text(), " ")
		l.mu.Lock()
		switch {
		case whole && what == "e":
			l.enqueued[id]++
		case whole && what == "d":
			l.done[id]++
		default:
			l.failed = append(l.failed, lines.Text())
		}
		l.mu.Unlock()
	}
}

// acknowledged returns the number of acknowledgements that the processes printed.
func (l *ledger) acknowledged() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.enqueued) + len(l.done)
}

// start starts a process.
func (l *ledger) start(t *testing.T, action string) (*exec.Cmd, *sync.WaitGroup) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+action)
	out, err := cmd.StdoutPipe()
	must(t, err)
	errs, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	var read sync.WaitGroup
	read.Go(func() { l.read(out) })
	read.Go(func() { l.read(errs) })
	return cmd, &read
}

// TestKilledProcessesLoseNothing kills processes that share a file, one after the other, and starts
// others in their place. Every acknowledged task is there, and was completed once.
func TestKilledProcessesLoseNothing(t *testing.T) {
	path := file(t)
	s := open(t, path)
	l := &ledger{enqueued: make(map[string]int), done: make(map[string]int)}
	type process struct {
		cmd  *exec.Cmd
		read *sync.WaitGroup
	}
	var running [4]process
	for i := range running {
		running[i].cmd, running[i].read = l.start(t, "work "+path)
	}
	end := func(p process) {
		must(t, p.cmd.Process.Kill())
		p.read.Wait()
		_ = p.cmd.Wait()
	}
	for range kills {
		more := l.acknowledged() + 1 + rand.IntN(40)
		await(t, "the processes go on", func() bool { return l.acknowledged() >= more })
		i := rand.IntN(len(running))
		end(running[i])
		running[i].cmd, running[i].read = l.start(t, "work "+path)
	}
	for _, p := range running {
		end(p)
	}
	if len(l.failed) > 0 {
		t.Fatalf("processes failed: %v", l.failed)
	}
	wantLinesOfTasks(t, path)
	s.drain(t)
	for id, n := range l.enqueued {
		if state := s.state(t, id); n != 1 || state != storage.Completed {
			t.Errorf("task %s: acknowledged %d times, %q in the end", id, n, state)
		}
	}
	for id, n := range l.done {
		if n != 1 {
			t.Errorf("task %s: %d completions were acknowledged", id, n)
		}
	}
	stats, err := s.store.Stats(t.Context(), queue)
	must(t, err)
	if got := stats[0]; got.Totals.Completed != got.Completed || got.Live() != 0 || got.Totals.Enqueued != got.Completed {
		t.Errorf("the totals do not add up: %+v", got)
	}
	wantLines(t, path, 0)
	t.Logf("%d kills, %d tasks enqueued, %d completions acknowledged", kills, len(l.enqueued), len(l.done))
	wantSound(t, path)
}

// drain completes all tasks that are left.
func (s *side) drain(t *testing.T) {
	t.Helper()
	await(t, "all tasks are completed", func() bool {
		for {
			claimed, err := s.claim(t.Context(), 100)
			must(t, err)
			if len(claimed.Tasks) == 0 {
				break
			}
			for _, fence := range claimed.Fences {
				must(t, s.complete(t.Context(), fence))
			}
		}
		stats, err := s.store.Stats(t.Context(), queue)
		must(t, err)
		return stats[0].Live() == 0
	})
}

// wantSound has SQLite check a file, and compares the counts of queues with their tasks.
func wantSound(t *testing.T, path string) {
	t.Helper()
	var verdict string
	must(t, database(t, path, "").QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&verdict))
	if verdict != "ok" {
		t.Errorf("the file is damaged: %s", verdict)
	}
}
