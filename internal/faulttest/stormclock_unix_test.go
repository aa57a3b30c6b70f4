//go:build unix && !linux

package faulttest

import "testing"

// stormServer starts a server for a storm, under a clock that cannot be moved.
func stormServer(t *testing.T, k kind) (settableClock, *server) {
	t.Helper()
	return nil, ownServer(t, k, stormOptions(k))
}
