package connect

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/midgehq/midge/storage"
)

// file is the configuration of a user:
//
//	default = "local"
//
//	[profiles.local]
//	storage = "redis://localhost:6379"
//
//	[profiles.production]
//	storage_file = "/run/secrets/midge"
type file struct {
	// Default is the profile to use if none is named.
	Default  string             `toml:"default"`
	Profiles map[string]profile `toml:"profiles"`
}

// profile names a storage, by its URL or by a file that holds the URL and nothing else.
type profile struct {
	Storage     string `toml:"storage"`
	StorageFile string `toml:"storage_file"`
	Prefix      string `toml:"prefix"`
	Schema      string `toml:"schema"`
	// Accept lists the findings of doctor that are known.
	Accept []string `toml:"accept"`
}

// File returns the path of the user's configuration file. Its folder is the folder that XDG_CONFIG_HOME
// names, or else that of [os.UserConfigDir].
func File(env func(string) string) (string, error) {
	dir := env("XDG_CONFIG_HOME")
	if dir == "" {
		var err error
		if dir, err = os.UserConfigDir(); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, "midge", "config.toml"), nil
}

// Profiles returns the names of the profiles in order, and the name of the default profile.
func Profiles(env func(string) string) (names []string, byDefault string, err error) {
	path, err := File(env)
	if err != nil {
		return nil, "", err
	}
	f, err := read(path)
	return slices.Sorted(maps.Keys(f.Profiles)), f.Default, err
}

// fromProfile returns the target of a profile, or of the default profile if name is empty.
func fromProfile(name, from string, env func(string) string) (Target, error) {
	path, err := File(env)
	if err != nil {
		if name == "" { // a process without a home has no configuration
			return Target{}, &NoStorageError{File: "the configuration"}
		}
		return Target{}, err
	}
	f, err := read(path)
	if err != nil {
		return Target{}, err
	}
	if name == "" {
		if name = f.Default; name == "" {
			return Target{}, &NoStorageError{File: path}
		}
	}
	p, ok := f.Profiles[name]
	if !ok {
		known := "a profile of " + path
		if len(f.Profiles) > 0 {
			known = strings.Join(slices.Sorted(maps.Keys(f.Profiles)), ", ") + " (of " + path + ")"
		}
		return Target{}, storage.Invalid("profile", name, "%s", known)
	}
	target := Target{Profile: name, From: from, prefix: p.Prefix, schema: p.Schema}
	target.Accept = strings.Join(p.Accept, "\n")
	if target.url, err = p.url(name, path); err != nil {
		return Target{}, err
	}
	if u, err := url.Parse(p.Storage); err == nil && u.User != nil && readable(path) {
		target.Warning = path + " holds a password and other users can read it: chmod 600 " + path
	}
	return target, nil
}

// read reads the configuration file. A missing file is an empty configuration.
func read(path string) (f file, err error) {
	meta, err := toml.DecodeFile(path, &f)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return file{}, nil
	case err != nil:
		at := ""
		if parse := (toml.ParseError{}); errors.As(err, &parse) { // the text of the error may quote a password
			at = fmt.Sprintf(", line %d", parse.Position.Line)
		}
		return file{}, storage.Invalid("configuration", path+at, "TOML that can be read")
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		return file{}, storage.Invalid("setting", unknown[0].String(),
			"default, or storage, storage_file, prefix, schema or accept of a profile, in %s", path)
	}
	return f, nil
}

// url returns the URL of the storage of a profile.
func (p profile) url(name, path string) (string, error) {
	switch {
	case (p.Storage == "") == (p.StorageFile == ""):
		return "", storage.Invalid("profile", name, "storage or storage_file, and not both, in %s", path)
	case p.Storage != "":
		return p.Storage, nil
	}
	text, err := os.ReadFile(p.StorageFile)
	if err != nil {
		return "", fmt.Errorf("read the storage_file of profile %s: %w", name, err)
	}
	return strings.TrimSpace(string(text)), nil
}

// readable reports whether users other than the owner can read a file. It is false on Windows.
func readable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o044 != 0
}
