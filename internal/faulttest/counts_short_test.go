//go:build unix && !long

package faulttest

// full says that tests count as far as they ever do; see count.
const full = false
