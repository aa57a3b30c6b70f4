// Package callback runs jobs by an HTTP endpoint: each attempt of a task posts the task's parameters, as
// JSON, to the URL of its kind. The receiver can be written in any language, needs no access to the storage,
// and checks a signature of Standard Webhooks (https://www.standardwebhooks.com) with a ready-made library.
//
//	err := callback.Handle(runner, "order.paid", callback.Config{
//		URL: "https://shop.example.org/hooks/paid", Secrets: []string{os.Getenv("PAID_SECRET")},
//	})
//
// # The request
//
// The request is a POST with Content-Type application/json. Its headers are:
//
//	webhook-id         the idempotency key of the task, the same at each attempt
//	webhook-timestamp  the moment of the attempt, in seconds since 1970, by the clock of this process
//	webhook-signature  "v1," and a signature for each secret, with a space between two
//	midge-kind         the kind of the task
//	midge-attempt      the number of the attempt, 1 for the first
//
// The webhook-id is RunInfo.IdempotencyKey with each '.' written as '~', because the specification forbids
// full stops in it; no name of midge contains a '~'. The headers of the task stay here, except those of
// Config.Headers.
//
// # The answer
//
//	2xx                       the task completes; the body is its result
//	429 with Retry-After      the task goes back uncharged, and its partition rests; see midge.Throttle
//	503 with Retry-After      the task fails, and its retry is due as the receiver asks
//	408, 425, other 429, 503  the task fails, and the backoff delays its retry
//	410 and all other 4xx     the task is dead: the receiver will never accept it
//	3xx, 5xx, a broken or     the task fails, and the backoff delays its retry
//	late answer, no answer
//
// Retry-After is a number of seconds or a date. At least a second and at most a day count; any other text
// counts as no header. If the task has no partition, a 429 rests all tasks of its queue
// without a partition, so that kinds with different receivers belong in different queues or partitions.
//
// A body that is JSON is a result with its values, and any other body is a result that is one text. A body
// larger than Config.MaxResult, and a body that cannot be stored, is left out: the receiver has done its
// work, and a failure would only repeat that work. A warning counts the bodies that were left out. If the
// answer breaks off within its body, the attempt has failed, because it is not known whether the receiver has
// finished.
//
// The error of an attempt has the status and at most 1 KiB of the body. It names the host, but no more of
// the URL, which may hold a secret.
//
// # Where requests go
//
// The address of each connection is checked after the name was resolved. Private, local and reserved
// addresses, and addresses at which clouds hand out credentials, are refused if Config.Allow does not name
// them. A refused attempt fails and is retried, because a name may get another address. Redirects are not
// followed, the proxies of the environment are not used, and no cookies are kept. Each request has a
// connection of its own: its address is checked, no request is sent twice over a connection that the
// receiver has closed meanwhile, and no connection is left over. That costs a handshake for each request.
//
// # The end of an attempt
//
// An attempt that is cancelled, or that a drain ends after the grace of the runner, closes its connection.
// The drained task is released uncharged, and another runner posts it again with the same webhook-id:
// receivers get each task at least once.
package callback

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// Config decides where the tasks of a kind are posted, and how.
type Config struct {
	// URL is the address of the receiver. It begins with https://. A URL with http:// reaches only the addresses
	// that Allow names, because anybody on the way could read the parameters. A user and a password in it are
	// sent as basic authentication.
	URL string
	// Secrets sign the requests: one secret, or two while the receiver changes from one to the other. Each is
	// "whsec_" and the base64 of 24 to 64 bytes, as Standard Webhooks has it.
	Secrets []string
	// Unsigned allows no secret. The receiver then cannot verify who has sent a request.
	Unsigned bool
	// Timeout bounds a request with its whole answer: 1 ms to 1 h, default 30 s. The task's own timeout may end
	// it earlier.
	Timeout time.Duration
	// PerHost is how many requests to the host of URL are under way at once in this process, 1 to 10,000,
	// default 16. Kinds that one call of [HandleAll] registers share it; the smallest of their numbers counts.
	// An attempt that waits for its turn takes a slot of the runner, so that kinds with a slow receiver belong
	// in a queue that RunnerConfig.QueueConcurrency bounds. The wait does not count for Timeout.
	PerHost int
	// Allow names networks whose addresses may be posted to although they are private, local or reserved. An
	// address at which a cloud hands out credentials has to be named by a prefix of that address alone.
	Allow []netip.Prefix
	// Headers are the names of headers of the task that are sent along if the task has them, such as
	// traceparent. Default: none. Authorization and Cookie are refused, because the headers of a task are no
	// place for secrets: the storage holds them as they are, and everybody who may see the task sees them.
	Headers []string
	// MaxResult is how many bytes a result may have: default 65,536, at most 1 MiB. With midge.None, bodies are
	// not read, and there are no results.
	MaxResult int
	// Log gets the warnings about results that were left out. Default: slog.Default.
	Log *slog.Logger

	resolver *net.Resolver // replaced in tests; nil for the usual one
}

// These are the defaults and bounds of a [Config].
const (
	defaultTimeout = 30 * time.Second
	maxTimeout     = time.Hour
	defaultPerHost = 16
	maxPerHost     = 10_000
	defaultResult  = 64 << 10
	maxResult      = 1 << 20
	maxSecrets     = 2
)

// Check returns an *[midge.InvalidError] if the configuration is not valid. [Handle] checks the same;
// Check is for programs that check before they open a storage.
func (c Config) Check() error {
	_, err := newEndpoint(c)
	return err
}

// Handle registers the tasks of a kind to be posted as cfg decides. It does no I/O. Its errors are those of
// [midge.HandleRaw], and an *[midge.InvalidError] for a configuration that is not valid. No error shows a
// secret or more of the URL than its host.
func Handle(r *midge.Runner, kind string, cfg Config) error {
	return HandleAll(r, map[string]Config{kind: cfg})
}

// HandleAll registers several kinds, which share the bound of PerHost if their URLs have the same host. It
// checks all configurations before it registers the first kind.
func HandleAll(r *midge.Runner, kinds map[string]Config) error {
	endpoints := make(map[string]*endpoint, len(kinds))
	atOnce := make(map[string]int)
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		if err := storage.CheckName("kind", kind); err != nil {
			return fmt.Errorf("callback: %w", err)
		}
		e, err := newEndpoint(kinds[kind])
		if err != nil {
			return fmt.Errorf("callback: kind %s: %w", kind, err)
		}
		endpoints[kind] = e
		atOnce[e.host] = min(cmp.Or(atOnce[e.host], maxPerHost), e.perHost)
	}
	places := make(map[string]chan struct{}, len(atOnce))
	for host, n := range atOnce {
		places[host] = make(chan struct{}, n)
	}
	for _, kind := range slices.Sorted(maps.Keys(endpoints)) {
		e := endpoints[kind]
		e.places = places[e.host]
		if err := midge.HandleRaw(r, kind, e.run); err != nil {
			return fmt.Errorf("callback: %w", err)
		}
	}
	return nil
}
