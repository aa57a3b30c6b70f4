//go:build midge_general

package postgres

// shortWays is false for tests of the general ways; see ways.go.
const shortWays = false
