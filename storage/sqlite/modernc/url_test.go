package modernc_test

import (
	"strings"
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
	for _, url := range []string{"sqlite:", "sqlite://"} {
		store, err := modernc.URL{}.Open(t.Context(), url)
		if err == nil || store != nil || !strings.Contains(err.Error(), url) {
			t.Errorf("without a path: got %v, %v; want an error that names %s", store, err, url)
		}
	}
	if _, err := modernc.Open(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "Config.Path") {
		t.Errorf("an empty path: got %v, want an error that names it", err)
	}
}
