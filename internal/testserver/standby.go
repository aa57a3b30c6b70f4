package testserver

import (
	"fmt"
	"os"
	"testing"
)

// Standby starts a server that follows a primary, and stops it when the test ends. The
// test fails if the server does not start.
func Standby(t testing.TB, primary *PostgresServer) *PostgresServer {
	t.Helper()
	server, err := startPostgres(PostgresOptions{}, func(s *PostgresServer) error { return s.Follow(primary) })
	return started(t, server, err)
}

// Follow makes the server a standby of a primary, at the standby's own address. It
// stops the server, replaces its data and its configuration by a copy of the primary's,
// and starts it again. The replication is asynchronous unless the primary's
// configuration sets another mode.
func (s *PostgresServer) Follow(primary *PostgresServer) error {
	if err := s.Stop(); err != nil {
		return err
	}
	if err := os.RemoveAll(s.dataPath()); err != nil {
		return fmt.Errorf("testserver: delete data: %w", err)
	}
	err := s.run("", "pg_basebackup", "--pgdata", s.dataPath(), "--dbname", primary.URL(), "--write-recovery-conf",
		"--wal-method=stream", "--checkpoint=fast", "--no-sync")
	if err == nil {
		err = s.configure(postgresConfig(s.dir, PostgresOptions{}))
	}
	if err != nil {
		return err
	}
	return s.launch()
}
