package house

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// rule lists the packages that the files of a room (a folder with its package), and of the rooms inside it
// without a rule of their own, may import beside the standard library.
type rule struct {
	room    string
	rooms   []string // of this module; a name ending in /... includes the rooms inside it
	modules []string // modules of others
	// Further imports of its test files. Test files may also import their own room and
	// everything that is internal.
	testRooms   []string
	testModules []string
}

// table is the import table of the project. Imports run one way: from the examples to
// the root to storage, and from every storage to storage and the parts that storages
// share, never to the root or another storage. A module of others is used only in the
// room named for it.
var table = []rule{
	{
		room:  ".",
		rooms: []string{"storage", "internal/codec", "internal/contain", "internal/payload", "internal/runner", "internal/schedule", "internal/sleep", "internal/steps"},
		modules: []string{
			"go.uber.org/zap", // logging, the one foreign type in the root's signatures
		},
		testRooms: []string{"storage/..."},
	},
	{room: "internal/states"}, // the table of states
	{room: "storage", rooms: []string{"internal/sleep", "internal/states"}, testRooms: []string{"storage/memory"}}, // tests functions over a storage
	{room: "storage/internal", rooms: []string{"storage", "internal/states"}},                                      // parts that storages share
	{room: "storage/internal/record", rooms: []string{"storage", "storage/internal/engine", "internal/packed"}},    // packs the engine's records
	{
		room:      "storage/memory",
		rooms:     []string{"storage", "storage/internal/..."},
		testRooms: []string{"storage/storagetest"},
	},
	{
		room:        "storage/redis",
		rooms:       []string{"storage", "storage/internal/...", "internal/contain", "internal/states"},
		modules:     []string{"github.com/redis/go-redis/v9"},
		testRooms:   []string{"storage/storagetest"},
		testModules: []string{"github.com/alicebob/miniredis/v2"},
	},
	{
		room:      "storage/postgres",
		rooms:     []string{"storage", "storage/internal/...", "internal/sleep", "internal/states"},
		modules:   []string{"github.com/jackc/pgx/v5"},
		testRooms: []string{"storage/storagetest"},
	},
	{
		room:      "storage/sqlite",
		rooms:     []string{"storage", "storage/internal/...", "internal/private", "internal/sleep"},
		modules:   []string{"github.com/fsnotify/fsnotify"}, // commits of other processes
		testRooms: []string{"storage/storagetest"},
	},
	{
		room:      "storage/sqlite/modernc", // a module of its own, with the driver
		rooms:     []string{"storage", "storage/sqlite", "internal/private"},
		modules:   []string{"modernc.org/sqlite"},
		testRooms: []string{".", "midgetest", "storage/..."},
	},
	{room: "storage/open", rooms: []string{"storage", "storage/memory", "storage/redis", "storage/postgres"}}, // by a URL
	{
		room:        "metrics/prometheus", // a module of its own, with the client of Prometheus
		rooms:       []string{".", "storage", "internal/survey"},
		modules:     []string{"github.com/prometheus/client_golang"},
		testRooms:   []string{"storage/..."},
		testModules: []string{"github.com/prometheus/client_model"}, // the gathered metrics
	},
	{
		room:      "tracing/otel", // a module of its own, with OpenTelemetry
		rooms:     []string{".", "storage"},
		modules:   []string{"go.opentelemetry.io/otel"},
		testRooms: []string{"storage/..."},
	},
	{room: "storage/storagetest", rooms: []string{"storage"}, testRooms: []string{"storage/memory"}},
	{
		room:      "midgetest",
		rooms:     []string{".", "storage", "storage/memory", "internal/codec", "internal/runner", "internal/sleep"},
		testRooms: []string{"storage/..."},
		testModules: []string{
			"github.com/jackc/pgx/v5", // an application's own transaction
			"go.uber.org/zap",         // an application's own logger
		},
	},
	{
		room:      "work/command", // runs programs: fences, reports and follow-ups belong to an attempt
		rooms:     []string{".", "storage", "internal/contain", "internal/payload", "internal/runner"},
		testRooms: []string{"storage/..."},
	},
	{
		room:      "examples",
		rooms:     []string{".", "storage/...", "examples/internal/..."},
		modules:   []string{"go.uber.org/zap"},
		testRooms: []string{"midgetest"},
	},
	{room: "examples/encode", rooms: []string{".", "dashboard", "storage/...", "work/command", "examples/internal/..."}},
	{
		room:    "examples/webshop",
		rooms:   []string{".", "storage/...", "internal/testserver"}, // starts a PostgreSQL if none is given
		modules: []string{"github.com/jackc/pgx/v5"},                 // an application's own transaction
	},
	{
		room:  "examples/shop", // a module of its own, as an application is
		rooms: []string{".", "dashboard", "storage/...", "metrics/prometheus", "tracing/otel"},
		modules: []string{
			"github.com/jackc/pgx/v5",  // its own database
			"go.opentelemetry.io/otel", // the exporter of traces
		},
		testRooms: []string{"midgetest"},
	},
	{
		room:  "cmd/midge", // the command, a module of its own
		rooms: []string{".", "storage/...", "cmd/midge/...", "internal/...", "dashboard", "access", "work/..."},
		modules: []string{
			"github.com/spf13/cobra", "github.com/spf13/pflag", // commands, flags, completion
			"charm.land/bubbletea/v2", "golang.org/x/term", // the terminal
			"github.com/BurntSushi/toml",                                                            // profiles
			"golang.org/x/text",                                                                     // the spelling of names of files
			"github.com/redis/go-redis/v9", "github.com/jackc/pgx/v5", "google.golang.org/protobuf", // the sources of an import
		},
		testModules: []string{"github.com/hibiken/asynq", "github.com/riverqueue/river"}, // fill these sources
	},
	{
		room:  "bench", // a module of its own, with rivals of midge
		rooms: []string{".", "storage/...", "bench/...", "internal/testserver", "metrics/prometheus", "tracing/otel"},
		modules: []string{
			"go.opentelemetry.io/otel",                                // a tracer provider that samples nothing
			"github.com/hibiken/asynq", "github.com/riverqueue/river", // the rivals
			"github.com/redis/go-redis/v9", "github.com/jackc/pgx/v5", "modernc.org/sqlite", // the bare system uses them
			"golang.org/x/sys", // processor time of a process
		},
	},
	{room: "work/callback", rooms: []string{".", "internal/outbound", "storage"}, testRooms: []string{"storage/memory"}},
	{room: "access", rooms: []string{"internal/private", "internal/sleep", "internal/wildcard", "storage"}}, // storage for its InvalidError
	{
		room:      "dashboard",
		rooms:     []string{"access", "dashboard/internal/...", "internal/bulk", "internal/contain", "internal/filter", "internal/fingerprint", "internal/ledger", "internal/payload", "internal/scan", "internal/schedule", "internal/shell", "internal/states", "internal/steps", "internal/survey", "internal/vitals", "storage"},
		testRooms: []string{"access", "storage/..."},
	},
	{room: "dashboard/internal/format"}, // only text
	{room: "dashboard/internal/live"},   // only bytes
	{room: "dashboard/internal/chart", rooms: []string{"dashboard/internal/format", "dashboard/internal/sampler", "internal/ledger"}}, // draws points and deploys
	{
		room:  "dashboard/internal/sampler",
		rooms: []string{"internal/ledger", "internal/survey", "storage"},
	},
	{room: "internal/scene", rooms: []string{"internal/ledger", "internal/steps", "internal/vitals", "storage", "storage/memory"}}, // for tests and screenshots
	{
		room:    "dashboard/browser", // a module of its own, which drives a browser
		rooms:   []string{"access", "dashboard", "internal/fingerprint", "internal/scene", "storage", "storage/memory"},
		modules: []string{"github.com/chromedp/chromedp", "github.com/chromedp/cdproto"},
	},
	{
		room:  "dashboard/browser/peers", // a module of its own, with other projects' dashboards
		rooms: []string{"internal/testserver"},
		modules: []string{
			"github.com/hibiken/asynqmon", "github.com/hibiken/asynq", "github.com/jackc/pgx/v5",
			"riverqueue.com/riverui", "github.com/riverqueue/river",
		},
	},
	{
		room: "dashboard/browser/measure", // measures the dashboard, with servers
		rooms: []string{
			".", "access", "dashboard", "internal/fingerprint", "internal/ledger", "internal/scan", "internal/scene",
			"internal/testserver", "storage", "storage/...",
		},
		modules: []string{"github.com/chromedp/chromedp", "github.com/chromedp/cdproto", "github.com/jackc/pgx/v5"},
	},
	{room: "internal"},
	{room: "internal/packed"}, // only bytes
	{room: "internal/outbound", rooms: []string{"storage"}}, // for its InvalidError
	{room: "internal/private"},
	{room: "internal/vitals", rooms: []string{"storage", "internal/packed"}},
	{
		room:      "internal/survey",
		rooms:     []string{"storage", "internal/filter", "internal/fingerprint", "internal/ledger", "internal/payload", "internal/scan", "internal/schedule"},
		testRooms: []string{"storage/..."},
	},
	{
		room:      "internal/ledger",
		rooms:     []string{"storage", "internal/packed", "internal/sleep", "internal/vitals"},
		testRooms: []string{"storage/..."},
	},
	{room: "internal/codec", rooms: []string{"storage"}, modules: []string{"github.com/vmihailenco/msgpack"}},
	{room: "internal/payload", rooms: []string{"storage", "internal/codec", "internal/steps"}, testModules: []string{"github.com/vmihailenco/msgpack"}},
	{room: "internal/shell"}, // only text
	{room: "internal/steps", rooms: []string{"storage"}},
	{room: "internal/fingerprint", rooms: []string{"storage"}},
	{room: "internal/filter", rooms: []string{"storage", "internal/fingerprint", "internal/payload", "internal/states", "internal/wildcard"}},
	{room: "internal/scan", rooms: []string{"storage", "internal/filter", "internal/fingerprint", "internal/shell"}, testRooms: []string{"storage/..."}},
	{room: "internal/bulk", rooms: []string{"storage", "internal/filter", "internal/scan", "internal/payload", "internal/sleep"}, testRooms: []string{"storage/..."}},
	{room: "internal/runner", rooms: []string{"storage", "internal/contain", "internal/schedule", "internal/sleep", "internal/steps", "internal/vitals"}},
	{room: "internal/schedule", rooms: []string{"storage"}, modules: []string{"github.com/robfig/cron/v3"}},
	{room: "internal/testserver", modules: []string{"github.com/jackc/pgx/v5"}}, // checks that a server answers
	{
		room:        "internal/pgfault",
		testRooms:   []string{".", "storage/..."},
		testModules: []string{"go.uber.org/zap", "github.com/jackc/pgx/v5"}, // a runner's log; other transactions
	},
	{
		room:    "internal/way", // tools/way.sh measures it
		rooms:   []string{".", "storage/memory", "storage/redis", "storage"},
		modules: []string{"github.com/alicebob/miniredis/v2", "go.uber.org/zap"},
	},
	{room: "internal/pgfault/peer", rooms: []string{".", "storage/postgres"}}, // an application of two versions
	{
		room:      "internal/difftest",
		testRooms: []string{".", "storage/..."},
		testModules: []string{
			"github.com/alicebob/miniredis/v2", // runs without a server
			module + "/storage/sqlite/modernc", // SQLite's driver
		},
	},
	{
		room:      "internal/faulttest",
		testRooms: []string{".", "storage/..."},
		testModules: []string{
			"go.uber.org/zap",                  // workers log with it
			"github.com/redis/go-redis/v9",     // an application's own client, through a proxy
			"github.com/jackc/pgx/v5",          // an application's own transaction
			"github.com/alicebob/miniredis/v2", // runs without a server
			module + "/storage/sqlite/modernc", // SQLite's driver
		},
	},
}

// testModules may be imported by every test.
var testModules = []string{
	"go.uber.org/goleak", // finds goroutines without an owner
}

func TestImportsRunOneWay(t *testing.T) {
	for _, src := range sources(t) {
		r, ok := ruleOf(src.room)
		if !ok {
			t.Errorf("%s: the room %s has no row in the import table of internal/house", src.path, src.room)
			continue
		}
		for _, spec := range src.file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if !r.allows(src, imported) {
				t.Errorf("%s imports %s, and the import table of internal/house does not let %s do that",
					src.path, imported, r.room)
			}
		}
	}
}

func TestTheImportTableItself(t *testing.T) {
	for _, c := range []struct {
		path, imports string
		want          bool
	}{
		{"client.go", "context", true},
		{"client.go", module + "/storage", true},
		{"client.go", module + "/storage/memory", false},
		{"client.go", module + "/internal/testserver", false},
		{"client_test.go", module, true},
		{"client_test.go", module + "/storage/memory", true},
		{"client_test.go", module + "/internal/testserver", true},
		{"client_test.go", "go.uber.org/goleak", true},
		{"client.go", "go.uber.org/goleak", false},
		{"client.go", "go.uber.org/zap/zapcore", true},
		{"client.go", "go.uber.org/zapper", false},
		{"client.go", "github.com/vmihailenco/msgpack/v5", false},
		{"client.go", module + "/internal/codec", true},
		{"internal/codec/msgpack.go", "github.com/vmihailenco/msgpack/v5", true},
		{"internal/codec/codec.go", module + "/storage", true},
		{"internal/codec/codec.go", module, false},
		{"internal/runner/claimer.go", module, false},
		{"internal/runner/claimer.go", module + "/internal/codec", false},
		{"internal/runner/log.go", "go.uber.org/zap", false},
		{"storage/task.go", "go.uber.org/zap", false},
		{"storage/task.go", module, false},
		{"storage/redis/redis.go", module + "/storage", true},
		{"storage/redis/redis.go", module + "/storage/memory", false},
		{"storage/redis/redis.go", module, false},
		{"storage/redis/redis_test.go", module + "/storage/memory", false},
		{"storage/redis/redis_test.go", module, false},
		{"storage/redis/redis.go", "github.com/alicebob/miniredis/v2", false},
		{"storage/redis/redis_test.go", "github.com/alicebob/miniredis/v2", true},
		{"storage/sqlite/sqlite.go", "modernc.org/sqlite", false},
		{"storage/sqlite/modernc/modernc.go", "modernc.org/sqlite", true},
		{"storage/postgres/postgres.go", "github.com/jackc/pgx/v5/pgxpool", true},
		{"storage/postgres/postgres.go", module + "/storage/redis", false},
		{"storage/redis/redis.go", "github.com/jackc/pgx/v5", false},
		{"client.go", "github.com/jackc/pgx/v5", false},
		{"examples/mail/main.go", module, true},
		{"examples/mail/main.go", module + "/storage/redis", true},
		{"examples/mail/main.go", module + "/internal/testserver", false},
		{"examples/mail/main.go", "github.com/jackc/pgx/v5", false},
		{"examples/webshop/main.go", module + "/internal/testserver", true},
		{"examples/webshop/shop.go", "github.com/jackc/pgx/v5/pgxpool", true},
		{"internal/testserver/proxy.go", module + "/storage", false},
		{"internal/faulttest/kill_test.go", module + "/storage/redis", true},
	} {
		room := "."
		if i := strings.LastIndex(c.path, "/"); i >= 0 {
			room = c.path[:i]
		}
		r, ok := ruleOf(room)
		src := source{path: c.path, room: room, test: strings.HasSuffix(c.path, "_test.go")}
		if got := ok && r.allows(src, c.imports); got != c.want {
			t.Errorf("%s imports %s: allowed %t, want %t", c.path, c.imports, got, c.want)
		}
	}
}

// ruleOf returns the rule of a room, or of the nearest room around it. The rules of the
// root and of storage do not cover the rooms inside them: a new room there needs a
// rule.
func ruleOf(room string) (best rule, ok bool) {
	for _, r := range table {
		if within(room, r.room) && len(r.room) >= len(best.room) {
			best, ok = r, true
		}
	}
	if best.room == "storage" && room != "storage" {
		return rule{}, false
	}
	return best, ok
}

// allows reports whether the file may import the path.
func (r rule) allows(src source, imported string) bool {
	rooms, modules := r.rooms, r.modules
	if src.test {
		rooms = slices.Concat(rooms, r.testRooms, []string{src.room, "internal/..."})
		modules = slices.Concat(modules, r.testModules, testModules)
	}
	if imported != module && !strings.HasPrefix(imported, module+"/") {
		return standard(imported) ||
			slices.ContainsFunc(modules, func(name string) bool { return within(imported, name) })
	}
	room := "."
	if imported != module {
		room = strings.TrimPrefix(imported, module+"/")
	}
	return slices.ContainsFunc(rooms, func(name string) bool {
		tree, ok := strings.CutSuffix(name, "/...")
		return room == name || ok && within(room, tree)
	})
}

// standard reports whether an import path belongs to the standard library: its first
// element has no dot.
func standard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}
