package testserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// bouncer is the program that a PgBouncer runs. Debian installs it outside PATH.
const bouncer = "pgbouncer"

// bouncerPort is the port number in the name of its unix socket. PgBouncer listens on no
// TCP port.
const bouncerPort = "5432"

// PgBouncer is a private pgbouncer process in front of a PostgreSQL server. It listens
// only on a unix socket in its own directory. Unless its configuration sets another mode, it pools
// transactions: each transaction of a client may run on another connection to the server.
type PgBouncer struct {
	dir  string
	proc *process
}

// PooledSessions are lines of a pgbouncer's configuration. With these it pools sessions: a session of the
// server serves one client after the other, and keeps the code and the plans that PostgreSQL made for it. All
// else that a client leaves in a session is reset.
var PooledSessions = []string{
	"pool_mode = session",
	"server_round_robin = 0",
	"default_pool_size = 100",
	"server_reset_query = DEALLOCATE ALL; UNLISTEN *; RESET ALL; SELECT pg_advisory_unlock_all()",
}

// Bouncer is [StartBouncer] for a test, which stops it when it ends.
func Bouncer(t testing.TB, server *PostgresServer, config ...string) *PgBouncer {
	t.Helper()
	b, err := StartBouncer(server, config...)
	return started(t, b, err)
}

// URL is the connection URL for a client, like [PostgresServer.URL].
func (b *PgBouncer) URL() string {
	return "postgres:///postgres?user=midge&sslmode=disable&host=" + url.QueryEscape(b.dir)
}

// StartBouncer starts a pgbouncer in front of a server. The lines of config, such as
// "default_pool_size = 3", are added to its configuration. The last line of a setting counts.
func StartBouncer(server *PostgresServer, config ...string) (*PgBouncer, error) {
	path, err := exec.LookPath(bouncer)
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/" + bouncer)
	}
	if err != nil {
		return nil, fmt.Errorf("testserver: %w; make test installs it", err)
	}
	owner, err := unprivileged()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "midge-pb-")
	if err != nil {
		return nil, fmt.Errorf("testserver: make directory: %w", err)
	}
	b := &PgBouncer{dir: dir}
	if err = b.configure(server, config); err == nil {
		err = owner.own(dir)
	}
	if err == nil {
		err = b.launch(owner, path)
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *PgBouncer) configPath() string { return filepath.Join(b.dir, "pgbouncer.ini") }
func (b *PgBouncer) usersPath() string  { return filepath.Join(b.dir, "users.txt") }

func (b *PgBouncer) configure(server *PostgresServer, extra []string) error {
	lines := append([]string{
		"[databases]",
		"postgres = host=" + server.dir + " port=" + bouncerPort + " user=midge",
		"[pgbouncer]",
		"listen_addr =",
		"listen_port = " + bouncerPort,
		"unix_socket_dir = " + b.dir,
		"auth_type = trust",
		"auth_file = " + b.usersPath(),
		"pool_mode = transaction",
		"server_round_robin = 1", // another connection for each transaction
		"max_client_conn = 1000",
		"default_pool_size = 20",
		"log_connections = 0",
		"log_disconnections = 0",
	}, extra...)
	// Everyone may read the files: another user's process needs them, and they hold no
	// secret.
	err := os.WriteFile(b.configPath(), []byte(strings.Join(lines, "\n")+"\n"), 0o644)
	if err == nil {
		err = os.WriteFile(b.usersPath(), []byte("\"midge\" \"\"\n"), 0o644)
	}
	if err != nil {
		return fmt.Errorf("testserver: write configuration: %w", err)
	}
	return nil
}

// launch starts the process and waits until it answers.
func (b *PgBouncer) launch(owner *account, path string) error {
	log, err := os.Create(filepath.Join(b.dir, "log"))
	if err != nil {
		return fmt.Errorf("testserver: make log: %w", err)
	}
	cmd := exec.Command(path, b.configPath())
	cmd.Dir, cmd.Stdout, cmd.Stderr = b.dir, log, log
	tieToParent(cmd)
	owner.run(cmd)
	p := &process{done: make(chan struct{})}
	started := make(chan error)
	go p.own(cmd, log, started)
	if err := <-started; err != nil {
		return fmt.Errorf("testserver: start %s: %w", bouncer, err)
	}
	b.proc = p
	if poll(awaitLimit, func() bool { return p.ended() || b.answers() }) && !p.ended() {
		return nil
	}
	text, _ := os.ReadFile(log.Name())
	return fmt.Errorf("testserver: %s does not answer; its log:\n%s", bouncer, text)
}

func (b *PgBouncer) answers() bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, b.URL())
	if err != nil {
		return false
	}
	return conn.Close(ctx) == nil
}

// Close kills the process, which has no state to save, and deletes its directory. If the process has ended by
// itself, the error has its end and its log.
func (b *PgBouncer) Close() (err error) {
	switch {
	case b.proc == nil:
	case b.proc.ended():
		text, _ := os.ReadFile(filepath.Join(b.dir, "log"))
		err = fmt.Errorf("testserver: %s has ended by itself (%w); the end of its log:\n%s",
			bouncer, cmp.Or(b.proc.how, errors.New("without an error")), text[max(len(text)-4096, 0):])
	default:
		_ = b.proc.kill()
		<-b.proc.done
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}
