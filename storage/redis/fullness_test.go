package redis

import "testing"

// TestARedisThatEvictsNothingOfMidgeIsFull: with a policy that evicts only keys with a time to live, a write is
// refused although the policy is no noeviction.
func TestARedisThatEvictsNothingOfMidgeIsFull(t *testing.T) {
	for _, c := range []struct {
		policy        string
		refused, want bool
	}{
		{"noeviction", false, true},
		{"noeviction", true, true},
		{"volatile-lru", false, false},
		{"volatile-lru", true, true},
		{"allkeys-lru", true, false},
	} {
		info := map[string]string{"maxmemory": "1000000", "used_memory": "1000001", "maxmemory_policy": c.policy}
		if why, told := fullness(info, c.refused); (why != "") != c.want || !told {
			t.Errorf("%s, refused %v: got %q, %v; want full to be %v", c.policy, c.refused, why, told, c.want)
		}
	}
}
