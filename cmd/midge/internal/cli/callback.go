package cli

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/work/callback"
)

// EnvCallbackSecret is the variable with the secrets of midge callback, with a space between two. They are in
// no flag, because the list of processes shows flags.
const EnvCallbackSecret = "MIDGE_CALLBACK_SECRET"

// callbackConcurrency is how many requests are under way at once by default. They wait for others most of
// the time, so that the number of processors does not matter to them.
const callbackConcurrency = 64

// callbackFlags are the flags of callback.
type callbackFlags struct {
	config, kind, url    string
	secretFiles          []string
	unsigned             bool
	queues, allow        []string
	concurrency, perHost int
	time                 span
}

func (a *app) callback() *cobra.Command {
	var f callbackFlags
	cmd := &cobra.Command{
		Use: "callback", Short: "Run tasks by posting them to an HTTP endpoint",
		Long: "callback posts the parameters of each task to the URL of its kind, signed as\n" +
			"Standard Webhooks says, until it is interrupted. A 2xx completes the task, 429 and\n" +
			"503 are heeded with their Retry-After, other 4xx make it dead, and everything else\n" +
			"is retried.\n\n" +
			"Secrets are in files that nobody else may read, or in the variable\n" +
			EnvCallbackSecret + ". --config names a file with several kinds:\n\n" +
			"  {\"queues\": [\"orders\"], \"kinds\": {\"order.paid\": {\n" +
			"    \"url\": \"https://shop.example.org/paid\", \"secrets\": [\"$PAID\", \"paid.key\"]}}}",
		Example: "  midge callback --kind order.paid --url https://shop.example.org/paid --secret-file paid.key\n" +
			"  midge callback --config callbacks.json --queue orders --concurrency 200",
		Args: noArguments,
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "the `file` with the kinds and their URLs, as JSON")
	flags.StringVar(&f.kind, "kind", "", "post the tasks of this `kind`")
	flags.StringVar(&f.url, "url", "",
		"post to this `URL`; one that holds a secret belongs in the file of --config")
	flags.StringArrayVar(&f.secretFiles, "secret-file", nil,
		"the `file` with the secret of the signature, whsec_…; twice while the secret changes")
	flags.BoolVar(&f.unsigned, "unsigned", false, "post without a signature")
	flags.StringArrayVar(&f.queues, "queue", nil,
		"serve this `queue`, the first one first; may be repeated (default: "+midge.DefaultQueue+")")
	flags.IntVar(&f.concurrency, "concurrency", 0, fmt.Sprintf("run this `number` of tasks at once (default %d)",
		callbackConcurrency))
	flags.IntVar(&f.perHost, "per-host", 0, "post this `number` of requests to a host at once (default 16)")
	flags.Var(&f.time, "request-timeout", "the `time` for a request and its answer (default 30s)")
	flags.StringArrayVar(&f.allow, "allow", nil,
		"allow the addresses of this `network` inside, such as 10.0.0.0/8; may be repeated")
	cmd.RunE = a.long(func(ctx context.Context, _ []string) error {
		for _, name := range []string{"concurrency", "per-host", "request-timeout"} {
			if flag := flags.Lookup(name); flag.Changed && flag.Value.String() == flag.DefValue {
				return storage.Invalid("--"+name, 0, "more than 0, or no such flag for the default")
			}
		}
		return a.runCallbacks(ctx, &f)
	})
	return cmd
}

// callbacks holds the kinds to run, with the queues and the concurrency of the runner.
type callbacks struct {
	kinds       map[string]callback.Config
	queues      []string
	concurrency int
}

// runCallbacks serves the queues until ctx ends, and then drains.
func (a *app) runCallbacks(ctx context.Context, f *callbackFlags) error {
	level := slog.LevelInfo
	if a.quiet {
		level = slog.LevelWarn
	}
	log := slog.New(discreet{slog.NewTextHandler(a.std.Err, &slog.HandlerOptions{Level: level})})
	c, err := a.callbacks(f, log)
	if err != nil {
		return err
	}
	if err := a.open(ctx); err != nil {
		return err
	}
	runner, err := midge.NewRunner(a.store, midge.RunnerConfig{
		Queues: c.queues, Concurrency: c.concurrency, Slog: log,
	})
	if err != nil {
		return err
	}
	if err := callback.HandleAll(runner, c.kinds); err != nil {
		return err
	}
	a.notef("posting %s of %s of %s", strings.Join(slices.Sorted(maps.Keys(c.kinds)), ", "),
		strings.Join(c.queues, ", "), a.target)
	return runner.Run(ctx)
}

// callbacks reads the flags and the files that they name.
func (a *app) callbacks(f *callbackFlags, log *slog.Logger) (*callbacks, error) {
	c, allow, err := a.callbackKinds(f)
	if err != nil {
		return nil, err
	}
	if len(f.queues) > 0 {
		c.queues = f.queues
	}
	if len(c.queues) == 0 {
		c.queues = []string{midge.DefaultQueue}
	}
	for _, q := range c.queues {
		if err := checkOwn(q); err != nil {
			return nil, err
		}
	}
	if f.concurrency != 0 {
		c.concurrency = f.concurrency
	}
	if c.concurrency == 0 {
		c.concurrency = callbackConcurrency
	}
	if c.concurrency < 1 || c.concurrency > mostAtOnce {
		return nil, storage.Invalid("--concurrency", c.concurrency, "1 to %d", mostAtOnce)
	}
	if len(f.allow) > 0 {
		allow = f.allow
	}
	networks, err := networksOf("--allow", allow)
	if err != nil {
		return nil, err
	}
	for _, kind := range slices.Sorted(maps.Keys(c.kinds)) {
		cfg := c.kinds[kind]
		cfg.Allow, cfg.Log = networks, log
		if err := storage.CheckName("kind", kind); err != nil {
			return nil, err
		}
		if err := cfg.Check(); err != nil {
			return nil, fmt.Errorf("kind %s: %w", kind, err)
		}
		c.kinds[kind] = cfg
	}
	return c, nil
}

// callbackKinds returns the kinds of the file of --config, or the kind of the flags, and the allowed networks
// of the file.
func (a *app) callbackKinds(f *callbackFlags) (c *callbacks, allow []string, err error) {
	single := f.kind != "" || f.url != "" || len(f.secretFiles) > 0 || f.unsigned || f.perHost != 0 ||
		f.time.Duration != 0
	switch {
	case f.config != "" && single:
		return nil, nil, storage.Invalid("flags", "--config with flags of a single kind",
			"--config, or --kind with --url and --secret-file")
	case f.config != "":
		return a.callbackFile(f.config)
	case f.kind == "" || f.url == "":
		return nil, nil, badInput("give --kind and --url, or --config")
	}
	cfg := callback.Config{URL: f.url, Unsigned: f.unsigned, PerHost: f.perHost, Timeout: f.time.Duration}
	if at := strings.LastIndexByte(f.url, '@'); at >= 0 && strings.Contains(f.url[:at], "//") {
		return nil, nil, storage.Invalid("--url", "with a user", "a URL with a user in the file of --config")
	}
	if !f.unsigned {
		if cfg.Secrets, err = a.secrets(f.secretFiles); err != nil {
			return nil, nil, err
		}
	} else if len(f.secretFiles) > 0 {
		return nil, nil, storage.Invalid("flags", "--unsigned with --secret-file", "one of them")
	}
	return &callbacks{kinds: map[string]callback.Config{f.kind: cfg}}, nil, nil
}

// networksOf parses networks and addresses.
func networksOf(what string, texts []string) ([]netip.Prefix, error) {
	networks := make([]netip.Prefix, 0, len(texts))
	for _, text := range texts {
		network, err := netip.ParsePrefix(text)
		if addr, e := netip.ParseAddr(text); e == nil {
			network, err = addr.Prefix(addr.BitLen())
		}
		if err != nil {
			return nil, storage.Invalid(what, text, "an address or a network, such as 10.0.0.0/8")
		}
		networks = append(networks, network.Masked())
	}
	return networks, nil
}
