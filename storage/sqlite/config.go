package sqlite

import (
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

// Config is how a storage is opened. It names a file of the storage's own, by Path and Driver, or
// the application's database, by DB.
type Config struct {
	// Path is that of a file of the storage's own, made where there is none. Its tables are
	// migrated by Open.
	Path string
	// Driver is the name by which database/sql knows a driver for SQLite, which the application
	// has imported: "sqlite" is that of modernc.org/sqlite. It is for Path alone.
	Driver string
	// DB is the application's own database, in a file; see Migrate. The storage holds one of its
	// connections for as long as it is open and takes others for reads, so that the limit of its
	// connections, if it has one, is at least 3. Close does not close it.
	DB *sql.DB
	// Prefix begins the name of each table; default "midge_". Lower-case letters, digits and '_',
	// at most 40.
	Prefix string
	// Relaxed lets commits wait for no fsync (synchronous=NORMAL): an acknowledged task survives
	// its process, but a power cut may lose those of the last moments. By default it survives that.
	Relaxed bool
	// NoCheckpoints leaves the checkpoints of the write-ahead log to others, such as Litestream.
	// The log grows without an end where nobody makes them.
	NoCheckpoints bool
	// MinLease is the least lease that a claim or an extension gives: default 10 s, because a
	// process that is frozen while it writes, or a transaction left open, keeps all others from
	// extending theirs. A shorter one, from a second on, is for a file with one process.
	MinLease time.Duration
	// Limits bounds payloads and what is kept of dead tasks; see storage.Limits for the defaults.
	Limits storage.Limits
	// Code gives the result code of SQLite in an error of the driver's, 0 where it is none. By
	// default that of an error with a method Code() int, such as those of modernc.org/sqlite.
	Code func(error) int
	// Now is the clock, for tests of clocks that are wrong; nil means time.Now.
	Now func() time.Time
}

const (
	defaultPrefix   = "midge_"
	defaultMinLease = 10 * time.Second
	leastOpen       = 3 // connections of an application's database
	readers         = 4 // connections of the storage's own
)

var prefixPattern = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,39}$`)

// check fills what is empty, or gives an *InvalidError.
func (c *Config) check() error {
	if c.Prefix == "" {
		c.Prefix = defaultPrefix
	}
	if c.MinLease == 0 {
		c.MinLease = defaultMinLease
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Code == nil {
		c.Code = codeOf
	}
	switch {
	case (c.Path == "") == (c.DB == nil):
		return storage.Invalid("sqlite.Config", "with Path and DB both set or both empty", "one of them")
	case c.Path == ":memory:", strings.HasPrefix(c.Path, "file:"): // which would become names of files
		return storage.Invalid("Config.Path", c.Path,
			"the path of a file, such as jobs.db; storage/memory needs none")
	case c.Path != "" && c.Driver == "":
		return storage.Invalid("Config.Driver", "", "the name of a driver, such as sqlite")
	case !prefixPattern.MatchString(c.Prefix):
		return storage.Invalid("Config.Prefix", c.Prefix, "1 to 40 lower-case letters, digits and '_'")
	case c.MinLease < storage.MinLease || c.MinLease > storage.MaxDelay:
		return storage.Invalid("Config.MinLease", c.MinLease, "%v or more", storage.MinLease)
	}
	if c.DB != nil {
		if n := c.DB.Stats().MaxOpenConnections; n > 0 && n < leastOpen {
			return storage.Invalid("Config.DB", fmt.Sprintf("of at most %d connections", n), "%d or more, or no limit",
				leastOpen)
		}
	}
	return c.Limits.Check()
}

// connect opens the database, or gives the application's.
func (c *Config) connect() (db *sql.DB, own bool, err error) {
	if c.DB != nil {
		return c.DB, false, nil
	}
	path, err := filepath.Abs(c.Path)
	if err != nil {
		return nil, false, storage.Invalid("Config.Path", c.Path, "a path: %v", err)
	}
	if err := checkPath(path); err != nil {
		return nil, false, err
	}
	// A name such as a?b.db is a file's too: as a part of a URI it is no query.
	db, err = sql.Open(c.Driver, "file:"+(&url.URL{Path: filepath.ToSlash(path)}).EscapedPath())
	if err != nil {
		return nil, false, storage.Invalid("Config.Driver", c.Driver,
			"the name of a driver that is imported: %v", err)
	}
	db.SetMaxOpenConns(readers)
	db.SetMaxIdleConns(readers)
	return db, true, nil
}
