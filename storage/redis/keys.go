package redis

import (
	"strings"
)

// block is how many keys a queue has. Their order is that of scripts/base.lua.
const block = 19

// suffixes of a queue's keys, in order.
var suffixes = [block]string{
	"meta", "tasks", "pending", "side", "unique", "windows", "damaged", "lanes", "opened",
	"waiting", "suspects", "scheduled", "retry", "leases", "completed", "cancelled", "dead", "cursors",
	"claims",
}

// Where some of them are in a block.
const (
	metaKey    = 0
	tasksKey   = 1
	pendingKey = 2
	windowsKey = 5
	damagedKey = 6
	lanesKey   = 7
	openedKey  = 8
	waitingKey = 9
	leasesKey  = 13
	claimsKey  = 18
)

// keys names all keys under one prefix.
type keys struct {
	prefix string
	// shared keeps one set of lanes for all queues: one Redis is one atomic domain.
	// On a Cluster each queue has its own, in its slot.
	shared bool
}

// of appends the keys of a queue, all in the slot of its name.
func (k keys) of(queue string, list []string) []string {
	base := k.prefix + ":{" + queue + "}:"
	for i := range suffixes {
		list = append(list, k.key(base, i))
	}
	return list
}

// some appends those keys of a queue that are at these places of its block.
func (k keys) some(queue string, list []string, places ...int) []string {
	base := k.prefix + ":{" + queue + "}:"
	for _, at := range places {
		list = append(list, k.key(base, at))
	}
	return list
}

func (k keys) key(base string, at int) string {
	if k.shared && (at == lanesKey || at == openedKey) {
		return k.global(suffixes[at])
	}
	return base + suffixes[at]
}

// global is a key that belongs to no queue. No queue can be named "*".
func (k keys) global(suffix string) string { return k.prefix + ":{*}:" + suffix }

// channel is where the wake-ups of a queue are published.
func (k keys) channel(queue string) string { return k.prefix + ":{" + queue + "}:wake" }

// queueOf is the queue of a channel.
func (k keys) queueOf(channel string) string {
	name := strings.TrimPrefix(channel, k.prefix+":{")
	return strings.TrimSuffix(name, "}:wake")
}

// slotOf is the hash slot of a queue's keys: CRC16 (XMODEM) of its name, modulo the
// number of slots, as the Redis Cluster specification has it.
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
