//go:build !midge_general

package postgres

// shortWays says that claims and flushes go by their short ways where they can. The build tag
// midge_general makes programs in which none does: the long tests run with and without.
const shortWays = true
