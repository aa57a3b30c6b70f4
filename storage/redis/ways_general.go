//go:build midge_general

package redis

// shortWays is false here, for tests of the general ways; see ways.go.
const shortWays = false
