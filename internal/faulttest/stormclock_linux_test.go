package faulttest

import (
	"testing"
)

// stormServer starts a server for a storm, under a clock that can be moved but on a Cluster,
// whose nodes agree by their own clocks on which of them is gone, and on a file, which has none.
func stormServer(t *testing.T, k kind) (mover, *server) {
	t.Helper()
	if k == aCluster || k == oneFile {
		return nil, ownServer(t, k, stormOptions(k))
	}
	return underClock(t, k, stormOptions(k).Config...)
}
