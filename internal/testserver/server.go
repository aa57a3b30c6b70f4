package testserver

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// redisServer is the program that a Server runs, found in PATH.
const redisServer = "redis-server"

// stopLimit is how long a server may take to end after SIGTERM before it is killed.
const stopLimit = awaitLimit / 2

// portTries is how many free ports Start tries. A program that makes no reservations may take a port
// between the check and the start.
const portTries = 10

// Options are the options of a Redis server. The zero value works.
type Options struct {
	// Config are further lines of redis.conf, such as "appendonly yes" or "maxmemory
	// 20mb". Without such a line the server persists nothing.
	Config []string
	// Dir is the data directory, which must exist. If it is empty, the server gets a fresh
	// temporary directory, which Close deletes.
	Dir string
	// Replicas adds to each master of a cluster a replica that takes over about two
	// seconds after its master has stopped answering. It has no effect on a single server.
	Replicas bool
	// Env are further environment variables of the server's process, in the form
	// "name=value".
	Env []string
}

// Server is a private redis-server process. Its methods may be called from several
// goroutines, but the methods that start or end the process only one at a time.
type Server struct {
	dir     string
	env     []string
	port    *reservation
	args    []string // arguments of the program, after its configuration
	ownsDir bool

	mu     sync.Mutex
	proc   *process // the running process, or the last one that ran
	paused bool
}

// Redis starts a server for the test and stops it when the test ends. Each config is a
// line of redis.conf. The test fails if the server does not start.
func Redis(t testing.TB, config ...string) *Server {
	t.Helper()
	server, err := Start(Options{Config: config, Dir: t.TempDir()})
	return started(t, server, err)
}

// Start starts a server and returns when it answers. The caller closes it.
func Start(options Options) (*Server, error) {
	return start(options)
}

func start(options Options, args ...string) (*Server, error) {
	server := &Server{dir: options.Dir, env: options.Env, args: args}
	if server.dir == "" {
		dir, err := os.MkdirTemp("", "midge-redis-")
		if err != nil {
			return nil, fmt.Errorf("testserver: make data directory: %w", err)
		}
		server.dir, server.ownsDir = dir, true
	}
	var err error
	for range portTries {
		server.port.release()
		if server.port, err = reservePort(); err != nil {
			break
		}
		if err = server.writeConfig(options.Config); err != nil {
			break
		}
		if err = server.launch(); !errors.Is(err, errPortTaken) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return server, nil
}

// Addr returns the address that the server listens on, such as "127.0.0.1:21034". It
// stays the same over restarts.
func (s *Server) Addr() string { return s.port.addr() }

// URL returns the address as a URL, such as "redis://127.0.0.1:21034".
func (s *Server) URL() string { return "redis://" + s.Addr() }

// Dir returns the data directory.
func (s *Server) Dir() string { return s.dir }

// Pid returns the process id of the running server, or of the last one that ran.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.pid
}

// Do sends the server one command over a connection of its own and returns the reply as
// text, like the function [Do]. It is for tests that inspect or disturb the server
// without going through a storage.
func (s *Server) Do(args ...string) (string, error) { return Do(s.Addr(), args...) }

// Stop asks the server to shut down, which lets it finish its append-only file,
// and waits until its process has ended. A stopped server stays stopped.
func (s *Server) Stop() error {
	proc := s.running()
	if proc == nil {
		return nil
	}
	if err := s.Resume(); err != nil {
		return err
	}
	if err := proc.terminate(); err != nil && !proc.ended() {
		return fmt.Errorf("testserver: stop %d: %w", proc.pid, err)
	}
	if !poll(stopLimit, proc.ended) {
		return errors.Join(
			fmt.Errorf("testserver: %d did not end in %v after SIGTERM, killed", proc.pid, stopLimit), s.Kill())
	}
	return nil
}

// Kill ends the server at once, as a crash would, and waits until its process has
// ended. Killing it again is harmless.
func (s *Server) Kill() error {
	proc := s.running()
	if proc == nil {
		return nil
	}
	if err := proc.kill(); err != nil && !proc.ended() {
		return fmt.Errorf("testserver: kill %d: %w", proc.pid, err)
	}
	<-proc.done
	s.setPaused(false)
	return nil
}

// Restart starts the server again with the same port, directory and configuration, and
// returns when it answers. If the server still runs, it is stopped first.
func (s *Server) Restart() error {
	if err := s.Stop(); err != nil {
		return err
	}
	var err error
	taken := func() bool {
		err = s.launch()
		return !errors.Is(err, errPortTaken)
	}
	poll(awaitLimit, taken)
	return err
}

// Pause freezes the process with SIGSTOP: its connections stay open, and nothing
// answers. It fails on Windows.
func (s *Server) Pause() error {
	proc := s.running()
	if proc == nil {
		return errors.New("testserver: pause: the server does not run")
	}
	if err := proc.pause(); err != nil {
		return fmt.Errorf("testserver: pause %d: %w", proc.pid, err)
	}
	s.setPaused(true)
	return nil
}

// Resume lets a paused server continue. On a server that is not paused it does nothing.
func (s *Server) Resume() error {
	s.mu.Lock()
	proc, paused := s.proc, s.paused
	s.mu.Unlock()
	if !paused {
		return nil
	}
	if err := proc.resume(); err != nil && !proc.ended() {
		return fmt.Errorf("testserver: resume %d: %w", proc.pid, err)
	}
	s.setPaused(false)
	return nil
}

// Close stops the server, deletes the data directory that Start made and leaves its port to other
// servers. Closing again is harmless.
func (s *Server) Close() error {
	err := s.Stop()
	s.port.release()
	if s.ownsDir {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}

func (s *Server) setPaused(paused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = paused
}

// running returns the process, or nil if it has ended or never started.
func (s *Server) running() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || s.proc.ended() {
		return nil
	}
	return s.proc
}

func (s *Server) configPath() string { return filepath.Join(s.dir, "redis.conf") }
func (s *Server) logPath() string    { return filepath.Join(s.dir, "redis.log") }

func (s *Server) writeConfig(extra []string) error {
	lines := append([]string{
		"bind 127.0.0.1",
		"port " + strconv.Itoa(s.port.port),
		"dir " + strconv.Quote(filepath.ToSlash(s.dir)),
		"daemonize no",
		`logfile ""`,
		`save ""`,
		"appendonly no",
		// Under a Clock that is set back, the allocator's thread would use a whole processor: it
		// waits until times by the clock that are over.
		"jemalloc-bg-thread no",
	}, extra...)
	err := os.WriteFile(s.configPath(), []byte(strings.Join(lines, "\n")+"\n"), 0o600)
	if err != nil {
		return fmt.Errorf("testserver: write configuration: %w", err)
	}
	return nil
}

// errPortTaken is the error that launch returns if another process has the port.
var errPortTaken = errors.New("testserver: the port is taken")

// launch starts the process and waits until it answers. It checks the process id of the
// answering server, because another server may have taken the port.
func (s *Server) launch() error {
	proc, err := startProcess(s.logPath(), s.env, redisServer, append([]string{s.configPath()}, s.args...)...)
	if err != nil {
		return fmt.Errorf("testserver: start %s: %w", redisServer, err)
	}
	s.mu.Lock()
	s.proc, s.paused = proc, false
	s.mu.Unlock()
	ours := "process_id:" + strconv.Itoa(proc.pid) + "\r\n"
	answers := func() bool {
		info, err := s.Do("INFO", "server")
		if err != nil || !strings.Contains(info, ours) {
			return false
		}
		pong, err := s.Do("PING") // an error while it loads its data
		return err == nil && pong == "PONG"
	}
	if poll(awaitLimit, func() bool { return proc.ended() || answers() }) && !proc.ended() {
		return nil
	}
	log, _ := os.ReadFile(s.logPath())
	if proc.ended() && bytes.Contains(log, []byte("Address already in use")) {
		return fmt.Errorf("%w: %d", errPortTaken, s.port.port)
	}
	err = fmt.Errorf("testserver: %s does not answer at %s; its log:\n%s", redisServer, s.Addr(), log)
	return errors.Join(err, s.Kill())
}
