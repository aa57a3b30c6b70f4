package faulttest

import (
	"testing"
)

// stormServer starts a server for a storm, under a clock that can be moved but on a Cluster,
// whose nodes agree by their own clocks on which of them is gone.
func stormServer(t *testing.T, k kind) (mover, *server) {
	t.Helper()
	if k == aCluster {
		return nil, ownServer(t, k, stormOptions(k))
	}
	return underClock(t, k, stormOptions(k).Config...)
}
