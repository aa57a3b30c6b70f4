package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/internal/private"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/work/callback"
)

// maxCallbackFile bounds the file of --config, in bytes.
const maxCallbackFile = 1 << 20

// callbackFile is the JSON of the file of --config.
type callbackFile struct {
	Queues      []string                `json:"queues"`
	Concurrency *int                    `json:"concurrency"` // nil for the default
	Allow       []string                `json:"allow"`
	Kinds       map[string]callbackKind `json:"kinds"`
}

// callbackKind is the JSON of a kind.
type callbackKind struct {
	URL      string   `json:"url"`
	Secrets  []string `json:"secrets"` // "$VARIABLE", or the path of a file
	Unsigned bool     `json:"unsigned"`
	Timeout  string   `json:"timeout"`
	PerHost  *int     `json:"per_host"` // nil for the default
	Headers  []string `json:"headers"`
}

// callbackFile reads the file of --config, and the secrets that it names.
func (a *app) callbackFile(path string) (c *callbacks, allow []string, err error) {
	text, _, err := private.Read(path, maxCallbackFile) // a URL in it may hold a secret
	if err != nil {
		return nil, nil, badInput("the file of --config cannot be read: %v", err)
	}
	in := json.NewDecoder(strings.NewReader(text))
	in.DisallowUnknownFields()
	var file callbackFile
	if err = in.Decode(&file); err == nil {
		if _, more := in.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("more than one value")
		}
	}
	if other := (*json.UnmarshalTypeError)(nil); errors.As(err, &other) {
		return nil, nil, badInput("the file of --config has a %s as %s: want another type",
			other.Value, other.Field)
	} else if err != nil {
		return nil, nil, badInput("the file of --config is no such JSON: %s",
			strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, twice := payload.NamesOf([]byte(text)); twice != "" {
		twice = storage.PrintableText(twice, storage.MaxName)
		return nil, nil, storage.Invalid("file of --config", "with "+twice+" twice", "each name once")
	}
	if len(file.Kinds) == 0 {
		return nil, nil, storage.Invalid("kinds in the file of --config", "none", "at least one")
	}
	c = &callbacks{kinds: make(map[string]callback.Config, len(file.Kinds)), queues: file.Queues}
	if c.concurrency, err = notZero("concurrency", file.Concurrency); err != nil {
		return nil, nil, err
	}
	for kind := range file.Kinds {
		if c.kinds[kind], err = a.callbackOf(file.Kinds[kind], filepath.Dir(path)); err != nil {
			return nil, nil, fmt.Errorf("kind %s: %w", kind, err)
		}
	}
	return c, file.Allow, nil
}

// callbackOf makes the configuration of a kind. A path begins at the folder.
func (a *app) callbackOf(k callbackKind, folder string) (cfg callback.Config, err error) {
	cfg = callback.Config{URL: k.URL, Unsigned: k.Unsigned, Headers: k.Headers}
	if cfg.PerHost, err = notZero("per_host", k.PerHost); err != nil {
		return cfg, err
	}
	if k.Timeout != "" {
		var timeout span
		if err := timeout.Set(k.Timeout); err != nil {
			return cfg, fmt.Errorf("the timeout: %w", err)
		}
		if cfg.Timeout, err = notZero("timeout", &timeout.Duration); err != nil {
			return cfg, err
		}
	}
	cfg.Secrets, err = a.namedSecrets(folder, k.Secrets)
	return cfg, err
}

// notZero returns a value of the file of --config, 0 if the file has none. It refuses a zero in the file,
// because a zero means the default.
func notZero[N int | time.Duration](what string, n *N) (N, error) {
	switch {
	case n == nil:
		return 0, nil
	case *n == 0:
		return 0, storage.Invalid(what, *n, "more than 0, or none for the default")
	}
	return *n, nil
}

// namedSecrets returns the secrets that a file of --config names. A path begins at the folder of that file.
func (a *app) namedSecrets(folder string, names []string) ([]string, error) {
	secrets := make([]string, 0, len(names))
	for _, name := range names {
		variable, isVariable := strings.CutPrefix(name, "$")
		secret := a.std.Env(variable)
		switch {
		case strings.Contains(name, "whsec_"):
			return nil, storage.Invalid("secret in the file of --config", "***",
				"the path of its file, or $ and a variable")
		case isVariable && secret == "":
			return nil, storage.Invalid("variable of a secret", name, "one that is set")
		case !isVariable:
			if !filepath.IsAbs(name) {
				name = filepath.Join(folder, name)
			}
			var err error
			if secret, err = ownSecret(name); err != nil {
				return nil, err
			}
		}
		secrets = append(secrets, strings.TrimSpace(secret))
	}
	return secrets, nil
}

// secrets returns the secrets of files, or else those of the environment.
func (a *app) secrets(files []string) ([]string, error) {
	if len(files) == 0 {
		secrets := strings.Fields(a.std.Env(EnvCallbackSecret))
		if len(secrets) == 0 {
			return nil, badInput("give --secret-file, set %s, or give --unsigned", EnvCallbackSecret)
		}
		return secrets, nil
	}
	secrets := make([]string, len(files))
	for i, file := range files {
		var err error
		if secrets[i], err = ownSecret(file); err != nil {
			return nil, err
		}
	}
	return secrets, nil
}

// ownSecret returns the secret in a file that only its owner may read.
func ownSecret(path string) (string, error) {
	text, _, err := private.Read(path, 4<<10)
	if err != nil {
		if path := (*fs.PathError)(nil); errors.As(err, &path) {
			err = path.Err
		}
		return "", badInput("the secret in %s cannot be read: %v", path, err)
	}
	return strings.TrimSpace(text), nil
}
