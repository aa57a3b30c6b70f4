package testserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgresOptions are the options of a PostgreSQL server. The zero value works.
type PostgresOptions struct {
	// Config are further lines of postgresql.conf, such as "max_connections = 30".
	Config []string
	// Unsafe turns fsync off, and has the data in memory if it can, for suites that test only logic and
	// never kill the server. A server has about a thousand files, and each schema a hundred.
	Unsafe bool
	// Env are further environment variables of the server's process, in the form
	// "name=value".
	Env []string
	// Own makes the data with initdb, so that the server has a system identifier of its own. The
	// data of other servers are copies, which all have the same identifier.
	Own bool
}

// PostgresServer is a private PostgreSQL process that listens on a unix socket in its own
// directory and nowhere else. Its methods may be called from several goroutines, but the
// methods that start or end the process only one at a time.
type PostgresServer struct {
	dir     string // short, because the length of a socket's path is limited
	bin     string
	account *account
	config  []string
	env     []string
	own     bool

	mu     sync.Mutex
	proc   *process
	paused bool
}

// RequirePostgres skips the test unless [EnvServers] is set. If it is set and PostgreSQL
// is not installed, the test fails.
func RequirePostgres(t testing.TB) {
	t.Helper()
	if !Enabled() {
		t.Skipf("needs a real PostgreSQL: set %s=1, or run make test", EnvServers)
	}
	if _, err := postgresBin(); err != nil {
		t.Fatalf("%s is set: %v; make test installs it", EnvServers, err)
	}
}

// Postgres starts a server for the test and stops it when the test ends. The test fails
// if the server does not start.
func Postgres(t testing.TB, options PostgresOptions) *PostgresServer {
	t.Helper()
	server, err := StartPostgres(options)
	return started(t, server, err)
}

// StartPostgres makes a fresh database in a fresh directory, starts a server on it and
// returns when it answers. The caller closes it. If this process runs as root, the server
// runs as an unprivileged user, because PostgreSQL refuses to run as root.
func StartPostgres(options PostgresOptions) (*PostgresServer, error) {
	return startPostgres(options, func(s *PostgresServer) error {
		if err := s.create(); err != nil {
			return err
		}
		return s.launch()
	})
}

// startPostgres makes a fresh directory and calls start to fill it and to launch a server
// in it.
func startPostgres(
	options PostgresOptions, start func(s *PostgresServer) error,
) (*PostgresServer, error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	owner, err := unprivileged()
	if err != nil {
		return nil, err
	}
	parent := ""
	if options.Unsafe {
		parent = inMemory()
	}
	dir, err := os.MkdirTemp(parent, "midge-pg-")
	if err != nil {
		return nil, fmt.Errorf("testserver: make data directory: %w", err)
	}
	s := &PostgresServer{
		dir: dir, bin: bin, account: owner, config: postgresConfig(dir, options), env: options.Env,
		own: options.Own,
	}
	if err = s.account.own(dir); err == nil {
		err = start(s)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func postgresConfig(dir string, options PostgresOptions) []string {
	config := []string{
		"listen_addresses = ''", "unix_socket_directories = '" + dir + "'", "max_connections = 400",
		"shared_buffers = '256MB'", "logging_collector = off", "lc_messages = 'C'",
	}
	if options.Unsafe {
		config = append(config, "fsync = off", "synchronous_commit = off", "full_page_writes = off")
	}
	return append(config, options.Config...)
}

// EnvPostgres is the environment variable that names the directory of the postgres and
// initdb to use, for tests with another version of PostgreSQL.
const EnvPostgres = "MIDGE_TEST_POSTGRES"

// postgresBin returns the directory of postgres and initdb: the directory that
// [EnvPostgres] names, else the one in PATH, else the newest version in Debian's
// directory.
func postgresBin() (string, error) {
	if dir := os.Getenv(EnvPostgres); dir != "" {
		return dir, nil
	}
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.Reverse(dirs)
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			dirs = append([]string{filepath.Dir(path)}, dirs...)
		}
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("testserver: postgres and initdb are not installed")
}

// URL is the connection URL for a client, as the superuser "midge" of the database
// "postgres". It stays the same over restarts.
func (s *PostgresServer) URL() string {
	return "postgres:///postgres?user=midge&sslmode=disable&host=" + url.QueryEscape(s.dir)
}

// Addr is the path of the socket, for a proxy in front of it.
func (s *PostgresServer) Addr() string { return filepath.Join(s.dir, ".s.PGSQL.5432") }

// Log returns everything that the server has logged since its last start.
func (s *PostgresServer) Log() string {
	log, _ := os.ReadFile(s.logPath())
	return string(log)
}

// Pid returns the process id of the running server, or of the last one that ran.
func (s *PostgresServer) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc.pid
}

// Exec runs SQL over a connection of its own, for tests that inspect or disturb a
// storage's tables without going through the storage.
func (s *PostgresServer) Exec(ctx context.Context, sql string, args ...any) error {
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		return fmt.Errorf("testserver: connect: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err = conn.Exec(ctx, sql, args...); err != nil {
		return fmt.Errorf("testserver: exec: %w", err)
	}
	return nil
}

// Stop shuts the server down cleanly, ends its clients' connections, and waits until its
// process has ended.
func (s *PostgresServer) Stop() error { return s.end(os.Interrupt) }

// Kill ends the server as a crash would, without a checkpoint and without a message to
// its clients. After a restart the server recovers from its write-ahead log.
func (s *PostgresServer) Kill() error { return s.end(syscall.SIGQUIT) }

func (s *PostgresServer) end(signal os.Signal) error {
	if err := s.Resume(); err != nil {
		return err
	}
	proc := s.running()
	if proc == nil {
		return nil
	}
	if err := proc.os.Signal(signal); err != nil && !proc.ended() {
		return fmt.Errorf("testserver: stop %d: %w", proc.pid, err)
	}
	if !poll(stopLimit, proc.ended) {
		_ = proc.kill()
		<-proc.done
		return fmt.Errorf("testserver: %d did not end in %v, killed", proc.pid, stopLimit)
	}
	return nil
}

// Restart starts the server again and returns when it answers. If the server still runs,
// it is stopped first.
func (s *PostgresServer) Restart() error {
	if err := s.Stop(); err != nil {
		return err
	}
	return s.launch()
}

// Pause freezes every process of the server: its connections stay open, and nothing
// answers. It fails on Windows.
func (s *PostgresServer) Pause() error {
	proc := s.running()
	if proc == nil {
		return errors.New("testserver: pause: the server does not run")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = true
	if err := proc.pause(); err != nil { // the parent first, so that it starts no further child
		return fmt.Errorf("testserver: pause %d: %w", proc.pid, err)
	}
	return signalChildren(proc.pid, (*process).pause)
}

// Resume lets a paused server continue. On a server that is not paused it does nothing.
func (s *PostgresServer) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.paused {
		return nil
	}
	s.paused = false
	return errors.Join(signalChildren(s.proc.pid, (*process).resume), s.proc.resume())
}

// signalChildren calls send for each child process of the process pid.
func signalChildren(pid int, send func(p *process) error) error {
	list, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return fmt.Errorf("testserver: list processes: %w", err)
	}
	var errs []error
	for line := range strings.Lines(string(list)) {
		var child, parent int
		if _, err := fmt.Sscan(line, &child, &parent); err != nil || parent != pid {
			continue
		}
		found, err := os.FindProcess(child)
		if err == nil {
			err = send(&process{pid: child, os: found})
		}
		if !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Close stops the server and deletes its directory. Closing again is harmless.
func (s *PostgresServer) Close() error {
	return errors.Join(s.Stop(), os.RemoveAll(s.dir))
}

func (s *PostgresServer) dataPath() string { return filepath.Join(s.dir, "data") }
func (s *PostgresServer) logPath() string  { return filepath.Join(s.dir, "log") }

func (s *PostgresServer) running() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || s.proc.ended() {
		return nil
	}
	return s.proc
}

// run runs a program of PostgreSQL with this input, and waits until it ends.
func (s *PostgresServer) run(input, program string, args ...string) error {
	cmd := exec.Command(filepath.Join(s.bin, program), args...)
	s.account.run(cmd)
	cmd.Dir, cmd.Stdin = s.dir, strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("testserver: %s: %w:\n%s", program, err, out)
	}
	return nil
}

// configure appends lines to the configuration. If two lines concern one setting, the
// later line counts.
func (s *PostgresServer) configure(lines []string) error {
	file, err := os.OpenFile(filepath.Join(s.dataPath(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("testserver: write configuration: %w", err)
	}
	_, err = file.WriteString(strings.Join(lines, "\n") + "\n")
	return errors.Join(err, file.Close())
}

// launch starts the process and waits until it answers.
func (s *PostgresServer) launch() error {
	log, err := os.Create(s.logPath())
	if err != nil {
		return fmt.Errorf("testserver: make log: %w", err)
	}
	cmd := exec.Command(filepath.Join(s.bin, "postgres"), "-D", s.dataPath())
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	cmd.Env = append(os.Environ(), s.env...)
	tieToParent(cmd)
	s.account.run(cmd)
	p := &process{done: make(chan struct{})}
	started := make(chan error)
	go p.own(cmd, log, started)
	if err := <-started; err != nil {
		return fmt.Errorf("testserver: start postgres: %w", err)
	}
	s.mu.Lock()
	s.proc, s.paused = p, false
	s.mu.Unlock()
	if poll(awaitLimit, func() bool { return p.ended() || s.answers() }) && !p.ended() {
		return nil
	}
	return errors.Join(fmt.Errorf("testserver: postgres does not answer; its log:\n%s", s.Log()), s.Kill())
}

// answers reports whether the server answers. It does not connect before the server has logged that it
// takes connections: the server starts a process for each, also to refuse it.
func (s *PostgresServer) answers() bool {
	if !strings.Contains(s.Log(), "database system is ready to accept") {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return s.Exec(ctx, "SELECT 1") == nil
}
