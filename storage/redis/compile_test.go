package redis

import (
	"regexp"
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
		// A miniredis only parses a script that it loads, and compiles a script that it runs.
		spare := strings.Repeat("local spare ", spareLocals)
		if err := client.Eval(t.Context(), spare+"do return 1 end "+sc.source, nil).Err(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// stringCompared matches an order between two values of which one is a string by its name in the scripts.
var stringCompared = regexp.MustCompile(
	`(?:^|[^-+*/%#.\w ]|\b(?:and|or|not|if|while|until|return)|[=(] ) ?(?:` + stringNames + `) [<>]` +
		`|[<>]=? (?:` + stringNames + `)(?:$|[^.\w(\[ ]| (?:and|or|then|do)\b)`)

const stringNames = `ARGV\[[^\]]+\]|[ab]\[2\]|id|key|kind|line|member|name|past|fence|group`

// TestNoScriptOrdersStrings with Lua's own operators, which go by the locale of the server: ring.before compares bytes,
// as Redis sorts members.
func TestNoScriptOrdersStrings(t *testing.T) {
	for _, wrong := range []string{"return id <= ARGV[4]", "x == y and a[2] < b[2]", "if id > last then"} {
		if !stringCompared.MatchString(wrong) {
			t.Errorf("%q passes", wrong)
		}
	}
	files, err := sources.ReadDir("scripts")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := sources.ReadFile("scripts/" + file.Name())
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			code, _, _ := strings.Cut(line, "--")
			if stringCompared.MatchString(code) {
				t.Errorf("%s orders strings: %s", file.Name(), line)
			}
		}
	}
}
