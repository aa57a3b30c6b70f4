//go:build unix && !long

package faulttest

// full reports whether the build tag long is set; see count.
const full = false
