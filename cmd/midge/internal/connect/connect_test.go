package connect

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/midgehq/midge/storage"
)

// home writes a configuration file and returns an environment that points to it.
func home(t *testing.T, text string, mode os.FileMode, more ...string) func(string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "midge", "config.toml")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"XDG_CONFIG_HOME": dir}
	for i := 0; i < len(more); i += 2 {
		env[more[i]] = more[i+1]
	}
	return func(name string) string { return env[name] }
}

const profiles = `
default = "local"
[profiles.local]
storage = "redis://localhost:6379"
[profiles.production]
storage = "postgres://ann:s3cret@db.example/app?password=s3cret"
schema = "jobs"
`

func TestTheNearestNameOfAStorageWins(t *testing.T) {
	for _, c := range []struct {
		choice Choice
		env    []string
		want   string
	}{
		{Choice{}, nil, "local, redis://localhost:6379"},
		{Choice{}, []string{EnvProfile, "production"}, "production, postgres://db.example/app (schema jobs)"},
		{Choice{}, []string{EnvStorage, "sqlite:jobs.db", EnvProfile, "production"}, "sqlite:jobs.db"},
		{Choice{Profile: "production"}, []string{EnvStorage, "sqlite:jobs.db"}, "production, postgres://db.example/app (schema jobs)"},
		{Choice{Profile: "production", Schema: "other"}, nil, "production, postgres://db.example/app (schema other)"},
		{Choice{Storage: "rediss://:p@ss/w?rd#1@h:1/2", Prefix: "x"}, []string{EnvProfile, "local"}, "rediss://h:1/2 (prefix x)"},
	} {
		target, err := Choose(c.choice, home(t, profiles, 0o600, c.env...))
		if err != nil || target.String() != c.want {
			t.Errorf("%+v, %v: got %s, %v; want %s", c.choice, c.env, target, err, c.want)
		}
	}
}

func TestAChoiceThatMakesNoSenseIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		choice Choice
		text   string
	}{
		"two":                 {Choice{Storage: "redis://x", Profile: "local"}, profiles},
		"no such profile":     {Choice{Profile: "none"}, profiles},
		"prefix of postgres":  {Choice{Profile: "production", Prefix: "x"}, profiles},
		"schema of redis":     {Choice{Schema: "x"}, profiles},
		"not TOML":            {Choice{}, "default = s3cret\n"},
		"an unknown setting":  {Choice{}, "default = 'a'\n[profiles.a]\nstorge = 'redis://x'\n"},
		"two of one profile":  {Choice{Profile: "a"}, "[profiles.a]\nstorage = 'redis://x'\nstorage_file = '/x'\n"},
		"none of one profile": {Choice{Profile: "a"}, "[profiles.a]\nprefix = 'x'\n"},
	} {
		var invalid *storage.InvalidError
		if _, err := Choose(c.choice, home(t, c.text, 0o600)); !errors.As(err, &invalid) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: got %v, want an *InvalidError without a password", name, err)
		}
	}
	if _, err := Choose(Choice{}, home(t, "", 0o600)); !errors.As(err, new(*NoStorageError)) {
		t.Errorf("nothing named: got %v, want a *NoStorageError", err)
	}
}

func TestASecretMayStandInAFileOfItsOwn(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(secret, []byte("redis://:s3cret@h:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	target, err := Choose(Choice{Profile: "a"}, home(t, "[profiles.a]\nstorage_file = '"+secret+"'\n", 0o644))
	if err != nil || target.url != "redis://:s3cret@h:1" || target.String() != "a, redis://h:1" || target.Warning != "" {
		t.Errorf("got %s and warning %q, %v; want the URL of the file, and no warning", target, target.Warning, err)
	}
}

func TestAPasswordThatOthersCanReadIsWarnedOf(t *testing.T) {
	for mode, want := range map[os.FileMode]bool{0o600: false, 0o644: true} {
		target, err := Choose(Choice{Profile: "production"}, home(t, profiles, mode))
		if err != nil || (target.Warning != "") != want {
			t.Errorf("mode %o: got warning %q, %v; want one: %t", mode, target.Warning, err, want)
		}
	}
}

func TestNoPasswordOfAConnectionStringIsShown(t *testing.T) {
	for _, url := range []string{"host=db password=s3:cret", "host=db password='s3:cret' user=x@y", ":s3cret@h", "s3/cret:x", "s3cret"} {
		target, err := Choose(Choice{Storage: url}, func(string) string { return "" })
		if err != nil || target.Address() != "***" {
			t.Errorf("%q: got %s, %v; want ***", url, target.Address(), err)
		}
		if _, err := target.Open(t.Context()); err == nil || strings.Contains(err.Error(), "s3") || strings.Contains(err.Error(), "cret") {
			t.Errorf("%q: got %v, want an error without the password", url, err)
		}
	}
}

// An '@' behind a '?' may be the end of a password with a '?', or be within an option that is a password.
func TestAnOptionIsNoPartOfAnAddress(t *testing.T) {
	for url, want := range map[string]string{
		"redis+sentinel://u:p@h:1/main?sentinel_password=s3@cret": "redis+sentinel://***",
		"postgres://h/db?password=s3@cret":                        "postgres://***",
		"redis://:s3?cr=@et@h:1":                                  "redis://***",
		"redis://u:s3@cret@h:1/2?client_name=a":                   "redis://h:1/2",
	} {
		if target, err := Choose(Choice{Storage: url}, func(string) string { return "" }); err != nil || target.Address() != want {
			t.Errorf("%s: got %s, %v; want %s", url, target.Address(), err, want)
		}
	}
}

func TestAPathAloneIsToldItsURL(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	target, err := Choose(Choice{Storage: path}, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := target.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "sqlite:"+path) {
		t.Errorf("got %v, want the URL to type", err)
	}
}

func TestAMistypedPathMakesNoFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	target, err := Choose(Choice{Storage: "sqlite:" + path}, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	var invalid *storage.InvalidError
	if _, err := target.Open(t.Context()); !errors.As(err, &invalid) {
		t.Errorf("got %v, want an *InvalidError", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is there (%v)", err)
	}
}
