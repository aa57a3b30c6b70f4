package modernc_test

import (
	"testing"

	"github.com/midgehq/midge/storage/sqlite/modernc"
)

func TestAURLOpensAFile(t *testing.T) {
	t.Parallel()
	path := file(t)
	for _, url := range []string{"sqlite:" + path, "sqlite://" + path} {
		store, err := modernc.URL{}.Open(t.Context(), url)
		if err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		if _, err := store.Describe(t.Context()); err != nil {
			t.Errorf("%s: %v", url, err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
	if store, err := (modernc.URL{}).Open(t.Context(), "sqlite:"); err == nil || store != nil {
		t.Errorf("without a path: got %v, %v; want an error", store, err)
	}
}
