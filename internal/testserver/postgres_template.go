package testserver

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// initdbArgs are the arguments of initdb, after the name of the data directory.
var initdbArgs = []string{"--username=midge", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"}

// dropTemplate0 drops the database template0, which only new databases with another encoding need. It is a third
// of the files that each server copies, and a file system may take a millisecond to make a file.
const dropTemplate0 = "UPDATE pg_database SET datistemplate = false WHERE datname = 'template0';\n" +
	"DROP DATABASE template0;\n"

// create makes the data directory and configures it. initdb takes a second of a processor, so
// each further server copies the directory that it made, from the user's cache.
func (s *PostgresServer) create() error {
	template := s.templatePath()
	if template == "" || os.CopyFS(s.dataPath(), os.DirFS(template)) != nil {
		if err := s.initialize(template); err != nil {
			return err
		}
	} else if err := s.ownData(); err != nil {
		return fmt.Errorf("testserver: own data: %w", err)
	}
	return s.configure(s.config)
}

// initialize makes the data directory with initdb, and saves it as the template if it may be one.
func (s *PostgresServer) initialize(template string) error {
	if err := os.RemoveAll(s.dataPath()); err != nil {
		return fmt.Errorf("testserver: delete data: %w", err)
	}
	err := s.run("", "initdb", append([]string{"--pgdata", s.dataPath()}, initdbArgs...)...)
	if err != nil || template == "" {
		return err
	}
	if err := s.run(dropTemplate0, "postgres", "--single", "-D", s.dataPath(), "postgres"); err != nil {
		return err
	}
	s.saveTemplate(template)
	return nil
}

// templatePath returns where the template of this version of PostgreSQL is stored, or "" if there
// is no place for it, or the server has an identifier of its own.
func (s *PostgresServer) templatePath() string {
	if s.own {
		return ""
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	version, err := exec.Command(filepath.Join(s.bin, "initdb"), "--version").Output()
	if err != nil {
		return ""
	}
	sum := sha256.Sum256([]byte(s.bin + string(version) + strings.Join(initdbArgs, " ") + dropTemplate0))
	return filepath.Join(cache, "midge-testserver", fmt.Sprintf("postgres-%x", sum[:8]))
}

// saveTemplate stores a copy of the data directory, which no server has used yet. It ignores
// errors: without a template, the next server runs initdb too.
func (s *PostgresServer) saveTemplate(template string) {
	if err := os.MkdirAll(filepath.Dir(template), 0o755); err != nil {
		return
	}
	unfinished, err := os.MkdirTemp(filepath.Dir(template), "unfinished-")
	if err != nil {
		return
	}
	if err = os.CopyFS(unfinished, os.DirFS(s.dataPath())); err == nil {
		err = os.Rename(unfinished, template) // fails if another process was faster
	}
	if err != nil {
		_ = os.RemoveAll(unfinished)
	}
}

// ownData makes the account the owner of a data directory that this process has copied, with the
// mode that PostgreSQL requires.
func (s *PostgresServer) ownData() error {
	if err := os.Chmod(s.dataPath(), 0o700); err != nil {
		return err
	}
	return filepath.WalkDir(s.dataPath(), func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return s.account.own(path)
	})
}
