package storagetest

import (
	"testing"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// openMemory opens the reading copy of the contract.
func openMemory(t testing.TB, limits storage.Limits) Opened {
	t.Helper()
	store, err := memory.Open(memory.Config{Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	return Opened{Storage: store}
}

func TestMemoryVirtual(t *testing.T) { RunVirtual(t, openMemory) }

func TestMemoryReal(t *testing.T) { Run(t, openMemory) }
