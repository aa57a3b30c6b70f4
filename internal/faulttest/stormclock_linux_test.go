package faulttest

import (
	"testing"
)

// stormServer starts a server for a storm, and returns its clock. The clock is nil for a
// Cluster, whose nodes use their own clocks to agree on which of them has failed, and for a
// file, which has no clock.
func stormServer(t *testing.T, k kind) (settableClock, *server) {
	t.Helper()
	if k == aCluster || k == oneFile {
		return nil, ownServer(t, k, stormOptions(k))
	}
	return underClock(t, k, stormOptions(k).Config...)
}
