package memory

import (
	"testing"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/storagetest"
)

func TestContract(t *testing.T) {
	storagetest.RunVirtual(t, func(t testing.TB, limits storage.Limits) storagetest.Opened {
		store, err := Open(Config{Limits: limits})
		if err != nil {
			t.Fatal(err)
		}
		return storagetest.Opened{Storage: store}
	})
}
