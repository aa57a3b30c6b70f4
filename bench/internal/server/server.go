// Package server starts the private servers that the systems share, and a relay that
// counts or delays what is sent to them.
package server

import (
	"context"
	"fmt"

	"github.com/midgehq/midge/bench/internal/system"
)

// Everysec is the name of Redis with an append-only file that is synced each second.
const Everysec = system.Redis + "-everysec"

// Server is where systems keep their jobs, one for all of them.
type Server interface {
	// Place is what a system opens.
	Place() system.Place
	// Pid is the server's process, the parent of any others, 0 where it has none.
	Pid() int
	// Reset forgets everything.
	Reset(ctx context.Context) error
	// Memory is how many bytes hold the jobs.
	Memory(ctx context.Context) (int64, error)
	// Describe names the server and its version.
	Describe(ctx context.Context) (string, error)
	Close() error
}

// Names lists the servers that can be started.
func Names() []string {
	return []string{system.Redis, Everysec, system.Memory, system.Postgres, system.SQLite}
}

// Start starts a server of a name.
func Start(name string) (Server, error) {
	switch name {
	case system.Redis:
		return startRedis("appendonly no")
	case Everysec:
		return startRedis("appendonly yes", "appendfsync everysec")
	case system.Memory:
		return none{}, nil
	case system.Postgres:
		return startPostgres()
	case system.SQLite:
		return startSQLite()
	}
	return nil, fmt.Errorf("no storage is named %q, only %q", name, Names())
}

// none is the server of the memory storage: each process has its own.
type none struct{}

func (none) Place() system.Place                      { return system.Place{Storage: system.Memory} }
func (none) Pid() int                                 { return 0 }
func (none) Reset(context.Context) error              { return nil }
func (none) Memory(context.Context) (int64, error)    { return 0, nil }
func (none) Describe(context.Context) (string, error) { return "memory of the process", nil }
func (none) Close() error                             { return nil }
