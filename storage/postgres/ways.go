//go:build !midge_general

package postgres

// shortWays lets claims and flushes go the short ways if they can. The build tag midge_general
// turns the short ways off; the long tests run with the tag and without it.
const shortWays = true
