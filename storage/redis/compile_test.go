package redis

import (
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// spareLocals is how many local variables each script leaves of the 200 that Lua permits.
const spareLocals = 60

// TestEachScriptCompiles: each script compiles as it is sent, also behind spareLocals local variables. The
// storage would take an error of the compiler for damage of a queue.
func TestEachScriptCompiles(t *testing.T) {
	t.Run("miniredis", func(t *testing.T) { testCompiles(t, miniredis.RunT(t).Addr()) })
	t.Run("redis", func(t *testing.T) {
		testserver.Require(t)
		testCompiles(t, testserver.Redis(t).Addr())
	})
}

func testCompiles(t *testing.T, address string) {
	t.Helper()
	client := goredis.NewClient(&goredis.Options{Addr: address})
	defer func() { _ = client.Close() }()
	all, err := loadScripts(nil, storage.Limits{}.WithDefaults(), ways{})
	if err != nil {
		t.Fatal(err)
	}
	for name, sc := range all.named() {
		if sha, err := client.ScriptLoad(t.Context(), sc.source).Result(); err != nil || sha != sc.sha {
			t.Errorf("%s: loaded as %q, %v, want %q", name, sha, err, sc.sha)
		}
		// A miniredis only parses what it loads, and compiles what it runs.
		spare := strings.Repeat("local spare ", spareLocals)
		if err := client.Eval(t.Context(), spare+"do return 1 end "+sc.source, nil).Err(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
