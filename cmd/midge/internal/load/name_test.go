package load

import (
	"strings"
	"testing"

	"github.com/midgehq/midge/storage"
)

// TestEachFileHasItsOwnName checks that files with different names have different loads, and that each name
// is valid, also in other alphabets.
func TestEachFileHasItsOwnName(t *testing.T) {
	long := strings.Repeat("a", 250)
	of := make(map[string]string)
	for _, file := range []string{
		"orders.jsonl", "Orders.jsonl", "a b.csv", "a-b.csv", "a_b.csv", "a+b.csv", ".a-b.csv", "-a-b.csv", "csv",
		".csv", "..csv", "\u65e5\u672c.csv", "\u4e2d\u56fd.csv", "заказы.csv", "записи.csv", "طلبات.csv", "café.csv", "cafe.csv",
		"caf\xe9.csv", "caf\xe8.csv", "🙂.csv", "🙃.csv", "—", "–", long + ".csv", long + "b.csv", long[:100],
		long[:101], "\u65e5\u672c", "\u4e2d\u56fd",
	} {
		name := NameOf("/some/folder/" + file)
		if err := CheckName(name); err != nil {
			t.Errorf("%q: %v", file, err)
		}
		if err := storage.CheckRef(MarkerRef("q", name)); err != nil {
			t.Errorf("%q: %v", file, err)
		}
		if other, known := of[name]; known {
			t.Errorf("%q and %q have the name %s", file, other, name)
		}
		of[name] = file
		if again := NameOf(file); again != name {
			t.Errorf("%q: got %s, and in another folder %s", file, again, name)
		}
	}
	for file, want := range map[string]string{
		"orders.jsonl": "orders.jsonl", "caf\u00e9.csv": "caf-.csv-a262bdd5b9b7",
		"cafe\u0301.csv": "caf-.csv-a262bdd5b9b7", // the same name, as macOS may spell it
	} {
		if got := NameOf(file); got != want {
			t.Errorf("%q: got %s, want %s", file, got, want)
		}
	}
}
