//go:build !midge_general

package redis

// shortWays says that calls go by the short ways of their scripts where they can. The build tag
// midge_general makes programs whose calls do not: the long tests run with and without.
const shortWays = true
