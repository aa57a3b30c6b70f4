package redis

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// FuzzStored reads arbitrary values of Redis other than records: nothing may panic.
func FuzzStored(f *testing.F) {
	f.Add("", "", "")
	f.Add("\x00", "\x02no\x00\x10abcdefghijklmnfxy", strings.Repeat("t", fenceSize)+"\x03runner")
	f.Add("\x01", "\xff", "short")
	f.Fuzz(func(t *testing.T, record, history, held string) {
		var task storage.Task
		readHistory(history, &task)
		if _, err := readLease(held); err == nil && len(held) <= fenceSize {
			t.Errorf("a lease of %d bytes was read", len(held))
		}
		s := &Storage{}
		for _, letter := range "wlzpsrcxdu?" {
			v := values([]any{string(letter), "17", record, held, history, "stack", nil, nil, nil, record})
			_, _ = s.readTask(storage.Ref{Queue: "q", ID: "a"}, v)
		}
	})
}

// FuzzOutcome reads arbitrary outcomes of a call, as a lane remembers them, for Txs of each kind.
func FuzzOutcome(f *testing.F) {
	f.Add("NA1234567*w")
	f.Add("RA1234567KwV1w7654321E\x01w7654321\x02id")
	f.Add("NA1234567R\x00\x01u\x00\x01\x02idR\x00\x02s\x00\x011234567b\x00\x01d")
	f.Add("E")
	f.Fuzz(func(_ *testing.T, text string) {
		ref := storage.Ref{Queue: "q", ID: "a"}
		txs := []storage.Tx{
			{Inserts: []storage.Insert{{Ref: ref}}},
			{Settles: []storage.Settle{{Fence: storage.Fence{Ref: ref}}}},
			{Changes: []storage.Change{{Ref: ref}}},
			{Deletes: []storage.Delete{{Ref: ref}}, Depends: []storage.Depend{{Ref: ref}}},
			{},
		}
		for i := range txs {
			applied := make([]storage.Applied, len(txs))
			p := &part{outcome: text, units: []unit{{[]int{i}}, {[]int{0, 1, 2, 3, 4}}}}
			_ = p.read(txs, applied)
		}
	})
}

// FuzzClaimed reads arbitrary replies to a claim, which contain bytes as they are stored.
func FuzzClaimed(f *testing.F) {
	record, _ := newRecord(&storage.Insert{Kind: "job", Encoding: "json", Payload: []byte("{}")}, nil)
	f.Add(string(record), "a", string([]byte{0, 0, 0, byte(len(record))}), "")
	f.Add("", "a,b", "\x00\x00\x00\x01", "!a,b")
	f.Add("17", "", "", "f")
	f.Fuzz(func(_ *testing.T, text, ids, bytes, last string) {
		s := &Storage{}
		req := &storage.ClaimRequest{Token: storage.NewToken(), Runner: "r", Lease: time.Minute, Start: 1, Ahead: 1}
		a := ask{group: &group{queues: []storage.ClaimQueue{{Name: "q"}}}, most: 2, start: 1}
		numbers := strings.Repeat("17", 24) + "0001mtcsz;" + fmt.Sprintf("0001%08d", len(ids))
		rare := []any{int64(0), text, []any{ids, bytes, "odd"}, last}
		for _, reply := range []any{
			text, "N" + text, "N" + numbers + ids + bytes + text, "R" + numbers + ids + bytes,
			[]any{"N" + numbers + ids + bytes, text, rare},
			[]any{"R" + numbers + ids, rare, text},
			[]any{},
			[]any{rare},
			int64(17),
		} {
			_, _ = s.readClaim(req, a, reply)
		}
	})
}
