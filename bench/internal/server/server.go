// Package server starts the private servers that the systems share, and a relay that
// counts or delays commands.
package server

import (
	"context"
	"fmt"

	"github.com/midgehq/midge/bench/internal/system"
)

// Everysec is the name of Redis with an append-only file that is synced each second.
const Everysec = system.Redis + "-everysec"

// Server is the server on which all systems keep their jobs.
type Server interface {
	// Place returns the place that a system opens.
	Place() system.Place
	// Pid returns the id of the server's process, which is the parent of its other
	// processes, or 0 if there is none.
	Pid() int
	// Reset deletes all data.
	Reset(ctx context.Context) error
	// Memory returns how many bytes the jobs take.
	Memory(ctx context.Context) (int64, error)
	// Describe returns the server's name and version.
	Describe(ctx context.Context) (string, error)
	Close() error
}

// Names returns the names of the servers that can be started.
func Names() []string {
	return []string{system.Redis, Everysec, system.Memory, system.Postgres, system.SQLite}
}

// Start starts the server with a name.
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

// none stands for the server of the memory storage: each process has a storage of its
// own.
type none struct{}

func (none) Place() system.Place                      { return system.Place{Storage: system.Memory} }
func (none) Pid() int                                 { return 0 }
func (none) Reset(context.Context) error              { return nil }
func (none) Memory(context.Context) (int64, error)    { return 0, nil }
func (none) Describe(context.Context) (string, error) { return "memory of the process", nil }
func (none) Close() error                             { return nil }
