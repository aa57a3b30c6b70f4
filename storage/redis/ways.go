//go:build !midge_general

package redis

// shortWays makes calls go by the short ways of their scripts if they can. The build tag
// midge_general makes it false; the long tests run with and without the tag.
const shortWays = true
