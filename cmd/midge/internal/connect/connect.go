// Package connect finds and opens the storage of a command. A flag, the environment, or a profile of the
// user's configuration names the storage.
package connect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/open"
	"github.com/midgehq/midge/storage/postgres"
	"github.com/midgehq/midge/storage/redis"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

// The environment variables that name a storage.
const (
	EnvStorage = "MIDGE_STORAGE" // the URL of a storage
	EnvProfile = "MIDGE_PROFILE" // the name of a profile
)

// Choice holds the flags that name a storage. A flag that was not given is empty.
type Choice struct {
	Storage string // a URL
	Profile string // the name of a profile
	Prefix  string // the prefix of the keys in Redis
	Schema  string // the schema of the tables in PostgreSQL
}

// Target is a storage that was chosen.
type Target struct {
	// Profile is the name of the storage in the configuration, "" if it has none.
	Profile string
	// From names the source of the choice, such as "MIDGE_STORAGE".
	From string
	// Warning is a warning for the operator, "" for none.
	Warning string
	// Accept lists the findings of doctor that the profile accepts, one per line.
	Accept string

	url, prefix, schema string
}

// NoStorageError means that no flag, no variable and no profile names a storage. File is the configuration.
type NoStorageError struct{ File string }

// Error describes how to name a storage.
func (e *NoStorageError) Error() string {
	return "no storage was named: give --storage URL, set " + EnvStorage + ", or write a profile into " + e.File
}

// Choose finds the storage that flags, environment and configuration name, in this order: --storage,
// --profile, MIDGE_STORAGE, MIDGE_PROFILE, and the default profile of the configuration. env returns a
// variable of the environment. The error is a *[NoStorageError] if nothing names a storage.
func Choose(c Choice, env func(string) string) (Target, error) {
	if c.Storage != "" && c.Profile != "" {
		return Target{}, storage.Invalid("flags", "--storage and --profile", "one of them")
	}
	target, err := chosen(c, env)
	if err != nil {
		return Target{}, err
	}
	if c.Prefix != "" {
		target.prefix = c.Prefix
	}
	if c.Schema != "" {
		target.schema = c.Schema
	}
	return target, target.check()
}

func chosen(c Choice, env func(string) string) (Target, error) {
	switch {
	case c.Storage != "":
		return Target{From: "--storage", url: c.Storage}, nil
	case c.Profile != "":
		return fromProfile(c.Profile, "--profile", env)
	case env(EnvStorage) != "":
		return Target{From: EnvStorage, url: env(EnvStorage)}, nil
	case env(EnvProfile) != "":
		return fromProfile(env(EnvProfile), EnvProfile, env)
	}
	return fromProfile("", "the default profile", env)
}

// check returns an error for a prefix or a schema that does not fit the storage. It runs before any
// connection is made.
func (t Target) check() error {
	switch {
	case t.prefix != "" && !t.redis():
		return storage.Invalid("prefix", t.prefix,
			"none: only keys of Redis have a prefix, and the storage is %s", Redacted(t.url))
	case t.schema != "" && !t.postgres():
		return storage.Invalid("schema", t.schema, "none: only PostgreSQL has schemas, and the storage is %s",
			Redacted(t.url))
	}
	return nil
}

// Memory reports whether the storage lives in the process that opens it. No other process can see such a
// storage.
func (t Target) Memory() bool { return t.scheme() == "memory" }

// Postgres returns the configuration of a storage on PostgreSQL, and whether the target is one.
func (t Target) Postgres() (postgres.Config, bool) {
	return postgres.Config{URL: t.url, Schema: t.schema, NoListener: true}, t.postgres()
}

// SQLite returns the path of a storage on SQLite, and whether the target is one.
func (t Target) SQLite() (path string, ok bool) {
	return strings.TrimPrefix(strings.TrimPrefix(t.url, "sqlite:"), "//"), t.scheme() == "sqlite"
}

// Is reports whether a text is the URL of the storage, so that it may hold its password.
func (t Target) Is(text string) bool { return t.url != "" && text == t.url }

func (t Target) scheme() string {
	scheme, _, _ := strings.Cut(t.url, ":")
	return scheme
}

func (t Target) redis() bool {
	return strings.HasPrefix(t.scheme(), "redis") || t.scheme() == "unix"
}

func (t Target) postgres() bool { return t.scheme() == "postgres" || t.scheme() == "postgresql" }

// Open opens the storage; the caller closes it. Unlike the storages themselves, Open creates no missing
// file, because the path of a missing file is most likely mistyped. No error shows a password.
func (t Target) Open(ctx context.Context) (storage.Storage, error) {
	if path, ok := t.SQLite(); ok {
		if path == "" {
			return nil, storage.Invalid("storage", t.Address(), "a path behind sqlite:, such as sqlite:jobs.db")
		}
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, storage.Invalid("storage", t.Address(), "a file that is there; midge migrate makes one")
		}
	}
	if info, err := os.Stat(t.url); err == nil && info.Mode().IsRegular() { // a file, so no password
		return nil, storage.Invalid("storage", t.url, "a URL: sqlite:%s", t.url)
	}
	switch {
	case t.prefix != "":
		return opened(redis.Open(ctx, redis.Config{URL: t.url, Prefix: t.prefix}))
	case t.postgres():
		cfg, _ := t.Postgres()
		return opened(postgres.Open(ctx, cfg))
	}
	return open.Open(ctx, t.url, modernc.URL{})
}

// opened returns nil on an error, and not an interface that holds a nil pointer.
func opened[S storage.Storage](store S, err error) (storage.Storage, error) {
	if err != nil {
		return nil, err
	}
	return store, nil
}

// String names the target for the user who is about to change it, such as "production,
// redis://host:6379/0".
func (t Target) String() string {
	if t.Profile == "" {
		return t.Address()
	}
	return t.Profile + ", " + t.Address()
}

// Address returns the URL without credentials and options, followed by the prefix or the schema if one was
// chosen.
func (t Target) Address() string {
	shown := Redacted(t.url)
	if t.prefix != "" {
		shown += fmt.Sprintf(" (prefix %s)", t.prefix)
	}
	if t.schema != "" {
		shown += fmt.Sprintf(" (schema %s)", t.schema)
	}
	return storage.PrintableText(shown, 300)
}

// Redacted returns only the scheme, the hosts and the path of a URL. The part before the last '@' may be a
// password with characters that should have been encoded, such as '?' and '#', so it is removed before the
// options are. If options may stand in it, the '@' may be in another password: only the scheme is shown then.
func Redacted(text string) string {
	scheme, rest, ok := strings.Cut(text, ":")
	if u, err := url.Parse(scheme + ":"); !ok || err != nil || u.Scheme == "" {
		return "***" // a text without a scheme may be or contain a password: "host=db password=x:y"
	}
	if scheme == "sqlite" || scheme == "memory" {
		return text
	}
	rest = strings.TrimPrefix(rest, "//")
	at := strings.LastIndexByte(rest, '@')
	_, options, _ := strings.Cut(rest[:max(at, 0)], "?")
	switch {
	case strings.Contains(options, "="):
		rest = "***"
	case at >= 0:
		rest = rest[at+1:]
	case strings.HasPrefix(rest, ":"):
		rest = "***" // a password without its '@'
	}
	if end := strings.IndexAny(rest, "?#"); end >= 0 {
		rest = rest[:end]
	}
	return scheme + "://" + rest
}
