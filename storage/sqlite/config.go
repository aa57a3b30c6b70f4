package sqlite

import (
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/midgehq/midge/internal/private"
	"github.com/midgehq/midge/storage"
)

// Config is the configuration of a storage. It names a file of the storage's own, by Path and Driver, or the
// application's database, by DB.
type Config struct {
	// Path is the path of a file of the storage's own. Open makes the file if there is none, for its
	// user alone, and migrates its tables.
	Path string
	// Driver is the name of a driver for SQLite in database/sql, which the application
	// has imported: "sqlite" for modernc.org/sqlite. It is used only with Path.
	Driver string
	// DB is the application's own database, in a file; see Migrate. The storage holds one of its
	// connections for as long as it is open, and takes others for reads. If the database limits its
	// connections, the limit must be at least 3. Close does not close the database.
	DB *sql.DB
	// Prefix begins the name of each table; default "midge_". It has lower-case letters, digits
	// and '_', at most 40.
	Prefix string
	// Relaxed makes commits wait for no fsync (synchronous=NORMAL): an acknowledged task survives its
	// process, but a power cut may lose the tasks of the last moments. By default they survive a
	// power cut.
	Relaxed bool
	// NoCheckpoints leaves the checkpoints of the write-ahead log to other programs, such as
	// Litestream. Without checkpoints the log grows without bound.
	NoCheckpoints bool
	// MinLease is the shortest lease that a claim or an extension sets; default 10 s, because a
	// process that is frozen while it writes, or a transaction left open, keeps all others from
	// extending their leases. A shorter lease, of a second or more, is for a file with one
	// process.
	MinLease time.Duration
	// Limits bounds payloads and the dead tasks that are kept; see storage.Limits for the defaults.
	Limits storage.Limits
	// Code returns the result code of SQLite in an error of the driver's, 0 for any other error. By
	// default it is the result of the error's method Code() int, which errors of modernc.org/sqlite
	// have.
	Code func(error) int
	// Now is the clock, for tests of clocks that are wrong; nil means time.Now.
	Now func() time.Time
}

const (
	defaultPrefix   = "midge_"
	defaultMinLease = 10 * time.Second
	leastOpen       = 3 // the least limit of an application's database
	readers         = 4 // the connections of the storage's own database
)

var prefixPattern = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,39}$`)

// check fills in defaults, and returns an *InvalidError for a bad value.
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
	case c.Path == "" && c.DB == nil:
		return storage.Invalid("Config.Path", "", "the path of a file, such as jobs.db, or a DB")
	case c.Path != "" && c.DB != nil:
		return storage.Invalid("sqlite.Config", "with Path and DB", "one of them")
	case c.Path == ":memory:", strings.HasPrefix(c.Path, "file:"): // they would become names of files
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

// connect opens the database, or returns the application's.
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
	// A file may have a name such as a?b.db. Escaped, its ? begins no query in the URI.
	db, err = sql.Open(c.Driver, "file:"+(&url.URL{Path: filepath.ToSlash(path)}).EscapedPath())
	if err != nil {
		return nil, false, storage.Invalid("Config.Driver", c.Driver,
			"the name of a driver that is imported: %v", err)
	}
	private.Make(path) // SQLite would let others read the file; its log has the permissions of the file
	db.SetMaxOpenConns(readers)
	db.SetMaxIdleConns(readers)
	return db, true, nil
}
