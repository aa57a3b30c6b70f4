package midge_test

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"github.com/midgehq/midge"
)

// storedJob is a job whose stored form must not change from version to version.
type storedJob struct {
	ID    int64
	Any   any
	Anys  map[string]any
	At    time.Time
	Nil   []string
	Empty []string
	Named map[word]uint16 `json:"named,omitempty" msgpack:"n,omitempty"`
	To    *storedJob
	Old   string `midge:"was=Older"`
	Bytes []byte
	Own   coded
}

// storedJSON is storedJob as JSON.
type storedJSON storedJob

func (storedJSON) Options() midge.Options { return midge.Options{Encoding: midge.JSON} }

// TestStoredBytesAndUniqueKeysStay compares payloads and unique keys with the values of version 0.1: tasks
// that wait are read by the next version, and keep their duplicates out. The key of the first is of a later
// version: in a type within itself, 0.1 did not use the first names of fields.
func TestStoredBytesAndUniqueKeysStay(t *testing.T) {
	at := time.Date(2026, 3, 1, 0, 30, 0, 5000, time.FixedZone("west", -8*3600))
	v := storedJob{
		ID: 616581622363398142, Any: []any{128, -1, uint64(1 << 63), "<ä>", 0.5, nil, true}, Anys: map[string]any{"b": 1, "a": int8(7)}, At: at,
		Empty: []string{}, Named: map[word]uint16{"z": 300, "y": 1}, To: &storedJob{Old: "inner"}, Old: "old", Bytes: []byte{0, 255}, Own: coded{7},
	}
	client := newClient(t, openMemory(t))
	for name, c := range map[string]struct {
		job       any
		unique    midge.Unique
		want, key string
	}{
		"MessagePack":           {v, midge.Unique{}, "c77a09a11d757ae7", "dmbu0fv2us4rbfpcvnof43bnog"},
		"MessagePack by fields": {v, midge.Unique{By: []string{"At", "Old", "Any"}}, "c77a09a11d757ae7", "69gri5m0r2qppulo1d0vb1gj9k"},
		"JSON":                  {storedJSON(v), midge.Unique{}, "7ba5e382dc183f02", "1417lledngfmtiii19nrvh7obs"},
		"JSON by fields":        {storedJSON(v), midge.Unique{By: []string{"At", "Old", "Any"}}, "7ba5e382dc183f02", "dphlfpdc76jb8qfbgfrbnjuhbk"},
		"empty, not nil":        {carry[[]int]{[]int{}}, midge.Unique{}, "2ecff078aa026332", "7kg4uc13hoic7stbrg40oka4jo"},
		"nil":                   {carry[[]int]{}, midge.Unique{}, "bad80ab3d552468c", "al2gb3egm5bnf2bl3fnq9bt35c"},
	} {
		task, err := client.Enqueue(t.Context(), c.job, c.unique)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		sum := sha256.Sum256(task.Payload)
		if got := hex.EncodeToString(sum[:8]); got != c.want || task.Unique.Key != c.key {
			t.Errorf("%s: the payload %q has the sum %s and the key %s, want %s and %s", name, task.Payload, got, task.Unique.Key, c.want, c.key)
		}
	}
}
