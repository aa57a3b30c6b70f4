package cli

import (
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/midgehq/midge/storage"
)

// flagWants describes the values of a type of flags, by the name of the type in pflag.
var flagWants = map[string]string{
	"int": "a whole number, such as 50", "int64": "a whole number, such as 50",
	"float64": "a number, such as 50 or 0.5", "bool": "true or false",
}

// flagError returns the error for flags that cannot be parsed. It names the flag, the value, and the wanted
// values.
func flagError(cmd *cobra.Command, err error) error {
	var wrong *pflag.InvalidValueError
	if !errors.As(err, &wrong) {
		text := err.Error()
		if strings.Contains(cmd.Use, "FILTER") && strings.HasPrefix(text, "unknown shorthand flag") {
			text += "\na filter that begins with - stands behind --, with all flags before it"
		}
		return usage(cmd, "%s", text)
	}
	want := flagWants[wrong.GetFlag().Value.Type()]
	var invalid *storage.InvalidError
	switch {
	case errors.As(err, &invalid):
		want = invalid.Want
	case errors.Is(err, strconv.ErrRange):
		want = "a number of at most 18 digits"
	}
	return usage(cmd, "%v", storage.Invalid("--"+wrong.GetFlag().Name, wrong.GetValue(), "%s", want))
}

// neverEmpty describes the values of the flags for which an empty one would mean another storage, task or
// file, or less protection, by the name of the flag.
var neverEmpty = map[string]string{
	"storage": "the URL of a storage", "profile": "the name of a profile", "prefix": "a prefix of keys",
	"schema": "the name of a schema", "river-schema": "the name of a schema", "backup": "a new file",
	"id": "the id of a task", "unique": "a unique key",
	"kind": "a kind of tasks", "zone": "a time zone such as Europe/Paris", "name": "a name",
	"webhook-file": "a file with the URL of a webhook", "partition-field": "the name of a field",
	"field": "the name of a field", "forget": "the name of a load", "from": "the URL of another job queue",
	"to": "the name of a queue", "kinds": "a file of kinds", "users": "a file of users",
	"tls-cert": "a file in PEM", "tls-key": "a file in PEM", "dir": "a folder",
	"queue": "the name of a queue", "state": "the name of a state", "by": "kind, header.NAME or cause",
	"types": "types of columns", "reject": "a file", "config": "a file",
}

// notEmpty refuses an empty value of the flags of neverEmpty. A shell makes one from an empty variable, and
// the command would do something else.
func notEmpty(flags *pflag.FlagSet) error {
	for name, want := range neverEmpty {
		f := flags.Lookup(name)
		if f == nil || !f.Changed {
			continue
		}
		list, several := f.Value.(pflag.SliceValue)
		if f.Value.String() == "" || several && len(list.GetSlice()) == 0 {
			return storage.Invalid("--"+name, "", "%s", want)
		}
	}
	return nil
}

// given translates the names of fields in the packages below into the words of this command.
var given = map[string]string{
	"Insert.MaxRetries": "--retries", "Insert.CrashLimit": "--crash-limit", "Insert.Delay": "--in",
	"Insert.At": "--at", "Insert.Timeout": "--run-timeout", "Insert.Keep.For": "--keep",
	"Config.Memory": "--memory", "Config.Dir": "--dir", "Config.Grace": "--grace",
	"Every": "--every", "Cron": "--cron", "Zone": "--zone", "Jitter": "--jitter",
	"Config.URL":    "URL of the storage",
	"Config.Prefix": "prefix", "Config.Schema": "schema", "Config.Base": "--base", "cursor": "--after",
	"Config.TrustedOrigins": "--trusted-origin",
}

// together matches the error of cobra for flags that exclude each other.
var together = regexp.MustCompile(`^if any flags in the group .*; \[(.*)\] were all set$`)

// inWords returns the text of an error, with the names of fields in the words of this command.
func inWords(err error) string {
	text := err.Error()
	if flags := together.FindStringSubmatch(text); flags != nil {
		return "--" + strings.Join(strings.Fields(flags[1]), " and --") + " exclude each other"
	}
	var invalid *storage.InvalidError
	if !errors.As(err, &invalid) {
		return text
	}
	word, ok := given[invalid.What]
	if !ok {
		return text
	}
	said := *invalid
	said.What = word
	if at := strings.LastIndex(text, invalid.Error()); at >= 0 && strings.HasPrefix(invalid.What, "Config.") {
		return said.Error() // the text before the error is in the words of the package, too
	}
	return strings.Replace(text, invalid.Error(), said.Error(), 1)
}
