package storagetest

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/midgehq/midge/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestVirtual runs the suite under virtual time, where all of it takes a second.
func TestVirtual(t *testing.T) {
	t.Parallel()
	RunVirtual(t, openMemory)
}

// TestReal runs the suite in real time, as a storage without Advance is tested.
func TestReal(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for leases of a second")
	}
	Run(t, openMemory)
}

// TestSplit runs the suite on a storage in which no two queues can share a Tx.
func TestSplit(t *testing.T) {
	t.Parallel()
	RunVirtual(t, func(t testing.TB, limits storage.Limits) Opened {
		opened := openMemory(t, limits)
		opened.Storage = split{opened.Storage, limits}
		return opened
	})
}

// TestRules: each rule has a name of its own, a test, and a sentence that says what it is.
func TestRules(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, ru := range rules() {
		if seen[ru.name] || ru.name == "" || ru.test == nil {
			t.Errorf("rule %q: named twice, or without a name or a test", ru.name)
		}
		seen[ru.name] = true
		if n := len(ru.says); n < 20 || ru.says[n-1] != '.' {
			t.Errorf("rule %q says %q, want a sentence", ru.name, ru.says)
		}
	}
	t.Logf("%d rules", len(seen))
}

func BenchmarkMemory(b *testing.B) { Bench(b, openMemory) }
