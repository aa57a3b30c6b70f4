package redis

import (
	"cmp"
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

// Config configures [Open]. It needs either a URL or a Client; everything else has a default.
type Config struct {
	// URL of the server. A password in it is never printed.
	//
	//	redis://user:password@host:6379/0            one Redis
	//	rediss://…                                   the same over TLS
	//	unix://user:password@/path/to/redis.sock?db=0
	//	redis+sentinel://user:password@host:26379,host:26379/master?db=0
	//	redis+cluster://user:password@host:7000,host:7001
	//
	// The schemes rediss+sentinel and rediss+cluster are the last two over TLS. The user may be
	// left out. The query parameters sentinel_username and sentinel_password are for the
	// sentinels. The URL of one Redis also takes the query parameters of go-redis, such as
	// pool_size and client_name; its read_timeout is the timeout of writes too. Any URL takes
	// wait_replicas, which sets WaitReplicas unless that is more. With skip_verify=true an attacker on
	// the network can read and change everything, and Describe warns of that.
	URL string
	// TLS replaces the TLS settings of a rediss URL, and turns TLS on with any other.
	TLS *tls.Config
	// Client is a client of the application that is used instead of a URL: a *redis.Client or a
	// *redis.ClusterClient of go-redis. Close does not close it. A ClusterClient finds a
	// replica that took over within ten seconds, as with a URL, if its options have
	// ClusterStateReloadInterval: time.Second, ReadTimeout: 3 * time.Second and MaxRetries: -1;
	// with the default interval it can take a minute.
	Client goredis.UniversalClient
	// Prefix begins every key and channel; default "midge". Storages with different
	// prefixes on the same Redis are independent of each other. 1 to 64 letters, digits,
	// '_', '.', '-', ':'.
	Prefix string
	// Limits bounds payloads, and how many dead tasks are kept and for how long; see
	// storage.Limits for the defaults.
	Limits storage.Limits
	// AllowEviction lets Open accept a Redis that may evict keys when it is full. Tasks can be
	// lost then. By default Open refuses such a Redis.
	AllowEviction bool
	// WaitReplicas is how many replicas have to confirm each call of Apply before it succeeds: inserts, ticks
	// of schedules, settles, changes and deletes. If fewer do so within a second, the call fails with a
	// *ReplicasError. 0 means none. Claims, Extend and Configure do not wait: after a failover that lost a
	// claim the task runs again. A call waits for a round trip from the master to its replicas. The user needs
	// +wait, and a Client a ReadTimeout of more than a second. A failover loses no confirmed task only if it
	// promotes a replica that confirmed it, as the only replica does.
	WaitReplicas int

	ways    ways          // for tests
	timeout time.Duration // for tests: of reads and writes on a Cluster, 0 for clusterTimeout
}

const defaultPrefix = "midge"

// Timeouts and tries of a connection. Calls are short, and a caller's context ends any wait.
const (
	dialTimeout = 5 * time.Second
	ioTimeout   = 3 * time.Second
	retries     = 2
	dials       = 1 // the caller, or the Session above, tries again
)

// A master of a Cluster that no longer answers never reports which replica took over. So go-redis
// reloads the map of the Cluster while calls are made, and tries a call that waits for such a
// master at another node before long: the client of the Cluster tries a node twice, and the client
// of the node adds no tries of its own.
const (
	reloadEvery    = time.Second
	clusterTimeout = 2 * time.Second
	clusterRetries = -1
)

// check fills in the defaults. It returns an *InvalidError for a bad field.
func (c *Config) check() error {
	if c.Prefix == "" {
		c.Prefix = defaultPrefix
	}
	if !validPrefix(c.Prefix) {
		return storage.Invalid("Config.Prefix", c.Prefix, "1 to 64 letters, digits, '_', '.', '-', ':'")
	}
	if err := cmp.Or(c.checkServer(), c.takeReplicas()); err != nil {
		return err
	}
	if c.WaitReplicas < 0 {
		return storage.Invalid("Config.WaitReplicas", strconv.Itoa(c.WaitReplicas), "0 or more")
	}
	return c.Limits.Check()
}

func validPrefix(prefix string) bool {
	return len(prefix) <= 64 && !strings.ContainsFunc(prefix, func(r rune) bool {
		return !strings.ContainsRune("_.-:", r) &&
			(r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
}

// link is a client with its properties.
type link struct {
	client     goredis.UniversalClient
	own        bool        // the storage made the client and closes it
	interrupts *interrupts // of its calls; nil if they cannot be interrupted
	unverified bool        // TLS accepts any server that answers
}

// unverified reports whether TLS accepts any server that answers.
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

// badURL returns an *InvalidError that names the URL without its secrets.
func (c *Config) badURL(want string) error {
	return storage.Invalid("Config.URL", redact(c.URL), "%s", want)
}

// redact returns a URL with only its scheme, hosts and path.
func redact(text string) string {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return "***"
	}
	// A password may contain '?', '#' and '/' that should have been encoded. So everything
	// before the last '@' is hidden first, and everything if the '@' may be within a parameter.
	hidden := ""
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if _, query, _ := strings.Cut(rest[:at], "?"); strings.Contains(query, "=") {
			return scheme + "://***"
		}
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
	case doubled(c.URL):
		return link{}, c.badURL("each parameter once, and one database number")
	case o.PoolSize < 0 || o.DialTimeout < 0 || o.MaxRetries < -1: // go-redis panics, or never dials or sends
		return link{}, c.badURL("pool_size and dial_timeout above 0, and max_retries of -1 or more")
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
	if in != nil { // it recognizes calls by the deadlines of reads and writes
		o.ReadTimeout, o.WriteTimeout = timeout, timeout
	}
	o.Dialer = in.over(goredis.NewDialer(o))
	if o.ClientName == "" {
		o.OnConnect = introduce
	}
	return link{client: goredis.NewClient(o), interrupts: in, unverified: unverified(o.TLSConfig)}, nil
}

// doubled reports whether the URL of one Redis has a parameter twice, or two database numbers.
func doubled(text string) bool {
	u, err := url.Parse(text)
	if err != nil {
		return false // go-redis reports it
	}
	query := u.Query()
	return twice(query) || u.Scheme != "unix" && strings.Trim(u.Path, "/") != "" && query.Has("db")
}

// twice reports whether a query has a parameter twice.
func twice(query url.Values) bool {
	for _, values := range query {
		if len(values) > 1 {
			return true
		}
	}
	return false
}

// introduce has the server list a connection under midge's name. The connection works without the name if
// the server refuses the name. After any other error the reply may still come, and the next command would
// read it as its own. Then introduce returns the error, and go-redis closes the connection.
func introduce(ctx context.Context, conn *goredis.Conn) error {
	err := conn.ClientSetName(ctx, "midge").Err()
	if _, ok := errors.AsType[goredis.Error](err); ok {
		return nil
	}
	return err
}

func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// many is a parsed URL with several hosts.
type many struct {
	addrs          []string
	user, password string
	path           string
	query          url.Values
	tls            *tls.Config
}

// errURL is the error for a URL that cannot be parsed; badURL reports it without the URL's text.
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

// only reports whether the query has no other parameters than these, and each once at most.
func (m *many) only(names ...string) bool {
	for name := range m.query {
		if !slices.Contains(names, name) {
			return false
		}
	}
	return !twice(m.query)
}

func (c *Config) sentinel() (link, error) {
	m, err := c.parseMany("26379")
	if err != nil || m.path == "" || !m.only("db", "sentinel_username", "sentinel_password") {
		return link{}, c.badURL("sentinels, then /master, then db, sentinel_username, sentinel_password, each once")
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
	in, timeout, dial := dialing(m.tls, orDefault(c.timeout, clusterTimeout))
	client := goredis.NewClusterClient(&goredis.ClusterOptions{
		Addrs: m.addrs, Username: m.user, Password: m.password, TLSConfig: m.tls,
		MaxRetries: clusterRetries, DialerRetries: dials, DialTimeout: dialTimeout, ReadTimeout: timeout,
		WriteTimeout: timeout, ContextTimeoutEnabled: true, Dialer: dial, OnConnect: introduce,
		ClusterStateReloadInterval: reloadEvery,
	})
	return link{client: client, interrupts: in, unverified: unverified(m.tls)}, nil
}

// dialing returns the dialer and the timeout for connections to several servers.
func dialing(over *tls.Config, each time.Duration) (in *interrupts, timeout time.Duration, dial dialer) {
	in, timeout = newInterrupts(each)
	return in, timeout, in.over(goredis.NewDialer(&goredis.Options{DialTimeout: dialTimeout, TLSConfig: over}))
}
