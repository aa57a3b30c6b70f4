package storagetest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// atOnce is how many tests run at the same time: the tests in real time mostly wait for leases.
const atOnce = 32

func TestMain(m *testing.M) {
	if err := testserver.SetParallel(atOnce); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// TestVirtual runs the suite under virtual time, where all of it takes a second.
func TestVirtual(t *testing.T) {
	t.Parallel()
	RunVirtual(t, openMemory)
}

// TestReal runs the suite in real time, as a storage without Advance is tested.
func TestReal(t *testing.T) {
	t.Parallel()
	Run(t, func(t testing.TB, limits storage.Limits) Opened {
		testserver.Turn(t)
		return openMemory(t, limits)
	})
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

// TestRules: each rule has a name of its own, a test, and a sentence that states it.
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

// TestTopics: a run of some topics tests all of their rules and no others, and a topic without a rule is
// an error, so that a misspelled topic does not pass.
func TestTopics(t *testing.T) {
	t.Parallel()
	chosen, err := about([]string{"claim", "kind"})
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, ru := range chosen {
		got = append(got, ru.name)
	}
	for _, ru := range rules() {
		if strings.HasPrefix(ru.name, "claim/") || strings.HasPrefix(ru.name, "kind/") {
			want = append(want, ru.name)
		}
	}
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("the rules on claim and kind: got %v, want %v", got, want)
	}
	if all, err := about(nil); err != nil || len(all) != len(rules()) {
		t.Errorf("without topics: got %d rules, %v, want %d", len(all), err, len(rules()))
	}
	if _, err := about([]string{"claim", "clam"}); err == nil {
		t.Error("a topic without a rule: got no error")
	}
}

func BenchmarkMemory(b *testing.B) { Bench(b, openMemory) }
