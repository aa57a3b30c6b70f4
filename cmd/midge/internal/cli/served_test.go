package cli

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/internal/testserver"
)

// served is a dashboard that the command serves.
type served struct {
	t    *testing.T
	site string // URL of the dashboard, without the last slash
	said *shared
	stop context.CancelFunc
	code chan int
	pool *x509.CertPool // pool with the certificate of the server, nil for none
	file string         // the file with the secret address, "" for none
}

var (
	listensAt = regexp.MustCompile(`(https?)://(\S+:\d+)/`)
	secretIn  = regexp.MustCompile(`see the file (\S+)\n`)
)

// serve runs serve with flags in the background until the test ends.
func (r *rig) serve(flags string) *served {
	r.t.Helper()
	ctx, stop := context.WithCancel(r.t.Context())
	s := &served{t: r.t, said: &shared{}, stop: stop, code: make(chan int, 1)}
	go func() {
		s.code <- Run(ctx, words("serve --listen 127.0.0.1:0 "+flags), r.std(strings.NewReader(""), s.said, s.said))
	}()
	r.t.Cleanup(func() { s.ends() })
	testserver.Await(r.t, "the dashboard tells its address", func() bool { return listensAt.MatchString(s.said.String()) })
	at := listensAt.FindStringSubmatch(s.said.String())
	_, port, err := net.SplitHostPort(at[2])
	if err != nil {
		r.t.Fatal(err)
	}
	s.site = at[1] + "://127.0.0.1:" + port
	if !strings.Contains(flags, "--users") && !strings.Contains(flags, "--insecure") {
		testserver.Await(r.t, "the dashboard names the file", func() bool { return secretIn.MatchString(s.said.String()) })
		s.file = secretIn.FindStringSubmatch(s.said.String())[1]
	}
	return s
}

// secret returns the path with the secret that admits to a dashboard without users.
func (s *served) secret() string {
	s.t.Helper()
	text, err := os.ReadFile(s.file)
	if err != nil {
		s.t.Fatal(err)
	}
	path, ok := strings.CutPrefix(strings.TrimSpace(string(text)), s.site)
	if !ok {
		s.t.Fatalf("the file has %s, want an address of %s", text, s.site)
	}
	return path
}

// ends stops the dashboard, which has to exit with 0.
func (s *served) ends() {
	s.t.Helper()
	s.stop()
	if got, open := <-s.code; open {
		close(s.code)
		if got != Done {
			s.t.Errorf("serve exits with %d: %s", got, s.said)
		}
	}
}

// visitor is a browser, as the dashboard sees it.
type visitor struct {
	*served

	http *http.Client
	as   string // X-Forwarded-For, "" for none
}

func (s *served) visitor() *visitor {
	s.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.pool, MinVersion: tls.VersionTLS12}}
	s.t.Cleanup(transport.CloseIdleConnections)
	v := &visitor{served: s, http: &http.Client{
		Jar: jar, Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if s.file != "" {
		v.wants(http.StatusSeeOther, "", s.secret(), nil)
	}
	return v
}

// reply is the answer to a request of a visitor.
type reply struct {
	status int
	header http.Header
	text   string
}

// asks sends a request: a POST with a form, or a GET if the form is nil.
func (v *visitor) asks(path string, form url.Values) reply {
	v.t.Helper()
	method, body := http.MethodGet, ""
	if form != nil {
		method, body = http.MethodPost, form.Encode()
	}
	r, err := http.NewRequestWithContext(v.t.Context(), method, v.site+path, strings.NewReader(body))
	if err != nil {
		v.t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", v.site)
	}
	if v.as != "" {
		r.Header.Set("X-Forwarded-For", v.as)
	}
	answer, err := v.http.Do(r)
	if err != nil {
		v.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	return reply{answer.StatusCode, answer.Header, string(text)}
}

// wants sends a request, and checks the status and a text of the answer.
func (v *visitor) wants(status int, text, path string, form url.Values) reply {
	v.t.Helper()
	got := v.asks(path, form)
	if got.status != status || !strings.Contains(got.text, text) {
		v.t.Errorf("%s %v: got %d and %.400s\nwant %d and %q", path, form, got.status, got.text, status, text)
	}
	return got
}

// certificate writes a certificate for this machine and its key to files, and returns a pool with the
// certificate.
func certificate(t *testing.T) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, about, about, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	write := func(name, kind string, der []byte) string {
		path, text := filepath.Join(t.TempDir(), name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		pool.AppendCertsFromPEM(text)
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", keyDER), pool
}

// users writes a file with one user for each role. A password is the name twelve times. It is hashed with as
// few rounds as a file may have, so that logins are quick.
func (r *rig) users() string {
	r.t.Helper()
	file := filepath.Join(r.t.TempDir(), "users.json")
	if _, err := access.CreateUsers(file); err != nil {
		r.t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		r.t.Fatal(err)
	}
	const rounds = 10_000
	salt, encoded := []byte("sixteen bytes..."), base64.RawStdEncoding.EncodeToString
	for _, role := range []string{"viewer", "operator", "admin"} {
		sum, err := pbkdf2.Key(sha256.New, strings.Repeat(role, 12), salt, rounds, sha256.Size)
		if err != nil {
			r.t.Fatal(err)
		}
		text = fmt.Appendf(text, "user %s %s pbkdf2-sha256$%d$%s$%s\n", role, role, rounds, encoded(salt), encoded(sum))
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		r.t.Fatal(err)
	}
	return file
}

func credentials(name string) url.Values {
	return url.Values{"name": {name}, "password": {strings.Repeat(name, 12)}}
}

func TestUsersLogInOverTLS(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.night()
	cert, key, pool := certificate(t)
	s := r.serve("--tls-cert " + cert + " --tls-key " + key + " --users " + r.users())
	s.pool = pool
	anybody := s.visitor()
	for host, want := range map[string]bool{"jobs.example.org": true, "": false} {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.site+"/login", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		q.Host = host
		answer, err := anybody.http.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if got := answer.Header.Get("Strict-Transport-Security"); (got != "") != want {
			t.Errorf("for the host %q the browser is told %q", host, got)
		}
	}
	if to := anybody.wants(http.StatusSeeOther, "", "/queues", nil).header.Get("Location"); to != "/login?back=%2Fqueues" {
		t.Errorf("somebody without a login is led to %s", to)
	}
	anybody.wants(http.StatusUnauthorized, "Please log in.", "/action", url.Values{"do": {"pause"}, "queue": {"mail"}})
	anybody.wants(http.StatusUnauthorized, "", "/events", nil)
	anybody.wants(http.StatusUnauthorized, "The name or the password is wrong.", "/login", url.Values{"name": {"admin"}, "password": {"wrong"}})

	for _, c := range []struct {
		role                   string
		params, pause, deletes bool
	}{{"viewer", false, false, false}, {"operator", true, true, false}, {"admin", true, true, true}} {
		v := s.visitor()
		cookie := v.wants(http.StatusSeeOther, "", "/login", credentials(c.role)).header.Get("Set-Cookie")
		for _, want := range []string{"__Host-midge_session=", "HttpOnly", "Secure", "SameSite=Strict"} {
			if !strings.Contains(cookie, want) {
				t.Errorf("the cookie is %q, want %s", cookie, want)
			}
		}
		if strings.Contains(v.asks("/r/mail/a1", nil).text, "ann@example.org") != c.params {
			t.Errorf("%s sees parameters: %v, want %v", c.role, !c.params, c.params)
		}
		may := func(may bool, form url.Values) {
			t.Helper()
			status := map[bool]int{true: http.StatusSeeOther, false: http.StatusForbidden}[may]
			v.wants(status, "", "/action", form)
		}
		may(c.pause, url.Values{"do": {"pause"}, "queue": {"mail"}})
		may(c.pause, url.Values{"do": {"resume"}, "queue": {"mail"}})
		may(c.deletes, url.Values{"do": {"delete"}, "ref": {"mail/a3"}, "most": {"1"}})
		v.wants(http.StatusSeeOther, "", "/logout", url.Values{})
		v.wants(http.StatusSeeOther, "", "/queues", nil)
	}
	if got := r.run("task show mail/a3"); got.code != NotFound {
		t.Errorf("the task that the admin deleted: got %d", got.code)
	}
	var who []string
	for _, e := range r.actions() {
		who = append(who, e.Who+" "+e.Action)
	}
	if got, want := strings.Join(who, ", "), "admin delete, admin resume, admin pause, operator resume, operator pause"; got != want {
		t.Errorf("the audit has %s, want %s", got, want)
	}
	olderAndPlain(s, pool)
}

// olderAndPlain tries TLS 1.1, TLS without the authority of the certificate, and no TLS.
func olderAndPlain(s *served, pool *x509.CertPool) {
	s.t.Helper()
	host := strings.TrimPrefix(s.site, "https://")
	for name, cfg := range map[string]*tls.Config{
		"TLS 1.1":                    {RootCAs: pool, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11},
		"an authority that is known": {MinVersion: tls.VersionTLS12},
	} {
		if conn, err := (&tls.Dialer{Config: cfg}).DialContext(s.t.Context(), "tcp", host); err == nil {
			_ = conn.Close()
			s.t.Errorf("%s: connected", name)
		}
	}
	plain := &served{t: s.t, site: "http://" + host}
	plain.visitor().wants(http.StatusBadRequest, "HTTP request to an HTTPS server", "/", nil)
}

func TestFailedLoginsAreThrottled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.serve("--users " + r.users())
	v := s.visitor()
	replies := make(chan reply)
	// More tries at once than one minute allows: each try is counted before its password is checked.
	const tries = 25
	for range tries {
		go func() { replies <- v.asks("/login", url.Values{"name": {"operator"}, "password": {"guess"}}) }()
	}
	throttled := 0
	for range tries {
		switch got := <-replies; {
		case got.status == http.StatusTooManyRequests && got.header.Get("Retry-After") != "" &&
			strings.Contains(got.text, "Too many logins have failed."):
			throttled++
		case got.status != http.StatusUnauthorized:
			t.Errorf("got %+v, want 401, or 429 and when to try again", got)
		}
	}
	if throttled == 0 {
		t.Errorf("%d wrong passwords at once were all looked at", tries)
	}
}

// guesses logs in with wrong passwords until that is throttled. name returns the name of each guess.
func (v *visitor) guesses(name func(i int) string) {
	v.t.Helper()
	for i := range 500 {
		switch got := v.asks("/login", url.Values{"name": {name(i)}, "password": {"guess"}}); got.status {
		case http.StatusTooManyRequests:
			return
		case http.StatusUnauthorized:
		default:
			v.t.Fatalf("guess %d: %+v", i, got)
		}
	}
	v.t.Errorf("500 wrong passwords were looked at")
}

// TestNamesThatChangeAreThrottled guesses with a new name and a new X-Forwarded-For each time.
func TestNamesThatChangeAreThrottled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v := r.serve("--users " + r.users()).visitor()
	v.guesses(func(i int) string {
		v.as = fmt.Sprint("10.0.0.", i)
		return fmt.Sprint("name", i)
	})
}

// TestFailuresFromElsewhereLockNobodyOut checks a browser in which a user has logged in, while others guess
// the password of the user, and another user behind the same proxy.
func TestFailuresFromElsewhereLockNobodyOut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.serve("--trusted-proxy 127.0.0.1 --users " + r.users())
	known, other, guesser := s.visitor(), s.visitor(), s.visitor()
	known.as, other.as, guesser.as = "192.0.2.1", "192.0.2.1", "192.0.2.2"
	known.wants(http.StatusSeeOther, "", "/login", credentials("operator"))
	guesser.guesses(func(int) string { return "operator" })
	known.wants(http.StatusSeeOther, "", "/login", credentials("operator"))
	other.wants(http.StatusSeeOther, "", "/login", credentials("viewer"))
}

func TestNobodyChangesAReadOnlyDashboard(t *testing.T) {
	r := newRig(t)
	r.night()
	v := r.serve("--read-only").visitor()
	v.wants(http.StatusOK, "mail", "/", nil)
	for _, form := range []url.Values{
		{"do": {"pause"}, "queue": {"mail"}},
		{"do": {"delete"}, "ref": {"mail/a3"}},
		{"do": {"requeue"}, "ref": {"mail/a1"}},
		{"do": {"run"}, "ref": {"reports/cursor.hourly"}},
	} {
		v.wants(http.StatusForbidden, "read-only", "/action", form)
	}
	v.wants(http.StatusForbidden, "", "/edit", url.Values{"ref": {"mail/a1"}, "params": {"{}"}})
	if actions := r.actions(); len(actions) != 0 {
		t.Errorf("the audit has %v, want nothing done", actions)
	}
}

// ask sends a GET request as a program on this machine does, with another host if that is not "".
func (s *served) ask(host, path string) int {
	s.t.Helper()
	q, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.site+path, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	q.Host = host
	answer, err := (&http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}).Do(q)
	if err != nil {
		s.t.Fatal(err)
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// TestWithoutUsersASecretIsWanted checks that no request is admitted because of its address: another user of
// this machine sends the same, and so does a proxy on it that adds no header and rewrites Host.
func TestWithoutUsersASecretIsWanted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.night()
	s := r.serve("")
	for path, want := range map[string]int{"/": http.StatusSeeOther, "/events": http.StatusUnauthorized} {
		if got := s.ask("", path); got != want {
			t.Errorf("GET %s without the secret: %d, want %d", path, got, want)
		}
	}
	s.visitor().wants(http.StatusOK, "mail", "/", nil)
	if _, token, _ := strings.Cut(s.secret(), "token="); len(token) < 22 || strings.Contains(s.said.String(), token) {
		t.Errorf("the secret %s is short, or printed: %s", token, s.said)
	}
	for path, want := range map[string]os.FileMode{s.file: 0o600, filepath.Dir(s.file): 0o700 | os.ModeDir} {
		if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
	s.ends()
	if _, err := os.Stat(filepath.Dir(s.file)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is there after the end: %v", err)
	}
}

// TestTheSecretIsPrintedToATerminalAlone checks where the address with the secret goes.
func TestTheSecretIsPrintedToATerminalAlone(t *testing.T) {
	for name, c := range map[string]struct {
		person bool
		width  int
		where  func(out, errs string) (with, without string)
	}{
		"standard error":  {true, 0, func(out, errs string) (string, string) { return errs, out }},
		"standard output": {false, 80, func(out, errs string) (string, string) { return out, errs }},
	} {
		r := newRig(t)
		r.person, r.width = c.person, c.width
		ctx, stop := context.WithCancel(t.Context())
		out, errs, code := &shared{}, &shared{}, make(chan int)
		go func() {
			code <- Run(ctx, words("serve --quiet --listen 127.0.0.1:0"), r.std(strings.NewReader(""), out, errs))
		}()
		testserver.Await(t, name+" has the secret", func() bool {
			with, _ := c.where(out.String(), errs.String())
			return strings.Contains(with, "/login?token=") && strings.HasSuffix(with, "\n")
		})
		if _, without := c.where(out.String(), errs.String()); without != "" {
			t.Errorf("%s is a terminal, and the other has %s", name, without)
		}
		stop()
		if got := <-code; got != Done {
			t.Errorf("it exits with %d: %s", got, errs)
		}
	}
}

// TestOthersAreLetInForTheHostsThatAreNamed checks that a page of another site whose name means the address
// of the dashboard reaches nothing.
func TestOthersAreLetInForTheHostsThatAreNamed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.night()
	open := r.serve("--insecure --listen 0.0.0.0:0 --host midge.example.org:8443 --host ::1")
	for host, want := range map[string]int{
		"midge.example.org": http.StatusOK, "Midge.Example.Org:8383": http.StatusOK, "[::1]": http.StatusOK,
		"[::1]:8383": http.StatusOK, "evil.example": http.StatusMisdirectedRequest, "": http.StatusMisdirectedRequest,
		"midge.example.org.evil.example": http.StatusMisdirectedRequest,
	} {
		if got := open.ask(host, "/"); got != want {
			t.Errorf("for %q: got %d, want %d", host, got, want)
		}
	}
	_, port, err := net.SplitHostPort(strings.TrimPrefix(open.site, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	r.says(Failed, "127.0.0.1:"+port+" is in use: another process listens there\nnext: the same command with --listen", "serve --listen 127.0.0.1:"+port)
}

func TestTheDashboardOutlivesTheStorage(t *testing.T) {
	t.Parallel()
	testserver.Require(t)
	server := testserver.Redis(t)
	proxy := testserver.NewProxy(t, server.Addr())
	r := on(t, "redis://"+proxy.Addr())
	r.ok("task add send_mail --queue mail --id a")
	r.says(Unreachable, "the storage redis://127.0.0.1:1 cannot be reached", "serve --listen 127.0.0.1:0 --storage redis://127.0.0.1:1")
	v := r.serve("").visitor()
	v.wants(http.StatusOK, "mail", "/queues", nil)
	proxy.Refuse()
	testserver.Await(t, "the dashboard says that the storage is away", func() bool {
		got := v.asks("/queues", nil)
		return got.status == http.StatusOK && strings.Contains(got.text, "The storage has not answered since") && strings.Contains(got.text, "mail")
	})
	if err := proxy.Accept(); err != nil {
		t.Fatal(err)
	}
	testserver.Await(t, "the dashboard says that it is back", func() bool {
		return !strings.Contains(v.asks("/queues", nil).text, "The storage has not answered since")
	})
	v.wants(http.StatusSeeOther, "", "/action", url.Values{"do": {"pause"}, "queue": {"mail"}})
	if got := r.ok("queue show mail -o json"); !strings.Contains(got, `"paused": true`) {
		t.Errorf("got %s, want the queue paused", got)
	}
}

// TestServeRefusesAKeyOfAnotherCertificate checks that serve fails before it serves anything.
func TestServeRefusesAKeyOfAnotherCertificate(t *testing.T) {
	r := newRig(t)
	cert, _, _ := certificate(t)
	_, key, _ := certificate(t)
	got := r.says(BadInput, "want a certificate and its key in PEM", "serve --tls-cert "+cert+" --tls-key "+key)
	if strings.Contains(got.err, "is at https://") {
		t.Errorf("it says %s", got.err)
	}
	if text, err := os.ReadFile(key); err != nil || bytes.Contains([]byte(got.err), bytes.Split(text, []byte("\n"))[1]) {
		t.Errorf("it shows the key: %s, %v", got.err, err)
	}
}
