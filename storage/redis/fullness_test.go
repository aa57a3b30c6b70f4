package redis

import (
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

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

// TestAFullRedisTakesAChangeThatFreesMemory: it removes all headers, the cost or the partition.
func TestAFullRedisTakesAChangeThatFreesMemory(t *testing.T) {
	cost, key, none := storage.Cost(2), "k", ""
	var one storage.Cost
	for i, c := range []struct {
		change storage.Change
		want   bool
	}{
		{storage.Change{Headers: map[string]string{"a": "b"}}, true},
		{storage.Change{Headers: map[string]string{}, Now: true}, false},
		{storage.Change{Cost: &cost}, true},
		{storage.Change{Cost: &one}, false},
		{storage.Change{Partition: &key}, true},
		{storage.Change{Partition: &none}, false},
		{storage.Change{Partition: &none, Encoding: "json"}, true},
	} {
		if got := needsRoom(&storage.Tx{Changes: []storage.Change{c.change}}); got != c.want {
			t.Errorf("change %d: got %v, want %v", i, got, c.want)
		}
	}
}

// TestAFullRedisTakesANewMoment: the change has the headers of the task, with another moment in midge's own.
func TestAFullRedisTakesANewMoment(t *testing.T) {
	for name, headers := range map[string]map[string]string{
		"none": nil, "a moment": {storage.DueHeader: "1h0m0s"}, "others": {"a": "b"},
	} {
		for _, ch := range []storage.Change{{Now: true}, {Delay: time.Hour}, {At: time.Unix(1e9, 0)}} {
			ch.CompleteHeaders(&storage.Task{Headers: headers})
			if needsRoom(&storage.Tx{Changes: []storage.Change{ch}}) {
				t.Errorf("headers %s: a full Redis refuses %+v", name, ch)
			}
		}
	}
}
