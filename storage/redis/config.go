package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/storage"
)

// Config says which Redis to use and how. It needs a URL or a Client, and nothing
// else.
type Config struct {
	// URL of the server. A password in it is never printed.
	//
	//	redis://user:password@host:6379/0            one Redis
	//	rediss://…                                   the same over TLS
	//	unix://user:password@/path/to/redis.sock?db=0
	//	redis+sentinel://user:password@host:26379,host:26379/master?db=0
	//	redis+cluster://user:password@host:7000,host:7001
	//
	// rediss+sentinel and rediss+cluster are those over TLS. The user may be left
	// out. sentinel_username and sentinel_password are for the sentinels. One Redis
	// takes the query parameters of go-redis, such as pool_size and client_name, too; its read_timeout is
	// for writes as well. With skip_verify=true whoever is on the way can read and change
	// everything: Describe warns of it.
	URL string
	// TLS replaces the TLS settings of a rediss URL, and turns TLS on with any other.
	TLS *tls.Config
	// Client is used instead of a URL: the application's own, a *redis.Client or a
	// *redis.ClusterClient of go-redis. Close does not close it. A ClusterClient finds a
	// replica that took over within ten seconds, as with a URL, where its options have
	// ClusterStateReloadInterval: time.Second, ReadTimeout: 3 * time.Second and MaxRetries: -1;
	// the default interval alone is a minute.
	Client goredis.UniversalClient
	// Prefix begins every key and channel; default "midge". Storages with another
	// prefix on the same Redis know nothing of each other. 1 to 64 letters, digits,
	// '_', '.', '-', ':'.
	Prefix string
	// Limits bounds payloads and what is kept of dead tasks; see storage.Limits for
	// the defaults.
	Limits storage.Limits
	// AllowEviction opens a Redis that may evict keys when it is full. Tasks can be
	// lost then; without it such a Redis is refused.
	AllowEviction bool

	general bool // calls go by no short way of their scripts: for tests
}

const defaultPrefix = "midge"

// What a connection is given. Calls are short, and a caller's context cuts any wait.
const (
	dialTimeout = 5 * time.Second
	ioTimeout   = 3 * time.Second
	retries     = 2
	dials       = 1 // the caller, or the Session above, tries again
)

// A master of a Cluster that has gone silent never says which replica took over. So the map
// of the Cluster is loaded anew while calls are made, and a call that waits for such a master
// is tried elsewhere before long: go-redis tries a node twice, and the client of the node no
// more than that.
const (
	reloadEvery    = time.Second
	clusterTimeout = 2 * time.Second
	clusterRetries = -1
)

// check fills what is empty, or gives an *InvalidError.
func (c *Config) check() error {
	if c.Prefix == "" {
		c.Prefix = defaultPrefix
	}
	if !validPrefix(c.Prefix) {
		return storage.Invalid("Config.Prefix", c.Prefix, "1 to 64 letters, digits, '_', '.', '-', ':'")
	}
	if err := c.checkServer(); err != nil {
		return err
	}
	return c.Limits.Check()
}

func validPrefix(prefix string) bool {
	return len(prefix) <= 64 && !strings.ContainsFunc(prefix, func(r rune) bool {
		return !strings.ContainsRune("_.-:", r) &&
			(r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
}

// link is a client, and what is known of it.
type link struct {
	client     goredis.UniversalClient
	own        bool        // it is to be closed
	interrupts *interrupts // of its calls; nil where they cannot be interrupted
	unverified bool        // TLS takes whatever server answers
}

// unverified reports whether TLS takes whatever server answers.
func unverified(c *tls.Config) bool {
	return c != nil && c.InsecureSkipVerify && c.VerifyConnection == nil && c.VerifyPeerCertificate == nil
}

// connect makes a client; it does not dial yet.
func (c *Config) connect() (l link, err error) {
	if c.Client != nil {
		return link{client: c.Client}, checkClient(c.Client)
	}
	scheme, _, ok := strings.Cut(c.URL, "://")
	if !ok || strings.Contains(c.URL, "#") {
		return link{}, c.badURL("a URL such as redis://localhost:6379" + encoded)
	}
	switch scheme {
	case "redis", "rediss", "unix":
		l, err = c.single()
	case "redis+sentinel", "rediss+sentinel":
		l, err = c.sentinel()
	case "redis+cluster", "rediss+cluster":
		l, err = c.cluster()
	default:
		err = c.badURL("scheme redis, rediss, unix, redis+sentinel or redis+cluster")
	}
	l.own = err == nil
	return l, err
}

// encoded is the hint that most bad URLs need.
const encoded = ", special characters of a password percent-encoded"

// badURL names the URL without what may be secret in it.
func (c *Config) badURL(want string) error {
	return storage.Invalid("Config.URL", redact(c.URL), "%s", want)
}

// redact leaves scheme, hosts and path of a URL.
func redact(text string) string {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return "***"
	}
	// A password may hold '?', '#' and '/' that should have been encoded: what stands
	// before the last '@' is hidden before anything else is looked at.
	hidden := ""
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		hidden, rest = "***@", rest[at+1:]
	}
	if end := strings.IndexAny(rest, "?#"); end >= 0 {
		rest = rest[:end]
	}
	if hidden == "" && strings.HasPrefix(rest, ":") {
		rest = "***" // a password without its '@'
	}
	return scheme + "://" + hidden + rest
}

func (c *Config) single() (link, error) {
	o, err := goredis.ParseURL(c.URL) // an error's text may show the password
	switch {
	case severalHosts(c.URL):
		return link{}, c.badURL("one host; redis+cluster:// takes several, without addr=")
	case err != nil:
		return link{}, c.badURL("host, port, database number and options that go-redis knows" + encoded)
	case o.DB < 0:
		return link{}, c.badURL("a database number of 0 or more")
	}
	o.MaxRetries = orDefault(o.MaxRetries, retries)
	o.DialerRetries = orDefault(o.DialerRetries, dials)
	o.DialTimeout = orDefault(o.DialTimeout, dialTimeout)
	o.ReadTimeout = orDefault(o.ReadTimeout, ioTimeout)
	o.ContextTimeoutEnabled = true
	if c.TLS != nil {
		o.TLSConfig = c.TLS.Clone()
	}
	in, timeout := newInterrupts(o.ReadTimeout)
	if in != nil { // it knows calls by either
		o.ReadTimeout, o.WriteTimeout = timeout, timeout
	}
	o.Dialer = in.over(goredis.NewDialer(o))
	if o.ClientName == "" {
		o.OnConnect = introduce
	}
	return link{client: goredis.NewClient(o), interrupts: in, unverified: unverified(o.TLSConfig)}, nil
}

// introduce has the server show a connection under midge's name. A user who may not ask for that
// does without.
func introduce(ctx context.Context, conn *goredis.Conn) error {
	_ = conn.ClientSetName(ctx, "midge").Err()
	return nil
}

func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// many is a URL with several hosts.
type many struct {
	addrs          []string
	user, password string
	path           string
	query          url.Values
	tls            *tls.Config
}

// errURL is a URL that cannot be read; badURL says so without its text.
var errURL = errors.New("bad URL")

// parseMany reads scheme://user:password@host:port,host:port/path?query.
func (c *Config) parseMany(port string) (m many, err error) {
	scheme, rest, _ := strings.Cut(c.URL, "://")
	if strings.HasPrefix(scheme, "rediss+") {
		m.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if c.TLS != nil {
		m.tls = c.TLS.Clone()
	}
	rest, query, _ := strings.Cut(rest, "?")
	if m.query, err = url.ParseQuery(query); err != nil {
		return m, errURL
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, password, some := strings.Cut(rest[:at], ":")
		if !some {
			user, password = "", user
		}
		if m.user, err = url.PathUnescape(user); err != nil {
			return m, errURL
		}
		if m.password, err = url.PathUnescape(password); err != nil {
			return m, errURL
		}
		rest = rest[at+1:]
	}
	hosts, path, _ := strings.Cut(rest, "/")
	m.path = path
	for host := range strings.SplitSeq(hosts, ",") {
		if host == "" {
			return m, errURL
		}
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		m.addrs = append(m.addrs, host)
	}
	return m, nil
}

// only reports whether a query has no parameters but these.
func (m *many) only(names ...string) bool {
	for name := range m.query {
		if !slices.Contains(names, name) {
			return false
		}
	}
	return true
}

func (c *Config) sentinel() (link, error) {
	m, err := c.parseMany("26379")
	if err != nil || m.path == "" || !m.only("db", "sentinel_username", "sentinel_password") {
		return link{}, c.badURL("sentinels, then /master, then db, sentinel_username, sentinel_password alone")
	}
	db, err := strconv.Atoi(orDefault(m.query.Get("db"), "0"))
	if err != nil || db < 0 {
		return link{}, c.badURL("a number of 0 or more for db")
	}
	in, timeout, dial := dialing(m.tls, ioTimeout)
	client := goredis.NewFailoverClient(&goredis.FailoverOptions{
		MasterName: m.path, SentinelAddrs: m.addrs, DB: db,
		SentinelUsername: m.query.Get("sentinel_username"), SentinelPassword: m.query.Get("sentinel_password"),
		Username: m.user, Password: m.password, TLSConfig: m.tls,
		MaxRetries: retries, DialerRetries: dials, DialTimeout: dialTimeout, ReadTimeout: timeout,
		WriteTimeout: timeout, ContextTimeoutEnabled: true, Dialer: dial, OnConnect: introduce,
	})
	return link{client: client, interrupts: in, unverified: unverified(m.tls)}, nil
}

func (c *Config) cluster() (link, error) {
	m, err := c.parseMany("6379")
	if err != nil || m.path != "" || !m.only() {
		return link{}, c.badURL("nodes of the cluster, and no path or options")
	}
	in, timeout, dial := dialing(m.tls, clusterTimeout)
	client := goredis.NewClusterClient(&goredis.ClusterOptions{
		Addrs: m.addrs, Username: m.user, Password: m.password, TLSConfig: m.tls,
		MaxRetries: clusterRetries, DialerRetries: dials, DialTimeout: dialTimeout, ReadTimeout: timeout,
		WriteTimeout: timeout, ContextTimeoutEnabled: true, Dialer: dial, OnConnect: introduce,
		ClusterStateReloadInterval: reloadEvery,
	})
	return link{client: client, interrupts: in, unverified: unverified(m.tls)}, nil
}

// dialing is how connections to several servers are dialed, and time out.
func dialing(over *tls.Config, each time.Duration) (in *interrupts, timeout time.Duration, dial dialer) {
	in, timeout = newInterrupts(each)
	return in, timeout, in.over(goredis.NewDialer(&goredis.Options{DialTimeout: dialTimeout, TLSConfig: over}))
}
