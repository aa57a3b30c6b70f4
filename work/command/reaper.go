package command

import (
	"bufio"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/midgehq/midge"
)

// reaperName is the name under which a program is started again as its own reaper. Lists of processes show
// it.
const reaperName = "midge-reaper"

// The pace of a reaper.
const (
	answerWithin = 10 * time.Second      // for the start of a reaper, for a line, and for its end
	restartPause = time.Second           // before a reaper that ended is started again
	sweepPause   = time.Second           // between two searches of the processes of the system
	lastSweeps   = 100                   // how often a reaper searches for processes after the end of its worker
	lastPause    = 20 * time.Millisecond // between these searches
)

// Reaper is a process that kills the children of this process after its death. [Main] makes it.
type Reaper struct {
	mu     sync.Mutex
	worker string        // marks the processes of this worker
	files  string        // begins the paths of the files with the checkpoints of running tasks
	next   int64         // the number of the next task
	groups map[int64]int // the process groups of the tasks by number, 0 for one that is about to start
	lines  io.WriteCloser
	closed bool
	ended  chan struct{} // closed when the reaper has ended after Close
	kill   func()        // kills the process of the reaper, even a stopped process
	within time.Duration // answerWithin, and less in tests
}

// Main returns the reaper for [Config.Reaper]. It must be the first call of the program's main, before any
// flag is read and anything is opened: the reaper is the same program, started a second time under another
// name, and in that process Main does the work of the reaper and never returns. The processes of programs
// with a bound of memory begin in the same way.
func Main() *Reaper {
	if len(os.Args) == 3 && os.Args[0] == reaperName {
		ignoreSignals()
		_, _ = fmt.Fprintln(os.Stdout)
		reap(os.Args[1], os.Stdin)
		removeAll(os.Args[2])
		os.Exit(0) //nolint:forbidigo // the process is nothing but the reaper
	}
	if len(os.Args) > 3 && os.Args[0] == limiterName {
		_, _ = fmt.Fprintln(os.Stderr, limiterMain(os.Args))
		os.Exit(exitNotFound) //nolint:forbidigo // the process was to be another program
	}
	return &Reaper{groups: make(map[int64]int), within: answerWithin}
}

// Close kills the processes of tasks that still run, and ends the reaper. A program may leave it out, because
// the end of the program has the same effect.
func (r *Reaper) Close() error {
	r.mu.Lock()
	if r.closed || r.worker == "" {
		r.closed = true
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	if r.lines != nil {
		_ = r.lines.Close()
		late := time.AfterFunc(r.within, r.kill)
		defer late.Stop()
	}
	r.mu.Unlock()
	<-r.ended
	r.mu.Lock()                 // so that no number of a group is given away
	killAll(r.worker, r.groups) // a reaper that was killed has left them
	r.mu.Unlock()
	removeAll(r.files)
	return nil
}

// removeAll removes the files whose paths begin with a text.
func removeAll(files string) {
	folder, prefix := filepath.Split(files)
	left, _ := os.ReadDir(folder) // Glob would take the folder for a pattern
	for _, file := range left {
		if !strings.HasPrefix(file.Name(), prefix) {
			continue
		}
		_ = os.Remove(filepath.Join(folder, file.Name())) //nolint:gosec // this process has made these paths
	}
}

// start starts the reaper, once.
func (r *Reaper) start() (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errors.New("it was closed")
	}
	if r.worker != "" {
		return nil
	}
	folder, err := filepath.Abs(os.TempDir()) // programs may run in another folder
	if err != nil {
		return err
	}
	r.worker, r.ended = rand.Text(), make(chan struct{})
	r.files = filepath.Join(folder, "midge-work-"+r.worker+"-")
	if !reaps {
		close(r.ended)
		return nil
	}
	process, err := r.launchLocked()
	if err != nil {
		r.worker = ""
		return err
	}
	go r.watch(process, r.ended) // ends after Close, or with the program
	return nil
}

// launchLocked starts the process of the reaper and sends it the tasks that run. The mutex is held.
func (r *Reaper) launchLocked() (*exec.Cmd, error) {
	self, err := executable()
	if err != nil {
		return nil, err
	}
	// The environment is empty, so that it holds no secret, and no mark of a worker.
	process := &exec.Cmd{Path: self, Args: []string{reaperName, r.worker, r.files}, Env: []string{}}
	apart(process)
	lines, err := process.StdinPipe()
	if err != nil {
		return nil, err
	}
	ready, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, err
	}
	r.kill = func() { _ = process.Process.Kill() }
	late := time.AfterFunc(r.within, r.kill)
	_, err = ready.Read(make([]byte, 1))
	late.Stop()
	r.lines = lines
	for _, task := range slices.Sorted(maps.Keys(r.groups)) {
		r.tellLockedf("%d %d\n", task, r.groups[task])
	}
	r.next++ // a task that is over at once, so that the reaper searches for the processes of earlier ones
	if err != nil || !r.tellLockedf("%d 0\n%d\n", r.next, r.next) {
		r.lines = nil
		r.kill()
		_ = process.Wait() // closes the pipes
		err = cmp.Or(err, os.ErrClosed)
		return nil, fmt.Errorf("it does not answer, does main begin with command.Main? %w", err)
	}
	return process, nil
}

// watch starts the reaper again if it ends before Close.
func (r *Reaper) watch(process *exec.Cmd, ended chan<- struct{}) {
	defer close(ended)
	for began := time.Now(); ; began = time.Now() {
		if process != nil {
			_ = process.Wait()
		}
		r.mu.Lock()
		r.lines = nil
		pauses := !r.closed && time.Since(began) < restartPause
		r.mu.Unlock()
		if pauses {
			<-time.After(restartPause)
		}
		r.mu.Lock()
		if r.closed {
			r.mu.Unlock()
			return
		}
		process, _ = r.launchLocked() // until it succeeds, no task begins
		r.mu.Unlock()
	}
}

// begin returns the number of a new task, and the mark of its processes.
func (r *Reaper) begin() (task int64, mark string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, "", errors.New("command: the reaper was closed")
	}
	r.next++
	if !r.tellLockedf("%d 0\n", r.next) {
		err := errors.New("command: the reaper of this worker was killed, and has not started again yet")
		return 0, "", errors.Join(err, midge.Snooze(restartPause)) // the task is not to blame
	}
	r.groups[r.next] = 0
	return r.next, markOf(r.worker, r.next), nil
}

// began sends the reaper the process group of a task.
func (r *Reaper) began(task int64, group int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.groups[task] = group
	r.tellLockedf("%d %d\n", task, group)
}

// end reports to the reaper that a task is over. Its process group is empty, or has been killed.
func (r *Reaper) end(task int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.groups, task)
	r.tellLockedf("%d\n", task)
}

// tellLockedf writes a line to the reaper, and reports whether the reaper lives. The reaper reads at all
// times, so that the write waits only for a reaper that was stopped, which is then killed. watch starts the
// next reaper and sends it everything. The mutex is held.
func (r *Reaper) tellLockedf(format string, args ...any) bool {
	if r.lines == nil {
		return !reaps
	}
	late := time.AfterFunc(r.within, r.kill)
	defer late.Stop()
	if _, err := fmt.Fprintf(r.lines, format, args...); err != nil {
		r.kill()
		r.lines = nil
	}
	return r.lines != nil
}

// markName is the variable of the environment by which a process is known to belong to a task.
const markName = "MIDGE_WORKER"

func markOf(worker string, task int64) string {
	return markName + "=" + worker + "." + strconv.FormatInt(task, 10)
}

// reap is the work of the reaper. Each line is the number of a task with its process group, 0 before the
// start, or the number alone when the task is over. The end of the lines is the end of the worker.
func reap(worker string, from io.Reader) {
	lines := make(chan string)
	go func() { // ends with the worker
		defer close(lines)
		for in := bufio.NewScanner(from); in.Scan(); {
			lines <- in.Text()
		}
	}()
	groups, newest := make(map[int64]int), int64(0)
	over := func(task int64) bool {
		_, lives := groups[task]
		return !lives && task <= newest // a newer task is one of whose start the line is still to come
	}
	sweep := time.NewTimer(0)
	sweep.Stop()
	waits, last, pause := false, time.Time{}, sweepPause
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				killAll(worker, groups)
				return
			}
			number, rest, lives := strings.Cut(line, " ")
			task, _ := strconv.ParseInt(number, 10, 64)
			if lives {
				group, _ := strconv.Atoi(rest)
				groups[task], newest = group, max(newest, task)
				continue
			}
			delete(groups, task)
			if !waits {
				waits = true
				sweep.Reset(time.Until(last.Add(pause)))
			}
		case <-sweep.C:
			last = time.Now()
			waits = killMarked(worker, over) > 0         // they may have started others meanwhile
			pause = max(sweepPause, 20*time.Since(last)) // a twentieth of a processor at most
			if waits {
				sweep.Reset(pause)
			}
		}
	}
}

// killAll kills the processes of all tasks after the death of the worker.
func killAll(worker string, groups map[int64]int) {
	for _, group := range groups {
		if group > 0 {
			killGroup(group)
		}
	}
	for range lastSweeps { // a process may have started another one meanwhile
		if killMarked(worker, func(int64) bool { return true }) == 0 {
			return
		}
		<-time.After(lastPause)
	}
}
