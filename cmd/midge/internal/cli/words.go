package cli

import (
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/midgehq/midge/storage"
)

// flagWants is what the flags of a type take, by the type's name in pflag.
var flagWants = map[string]string{
	"int": "a whole number, such as 50", "int64": "a whole number, such as 50",
	"float64": "a number, such as 50 or 0.5", "bool": "true or false",
}

// flagError is the error of flags that cannot be read. It names the flag, what was given, and what is wanted.
func flagError(cmd *cobra.Command, err error) error {
	var wrong *pflag.InvalidValueError
	if !errors.As(err, &wrong) {
		return usage(cmd, "%v", err)
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

// notEmpty refuses the flags that name a storage where a shell has made them of a variable that is empty:
// another storage would be taken.
func notEmpty(flags *pflag.FlagSet) error {
	for name, want := range map[string]string{
		"storage": "the URL of a storage", "profile": "the name of a profile", "prefix": "a prefix of keys",
		"schema": "the name of a schema",
	} {
		if f := flags.Lookup(name); f != nil && f.Changed && f.Value.String() == "" {
			return storage.Invalid("--"+name, "", "%s", want)
		}
	}
	return nil
}

// given is what the packages beneath call by the names of their fields, in the words of this command.
var given = map[string]string{
	"Insert.MaxRetries": "--retries", "Insert.CrashLimit": "--crash-limit", "Insert.Delay": "--in",
	"Insert.At": "--at", "Insert.Timeout": "--run-timeout", "Insert.Keep": "--keep",
	"Config.URL":    "URL of the storage",
	"Config.Prefix": "prefix", "Config.Schema": "schema", "Config.Base": "--base", "cursor": "--after",
}

// inWords says an error about what was given, in the words of this command.
func inWords(err error) string {
	text := err.Error()
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
		return said.Error() // what was being done is in the words of the package, too
	}
	return strings.Replace(text, invalid.Error(), said.Error(), 1)
}
