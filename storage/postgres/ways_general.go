//go:build midge_general

package postgres

// shortWays is that of ways.go, for tests of the general ways.
const shortWays = false
