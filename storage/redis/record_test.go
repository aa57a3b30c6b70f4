package redis

import (
	"bytes"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// full is an insert that uses every part of a record.
func full() storage.Insert {
	return storage.Insert{
		Ref: storage.Ref{Queue: "q", ID: "cursor.a"}, Kind: "send_welcome", Encoding: "msgpack",
		Payload: []byte("payload"), Headers: map[string]string{"b": "2", "a": "", "": "x"},
		Priority: -9, MaxRetries: 9999, CrashLimit: 9999, Timeout: time.Hour + time.Microsecond,
		Keep:   storage.Keep{For: storage.MaxDelay, UntilRead: true},
		Unique: storage.Unique{Key: strings.Repeat("k", storage.MaxName), Mode: storage.UniqueWindow, For: time.Second},
		Cursor: &storage.Cursor{
			Next: time.UnixMicro(1 << 50).UTC(), Last: time.UnixMicro(1).UTC(), Declaration: `{"spec":"every 1h"}`,
		},
		Cost: storage.MaxCost,
	}
}

// wantTask returns the task that readRecord has to return for the record of an insert.
func wantTask(in storage.Insert) storage.Task {
	t := storage.Task{
		Kind: in.Kind, Encoding: in.Encoding, Payload: in.Payload, Headers: in.Headers, Priority: in.Priority,
		MaxRetries: in.MaxRetries, CrashLimit: in.CrashLimit, Timeout: in.Timeout, Keep: in.Keep,
		Unique: in.Unique, Cursor: in.Cursor, Cost: in.Cost, Created: time.UnixMicro(0).UTC(),
	}
	if len(t.Payload) == 0 {
		t.Payload = nil
	}
	if len(t.Headers) == 0 {
		t.Headers = nil
	}
	return t
}

func TestRecordReadsAsItWasWritten(t *testing.T) {
	ins := map[string]storage.Insert{
		"full":    full(),
		"least":   {Kind: "k", Encoding: "e", CrashLimit: 1},
		"json":    {Kind: "k", Encoding: "json", CrashLimit: 3, Payload: []byte("{}")},
		"large":   {Kind: "k", Encoding: "e", CrashLimit: 1, Payload: make([]byte, largePayload+1)},
		"border":  {Kind: "k", Encoding: "e", CrashLimit: 1, Payload: make([]byte, largePayload)},
		"headers": {Kind: "k", Encoding: "e", CrashLimit: 1, Headers: map[string]string{"h": strings.Repeat("v", 65535)}},
		"life": {
			Kind: "k", Encoding: "e", CrashLimit: 1,
			Unique: storage.Unique{Key: "key", Mode: storage.UniqueLife},
		},
		"cost":    {Kind: "k", Encoding: "e", CrashLimit: 1, Cost: 300, Timeout: time.Minute},
		"cost 1":  {Kind: "k", Encoding: "e", CrashLimit: 1, Cost: 1, Keep: storage.Keep{For: time.Minute}},
		"no cost": {Kind: "k", Encoding: "e", CrashLimit: 1, Cost: storage.NoCost, Payload: make([]byte, largePayload+1)},
	}
	for name, in := range ins {
		record, body := newRecord(&in, nil)
		if (len(body) > 0) != (len(in.Payload) > largePayload) {
			t.Errorf("%s: body of %d bytes for a payload of %d", name, len(body), len(in.Payload))
		}
		var got storage.Task
		if err := readRecord(string(record)+string(body), &got); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if want := wantTask(in); !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", name, got, want)
		}
	}
}

func TestRecordOfAPlainTaskIsSmall(t *testing.T) {
	record, _ := newRecord(&storage.Insert{
		Kind: "send_welcome", Encoding: "msgpack", Payload: make([]byte, 64), MaxRetries: 20, CrashLimit: 3,
	}, nil)
	if len(record) > 112 {
		t.Errorf("record: got %d bytes, want at most 112: 64 of payload, 48 of all else", len(record))
	}
}

func TestRecordCutShortIsDamaged(t *testing.T) {
	in := full()
	record, _ := newRecord(&in, nil)
	for n := range record {
		if err := readRecord(string(record[:n]), &storage.Task{}); err == nil {
			t.Errorf("the first %d of %d bytes: got no error", n, len(record))
		}
	}
	if err := readRecord(string(record)+"x", &storage.Task{}); err == nil {
		t.Error("a byte too many: got no error")
	}
}

func FuzzReadRecord(f *testing.F) {
	in := full()
	record, _ := newRecord(&in, nil)
	f.Add(record)
	f.Add(withParts(record, packCost(storage.NoCost)+packCost(2)))
	f.Add([]byte("garbage"))
	f.Add(bytes.Repeat([]byte{1}, 60))
	f.Fuzz(func(_ *testing.T, record []byte) {
		var t storage.Task
		if readRecord(string(record), &t) != nil {
			return
		}
		_ = maps.Clone(t.Headers)
		readHistory(string(record), &t)
		_, _ = readLease(string(record))
	})
}

func FuzzRecordRoundTrip(f *testing.F) {
	f.Add("kind", "json", []byte("p"), "name", "value", 3, int64(time.Hour), true)
	f.Fuzz(func(
		t *testing.T, kind, encoding string, payload []byte, name, value string, priority int, keep int64, once bool,
	) {
		in := storage.Insert{
			Ref: storage.Ref{Queue: "q", ID: "a"}, Kind: kind, Encoding: encoding, Payload: payload,
			Priority: priority, CrashLimit: 1, Keep: storage.Keep{For: time.Duration(keep), UntilRead: once},
		}
		if name != "" {
			in.Headers = map[string]string{name: value}
		}
		if storage.CheckTxs(storage.Limits{}, []storage.Tx{{Inserts: []storage.Insert{in}}}) != nil {
			return
		}
		in.Keep.For = in.Keep.For.Truncate(time.Microsecond)
		record, body := newRecord(&in, nil)
		var got storage.Task
		if err := readRecord(string(record)+string(body), &got); err != nil {
			t.Fatal(err)
		}
		if want := wantTask(in); !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

func TestSlotOfAQueue(t *testing.T) {
	// 0x31C3 is the check value of the Redis Cluster specification for CRC16.
	for queue, want := range map[string]int{"123456789": 0x31C3 % 16384, "": 0} {
		if got := slotOf(queue); got != want {
			t.Errorf("slot of %q: got %d, want %d", queue, got, want)
		}
	}
}
