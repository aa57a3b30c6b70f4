package redis

import (
	"strings"
	"sync"

	"github.com/midgehq/midge/internal/states"
)

// block is how many keys a queue has.
const block = 24

// suffixes are the suffixes of a queue's keys, in the order in which the scripts take them. The scripts
// name the places of the keys in KEYS by these words in capitals.
var suffixes = [block]string{
	"meta", "tasks", "pending", "side", "unique", "windows", "damaged", "lanes", "opened",
	"waiting", "suspects", "scheduled", "retry", "leases", "completed", "cancelled", "dead", "cursors",
	"claims", "line", "voids", "lines", "idle", "ring",
}

// sets are the sorted sets of the states that the scripts know, as suffixes of keys. To the scripts, tasks in
// the line of a partition have the state of declined ones: the name of their line shows which they are.
var sets = map[states.Number]string{
	states.Waiting: "waiting", states.Suspect: "suspects", states.Declined: "lines", states.Pending: "leases",
	states.Scheduled: "scheduled", states.Retry: "retry", states.Completed: "completed",
	states.Cancelled: "cancelled", states.Dead: "dead", states.Cursor: "cursors",
}

// The indexes of some suffixes.
const (
	metaKey    = 0
	tasksKey   = 1
	pendingKey = 2
	sideKey    = 3
	lanesKey   = 7
	openedKey  = 8
	waitingKey = 9
	leasesKey  = 13
	claimsKey  = 18
	lineKey    = 19
	idleKey    = 22
	ringKey    = 23
)

// keys names all keys under one prefix.
type keys struct {
	prefix string
	// shared has all queues use one set of lanes, because any queues of one Redis can share
	// an atomic step. On a Cluster each queue has lanes of its own, in its slot.
	shared bool

	mu    sync.RWMutex // guards known
	known map[string]*[block]any
}

// knownMost is the number of queues whose keys are cached, ready to be sent: 2 KB each. A dashboard reads
// all queues each second.
const knownMost = 5000

// of appends the keys of a queue, all in the slot of its name, to list.
func (k *keys) of(queue string, list []any) []any {
	return append(list, k.block(queue)[:]...)
}

// some appends the keys of a queue at these places of its block to list, or all of them if places is
// nil.
func (k *keys) some(queue string, list []any, places []int) []any {
	all := k.block(queue)
	if places == nil {
		return append(list, all[:]...)
	}
	for _, at := range places {
		list = append(list, all[at])
	}
	return list
}

func (k *keys) block(queue string) *[block]any {
	k.mu.RLock()
	all := k.known[queue]
	k.mu.RUnlock()
	if all != nil {
		return all
	}
	all = new([block]any)
	for at := range all {
		all[at] = k.key(queue, at)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.known) >= knownMost || k.known == nil {
		k.known = make(map[string]*[block]any)
	}
	k.known[queue] = all
	return all
}

// key returns the key of a queue at a place of its block.
func (k *keys) key(queue string, at int) string {
	if k.shared && (at == lanesKey || at == openedKey) {
		return k.global(suffixes[at])
	}
	return k.prefix + ":{" + queue + "}:" + suffixes[at]
}

// global returns a key that belongs to no queue. No queue can be named "*".
func (k *keys) global(suffix string) string { return k.prefix + ":{*}:" + suffix }

// channel returns the channel on which all processes hear news and alerts of a queue.
func (k *keys) channel(queue string) string { return k.prefix + ":{" + queue + "}:wake" }

// channels returns all channels on which a process hears of a queue, the channel of its own work included.
func (k *keys) channels(queue, process string) []string {
	return []string{k.channel(queue), k.channel(queue) + ":" + process}
}

// queueOf returns the queue of a channel.
func (k *keys) queueOf(channel string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(channel, k.prefix+":{"), "}:wake")
	return name
}

// slotOf returns the hash slot of a queue's keys: CRC16 (XMODEM) of its name, modulo the
// number of slots, as the Redis Cluster specification defines it.
func slotOf(queue string) int {
	var crc uint16
	for i := range len(queue) {
		crc ^= uint16(queue[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % 16384)
}
