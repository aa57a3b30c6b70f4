package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/storage"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	listen, users, cert, key, base, name string
	hosts, redact, proxies, origins      []string
	readOnly, insecure                   bool
}

func (a *app) serve() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve the dashboard to a browser",
		Long: "serve serves the dashboard, by default only to this machine. To serve other\n" +
			"machines by --listen, it requires --tls-cert, --tls-key and --users, or\n" +
			"--insecure if a proxy in front of it does the encryption and the login.\n\n" +
			"Without --users it prints an address with a secret, which is valid until it\n" +
			"ends. Whoever opens that address is an admin. It prints the address to a terminal\n" +
			"alone, and otherwise writes it to a file that nobody else may read.",
		Example: "  midge serve\n  midge user set ann --role operator --users users.txt\n" +
			"  midge serve --listen :8443 --users users.txt --tls-cert cert.pem --tls-key key.pem",
		Args: noArguments,
	}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8383", "the `address` to listen on")
	flags.StringVar(&f.users, "users", "", "the `file` of users who may log in (midge user)")
	flags.StringVar(&f.cert, "tls-cert", "", "the `file` of the certificate")
	flags.StringVar(&f.key, "tls-key", "", "the `file` of the certificate's key")
	flags.StringVar(&f.base, "base", "", "the `path` under which a proxy serves the dashboard, such as /midge")
	flags.StringVar(&f.name, "name", "",
		"a `name` that the pages show, such as production (default: the name of the profile)")
	flags.StringArrayVar(&f.proxies, "trusted-proxy", nil,
		"the `address` or network of a proxy whose X-Forwarded-For names the client; may be repeated")
	flags.StringArrayVar(&f.origins, "trusted-origin", nil,
		"accept forms of pages of this `origin`, such as https://jobs.example.org, though a proxy replaces "+
			"the host; may be repeated")
	flags.StringArrayVar(&f.redact, "redact", nil,
		"hide the fields that match this `pattern`, such as params.card.*; may be repeated")
	flags.BoolVar(&f.readOnly, "read-only", false, "refuse all changes")
	flags.BoolVar(&f.insecure, "insecure", false,
		"serve other machines without --users or TLS; without --users every visitor is an admin")
	flags.StringArrayVar(&f.hosts, "host", nil,
		"with --insecure and without --users, answer requests for this `host` alone; may be repeated")
	cmd.RunE = a.long(func(ctx context.Context, _ []string) error { return a.serveDashboard(ctx, &f) })
	return cmd
}

// check refuses flags that would show the tasks to everybody. It runs before anything is opened.
func (f *serveFlags) check() error {
	host, port, err := net.SplitHostPort(f.listen)
	if _, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil {
		return storage.Invalid("--listen", f.listen, "a host and a port up to 65535, such as 127.0.0.1:8383")
	}
	if (f.cert == "") != (f.key == "") {
		return storage.Invalid("flags", "--tls-cert or --tls-key alone", "both, or none")
	}
	switch {
	case f.open() && len(f.hosts) == 0:
		return &exitError{
			code: BadInput,
			text: "--insecure without --users makes every visitor an admin: it wants --host, so that a page of " +
				"another site cannot reach the dashboard by a name of its own",
			next: "the same command with --host and the name by which browsers open the dashboard",
		}
	case !f.open() && len(f.hosts) > 0:
		return storage.Invalid("flags", "--host", "--host with --insecure and without --users")
	}
	ip := net.ParseIP(host)
	if f.insecure || host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	if f.users == "" || f.cert == "" {
		return &exitError{
			code: BadInput,
			text: "--listen " + f.listen +
				" is open to other machines: it wants --users, --tls-cert and --tls-key, or --insecure",
			next: "midge serve --listen 127.0.0.1:8383   (and an ssh tunnel to it)",
		}
	}
	return nil
}

// open reports whether every visitor is an admin.
func (f *serveFlags) open() bool { return f.insecure && f.users == "" }

func (a *app) serveDashboard(ctx context.Context, f *serveFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	redaction, err := access.Redact(f.redact...)
	if err != nil {
		return err
	}
	var secure *keyPair
	if f.cert != "" {
		if secure, err = loadKeyPair(f.cert, f.key); err != nil {
			return err
		}
	}
	trusted, err := networksOf("--trusted-proxy", f.proxies)
	if err != nil {
		return err
	}
	cfg := dashboard.Config{
		Base: f.base, Name: f.name, ReadOnly: f.readOnly, Redact: redaction,
		TrustedProxies: trusted, TrustedOrigins: f.origins,
		Log: slog.New(slog.NewTextHandler(a.std.Err, nil)),
	}
	switch {
	case f.users != "":
		cfg.Users, err = access.OpenUsers(f.users)
		if errors.Is(err, fs.ErrNotExist) {
			return storage.Invalid("--users", f.users, "a file that midge user set NAME --users FILE has written")
		} else if err != nil {
			return badInput("the file of users: %v", err)
		}
	case f.open():
		cfg.Who = func(*http.Request) (access.User, bool) {
			return access.User{
				Name: "anybody",
				Role: access.Admin,
			}, true
		}
	default:
		cfg.Token = rand.Text()
	}
	if err := a.openAny(ctx); err != nil {
		return err
	}
	if cfg.Name == "" {
		cfg.Name = a.target.Profile
	}
	if cfg.Accepted, err = a.accepted(); err != nil {
		return err
	}
	board, err := dashboard.Handler(a.store, cfg)
	if err != nil {
		return err
	}
	return a.listen(ctx, f, &site{board, cfg.Token, trusted, secure})
}

// site is what serve serves.
type site struct {
	*dashboard.Dashboard

	token   string         // admits to it, "" if it has users
	trusted []netip.Prefix // the addresses of proxies
	secure  *keyPair       // nil for no TLS
}

// shutdownTime is the time that open requests have to finish when the command ends.
const shutdownTime = 5 * time.Second

// listen serves until ctx ends, and then waits for open requests. Requests that only read end with ctx,
// because live pages would not end by themselves. Actions have shutdownTime to finish.
func (a *app) listen(ctx context.Context, f *serveFlags, s *site) error {
	socket, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.listen)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return &exitError{
			code: Failed, text: f.listen + " is in use: another process listens there",
			next: "the same command with --listen and another port, such as 127.0.0.1:8384",
		}
	case err != nil:
		return &exitError{code: Failed, text: f.listen + " cannot be listened on: " + err.Error()}
	}
	defer func() { _ = socket.Close() }() // the server has closed it, if it began to serve
	acting, cut := context.WithCancel(context.WithoutCancel(ctx))
	var kept sync.WaitGroup
	defer func() { cut(); kept.Wait() }()
	server := httpServer(ctx, acting, f.named(s), newConns(s.trusted))
	if s.secure != nil {
		server.Handler, server.TLSConfig = strict(server.Handler), s.secure.config()
		kept.Go(s.secure.reloads(acting, func(err error) { a.notef("warning: %v", err) }))
	}
	forget, err := a.announce(f, socket.Addr(), s.token)
	if err != nil {
		return err
	}
	defer forget()
	kept.Go(func() { s.Run(acting) })
	down := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(down)
		end, cancel := context.WithTimeout(acting, shutdownTime)
		defer cancel()
		_ = server.Shutdown(end) // requests that take longer are cut off
	})
	if s.secure != nil {
		err = server.ServeTLS(socket, "", "")
	} else {
		err = server.Serve(socket)
	}
	if !stop() {
		<-down // the caller closes the storage after this
		return nil
	}
	return fmt.Errorf("serve: %w", err)
}

// announce prints the address of the dashboard. If a token admits to it, announce also prints the address
// with the token, to a terminal alone: others may read a log. Without a terminal it writes that address to a
// file that only this user can read. The caller calls forget when the token has lost its validity.
func (a *app) announce(f *serveFlags, at net.Addr, token string) (forget func(), err error) {
	scheme := "http"
	if f.cert != "" {
		scheme = "https"
	}
	address := fmt.Sprintf("%s://%s%s/", scheme, at, f.base)
	a.notef("the dashboard of %s is at %s", a.target, address)
	if token == "" {
		return func() {}, nil
	}
	address += "login?token=" + token
	const what = "the address with its secret, valid until this command ends: "
	switch {
	case a.std.Person:
		_, err = fmt.Fprintln(a.std.Err, what+address)
		return func() {}, err
	case a.std.Terminal:
		_, err = fmt.Fprintln(a.std.Out, what+address)
		return func() {}, err
	}
	dir, err := os.MkdirTemp("", "midge-serve-") // a new folder for this user alone
	if err != nil {
		return nil, fmt.Errorf("write the address of the dashboard: %w", err)
	}
	forget = func() { _ = os.RemoveAll(dir) }
	file := filepath.Join(dir, "address")
	if err := os.WriteFile(file, []byte(address+"\n"), 0o600); err != nil {
		forget()
		return nil, fmt.Errorf("write the address of the dashboard: %w", err)
	}
	_, err = fmt.Fprintln(a.std.Err, what+"see the file "+file)
	return forget, err
}
