//go:build !midge_next

package postgres

// version is that of this client and of its functions in the database. It grows with the first
// change of a function, or of what Go code asks of one, after a release. An older client goes on
// with its own functions: oldest is the oldest version whose functions do right on the tables of
// this one, beside its functions.
const (
	version = 1
	oldest  = 1
)

// laterTables are migrations that no file holds.
func laterTables() []string { return nil }
