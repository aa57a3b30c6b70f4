//go:build !midge_next

package postgres

// version is the version of this client and of its functions in the database. It grows with the first
// change, after a release, of a function or of what Go code asks of one. An older client goes on with
// its own functions: oldest is the oldest version whose functions work correctly on the tables of
// this version, beside its functions.
const (
	version = 2
	oldest  = 2
)

// laterTables returns the migrations that are in no file.
func laterTables() []string { return nil }
