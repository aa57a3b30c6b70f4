//go:build midge_next

package postgres

// This version follows that of version.go, for the test of rolling upgrades (internal/pgfault): it
// has the same functions under another number, and changed tables.
const (
	version = 1001
	oldest  = 2
)

func laterTables() []string {
	return []string{"ALTER TABLE {schema}.tasks ADD COLUMN later int4 NOT NULL DEFAULT 0"}
}
