package cli

import (
	"database/sql"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// badLines are lines that cannot be executed, with the message for each line.
var badLines = map[string]string{
	"task ls --limit x":                                 `invalid --limit "x": want a whole number, such as 50`,
	"task ls --limit 99999999999999999999":              `invalid --limit "99999999999999999999": want a number of at most 18 digits`,
	"task ls --limit 0":                                 `invalid --limit 0: want 1 or more`,
	"task ls --watch=x":                                 `invalid --watch "x": want a number with its unit, such as 500ms, 90s, 10m, 2h, 3d or 1w, at most 36500d`,
	"task ls --watch=1ms":                               `invalid --watch 1ms: want 200ms or more`,
	"task ls --timeout 5":                               `invalid --timeout "5": want a number with its unit`,
	"task ls --timeout -1s":                             `invalid --timeout "-1s": want a number with its unit`,
	"task ls --utc=maybe":                               `invalid --utc "maybe": want true or false`,
	"task ls -o yaml":                                   `invalid output format "yaml": want table, wide, json, jsonl or ids`,
	"task ls --columns nope":                            `invalid column "nope": want task, kind, state`,
	"task ls --after x":                                 `invalid --after "x": want the cursor of a page before`,
	"task ls --state x":                                 `invalid state "x": want waiting, running, scheduled, retry, completed, cancelled, dead, live, ended or all`,
	"task ls --queue bad/name":                          `invalid queue name "bad/name": want 1 to 128 letters`,
	"task ls retries>99999999999999999999":              `filter: the value in "retries>99999999999999999999" at character 1: want an integer`,
	"task ls retries>1.5":                               `filter: the value in "retries>1.5" at character 1: want an integer`,
	"task ls age>5":                                     `filter: the value in "age>5" at character 1: want a duration with its unit behind > or <`,
	"task ls age>99999999999w":                          `filter: the value in "age>99999999999w" at character 1: want a duration`,
	"task ls created>2026-13-45":                        `filter: the value in "created>2026-13-45" at character 1: want created>1h, created>2026-11-23 or created>2026-11-23T10:00:00Z, or behind : a day, yes or no`,
	"task ls params.x>many":                             `filter: the value in "params.x>many" at character 1: want a number or a moment such as 2026-11-23 or 2026-11-23T10:00:00Z behind >`,
	"task ls state:done":                                `filter: the state in "state:done" at character 1: want one of waiting, running, scheduled`,
	"task ls is:old":                                    `filter: the value in "is:old" at character 1: want one of declined`,
	"task ls kin:x":                                     `filter: the field in "kin:x" at character 1: want kind, or another of`,
	"task ls 'a \xff'":                                  `filter: the text in "a \\xff" at character 1: want valid UTF-8 of at most 4096 bytes`,
	"task requeue x --rate x":                           `invalid --rate "x": want a number, such as 50 or 0.5`,
	"task requeue x --rate -1":                          `invalid --rate -1: want 0 or more tasks a second`,
	"task requeue x --rate NaN":                         `invalid --rate NaN: want 0 or more tasks a second`,
	"task requeue x --rate Inf":                         `invalid --rate +Inf: want 0 or more tasks a second`,
	"task requeue x --limit -1":                         `invalid --limit -1: want 0 or more tasks`,
	"task cancel x --limit 1.5":                         `invalid --limit "1.5": want a whole number, such as 50`,
	"task add k --priority x":                           `invalid --priority "x": want a whole number, such as 50`,
	"task add k --priority 10":                          `invalid priority 10: want -9 to 9`,
	"task add k --retries -1":                           `invalid --retries "-1": want 1 to 9999, or none`,
	"task add k --retries 0":                            `invalid --retries "0": want 1 to 9999, or none`,
	"task add k --crash-limit 0":                        `invalid --crash-limit 0: want 1 to 9999`,
	"task add k --run-timeout 1ns":                      `invalid --run-timeout 1ns: want 0, or 1ms to`,
	"task add k --in 90":                                `invalid --in "90": want a number with its unit`,
	"task add k --in -5m":                               `invalid --in "-5m": want a number with its unit`,
	"task add k --at yesterday":                         `invalid --at "yesterday": want one such as 2026-11-23T15:00:00Z, or 2026-11-23 15:00 in the zone of this machine`,
	"task add k --deadline 0s":                          `invalid --deadline 0s: want more than 0`,
	"task add k --params '{'":                           `invalid parameters "{": want JSON to its end`,
	"task add k --params ''":                            `invalid parameters "": want JSON to its end`,
	"task add k --params '{} x'":                        `invalid parameters "{} x": want valid JSON: character 4 does not fit`,
	"task add k --params '{bad'":                        `invalid parameters "{bad": want valid JSON: character 2 does not fit`,
	"task ls 'priority=5 OR kind:x'":                    `filter: the word in "OR" at character 12: want words that must all match, with a,b for either`,
	"work -- cat":                                       "midge work wants the kind of the tasks to run: give --kind\n",
	"task ls -kind:poll":                                "unknown shorthand flag: 'k' in -kind:poll\na filter that begins with - stands behind --, with all flags before it\n",
	"task requeue -error:x":                             "unknown shorthand flag: 'e' in -error:x\na filter that begins with - stands behind --",
	"queue ls -kind":                                    "unknown shorthand flag: 'k' in -kind\nusage: midge queue ls",
	"task add k --params @/none":                        `the parameters cannot be read: open /none: no such file or directory`,
	"task add k --encoding gob":                         `invalid encoding "gob": want "msgpack" or "json"`,
	"task add k --header x":                             `invalid header "x": want name=value`,
	"task add k --header x=1 --header x=2":              `invalid header "x twice": want each header once`,
	"load x.csv --kind k --queue q --types a=int,a=int": `invalid --types "a twice": want one type for each column`,
	"task add k --id 'a b'":                             `invalid task id "a b": want 1 to 128 letters`,
	"task add k --unique-for 1h":                        `invalid flags "--unique-for alone": want --unique with it`,
	"task edit mail/a --priority x":                     `invalid --priority "x": want a whole number, such as 50`,
	"task show 'a b'":                                   `invalid task "a b": want a ref such as mail/01JABCDEF, an id, or a line of a log that has one`,
	"task restore /none":                                `the backup cannot be read: open /none: no such file or directory`,
	"queue pause mail --for x":                          `invalid --for "x": want a number with its unit`,
	"queue pause mail --for 0s":                         `invalid --for 0s: want a millisecond or more, such as 30m`,
	"queue pause mail --partition ''":                   `invalid --partition "": want 1 to 128 bytes`,
	"queue resume mail --partition 'a\x01b'":            `invalid --partition "a\x01b": want printable UTF-8`,
	"task add k --partition 'a\x01b'":                   `invalid --partition "a\x01b": want printable UTF-8`,
	"task ls --partition 'a\x01b'":                      `invalid --partition "a\x01b": want printable UTF-8`,
	"task add k --cost -1":                              `invalid --cost -1: want 0 to 1000000`,
	"task edit mail/a --cost 1000001":                   `invalid --cost 1000001: want 0 to 1000000`,
	"task edit mail/a --partition 'a\x01b'":             `invalid partition "a\x01b": want printable UTF-8`,
	"queue limit mail --concurrency -1":                 `invalid --concurrency -1: want 1 to 10000, or 0 for no bound`,
	"queue limit mail --concurrency x":                  `invalid --concurrency "x": want a whole number, such as 50`,
	"queue limit mail --rate 100":                       `invalid --rate "100": want starts/time such as 100/1m`,
	"queue limit mail --rate 0/1m":                      `invalid --rate "0/1m": want starts/time such as 100/1m`,
	"queue limit mail --rate 5/32d":                     `invalid --rate "5/32d": want starts/time such as 100/1m: 1 to 1000000000 starts in 1ms to 31d`,
	"queue limit mail --partition-concurrency -1":       `invalid --partition-concurrency -1: want 1 to 10000, or 0 for no bound`,
	"queue limit mail --partition-rate 5/32d":           `invalid --partition-rate "5/32d": want starts/time such as 100/1m: 1 to 1000000000 starts in 1ms to 31d`,
	"queue limit mail --none --partition-rate 5/1m":     `invalid flags "of two kinds": want bounds such as --concurrency, --none, or --clear`,
	"queue limit mail --clear --rate 5/1m":              `invalid flags "of two kinds": want bounds such as --concurrency, --none, or --clear`,
	"queue ls '['":                                      `invalid pattern "[": want a name in which * stands for any characters and ? for one`,
	"queue ls --storage ''":                             `invalid --storage "": want the URL of a storage`,
	"queue ls --profile ''":                             `invalid --profile "": want the name of a profile`,
	"task rm state:dead --yes --backup ''":              `invalid --backup "": want a new file`,
	"task add k --id ''":                                `invalid --id "": want the id of a task`,
	"task add k --unique ''":                            `invalid --unique "": want a unique key`,
	"task add k --kind ''":                              `invalid --kind "": want a kind of tasks`,
	"schedule set mail/ann --every 1h --kind ''":        `invalid --kind "": want a kind of tasks`,
	"schedule set mail/ann --cron @daily --zone ''":     `invalid --zone "": want a time zone such as Europe/Paris`,
	"doctor --watch --webhook-file ''":                  `invalid --webhook-file "": want a file with the URL of a webhook`,
	"load x.csv --kind k --partition-field ''":          `invalid --partition-field "": want the name of a field`,
	"load x.txt --kind k --format lines --field ''":     `invalid --field "": want the name of a field`,
	"load x.csv --kind k --name ''":                     `invalid --name "": want a name`,
	"load x.csv --kind k --forget ''":                   `invalid --forget "": want the name of a load`,
	"import asynq --from '' --kind a=b":                 `invalid --from "": want the URL of another job queue`,
	"import asynq --from redis://x --to '' --kind a=b":  `invalid --to "": want the name of a queue`,
	"import river --kinds ''":                           `invalid --kinds "": want a file of kinds`,
	"import river --river-schema ''":                    `invalid --river-schema "": want the name of a schema`,
	"serve --insecure --users ''":                       `invalid --users "": want a file of users`,
	"serve --insecure --tls-cert '' --tls-key k.pem":    `invalid --tls-cert "": want a file in PEM`,
	"serve --insecure --tls-cert c.pem --tls-key ''":    `invalid --tls-key "": want a file in PEM`,
	"load x.csv --kind k --types ''":                    `invalid --types "": want types of columns`,
	"load x.csv --kind k --reject ''":                   `invalid --reject "": want a file`,
	"schedule ls --queue ''":                            `invalid --queue "": want the name of a queue`,
	"runner ls --queue ''":                              `invalid --queue "": want the name of a queue`,
	"task ls --queue ''":                                `invalid --queue "": want the name of a queue`,
	"task ls --state ''":                                `invalid --state "": want the name of a state`,
	"task ls --by ''":                                   `invalid --by "": want kind, header.NAME or cause`,
	"callback --config ''":                              `invalid --config "": want a file`,
	"work --kind k --dir '' -- cat":                     `invalid --dir "": want a folder`,
	"queue limit mail --rate ''":                        `invalid --rate "": want starts/time such as 100/1m`,
	"schedule set mail/ann --cron '' --kind k":          `invalid `,
	"doctor --max-dead x":                               `invalid --max-dead "x": want a whole number, such as 50`,
	"doctor --max-dead ''":                              `invalid --max-dead "": want a whole number, such as 50`,
	"doctor --max-oldest x":                             `invalid --max-oldest "x": want a number with its unit`,
	"queue ls --sort x":                                 `invalid --sort "x": want name, oldest, waiting, running, scheduled, retry, completed, cancelled or dead`,
	"history --span 2h":                                 `invalid span "2h": want 1h, 6h, 24h, 7d, 30d or 90d`,
	"task ls --by queue":                                `invalid --by "queue": want kind, header.NAME or cause`,
	"task ls --by header.":                              `invalid --by "header.": want kind, header.NAME or cause`,
	"doctor --for x":                                    `invalid --for "x": want a number with its unit`,
	"doctor --webhook-file x":                           `invalid flags "--webhook-file without --watch": want --watch with it`,
	"doctor --watch=1ms":                                `invalid --watch 1ms: want 200ms or more`,
	"doctor --watch --webhook-file /none":               `the URL of the webhook cannot be read: open /none: no such file or directory`,
	"schedule show x":                                   `invalid schedule "x": want queue/name, as midge schedule ls prints it`,
	"serve --listen x":                                  `invalid --listen "x": want a host and a port up to 65535, such as 127.0.0.1:8383`,
	"serve --listen 127.0.0.1:http":                     `invalid --listen "127.0.0.1:http": want a host and a port up to 65535`,
	"serve --listen 127.0.0.1:99999":                    `invalid --listen "127.0.0.1:99999": want a host and a port up to 65535`,
	"serve --base x":                                    `invalid --base "x": want "" or a path such as "/midge"`,
	"serve --users /none":                               `invalid --users "/none": want a file that midge user set NAME --users FILE has written`,
	"serve --tls-cert /none --tls-key /none":            `invalid flags "--tls-cert /none --tls-key /none": want a certificate and its key in PEM`,
	"user set a --users u.json --role king":             `invalid role "king": want one of viewer, worker, operator, admin`,
	"migrate --check=x":                                 `invalid --check "x": want true or false`,
	"import asynq --from nope --queue x --kind a=b":     `invalid --from "***": want the URL of a Redis, such as redis://localhost:6379/0`,
	"import asynq --queue x --kind a=b":                 "give --from, the URL of the Redis of asynq, or set MIDGE_IMPORT_FROM",
	"import asynq --queue x --kind a --from redis://x":  `invalid kind "a": want type=kind, such as email:send=send_mail`,
	"completion tcsh":                                   `invalid shell "tcsh": want bash, zsh, fish or powershell`,
	"runner show ''":                                    `invalid runner "": want the id of a runner, or how it begins`,
}

// TestEachBadLineIsAnsweredByASentence checks that each message names the given value and the wanted
// values, and that it needs no knowledge of Go. The storage is not changed.
func TestEachBadLineIsAnsweredByASentence(t *testing.T) {
	r := newRig(t)
	internals := regexp.MustCompile(`strconv|time: |json: |parsing "|Insert\.|Config\.|\[[a-z]+ [a-z]+|goredis|pgx|<nil>|%!`)
	for line, want := range badLines {
		got := r.run(line)
		if got.code != BadInput || !strings.HasPrefix(got.err, "midge: "+want) || internals.MatchString(got.err) || got.out != "" {
			t.Errorf("midge %s: got %d, %s%swant %s", line, got.code, got.out, got.err, want)
		}
	}
	if got := r.ok("queue ls --all -o ids"); got != "" {
		t.Errorf("bad lines have made the queues %q", got)
	}
}

// TestABadAddressOfAStorageIsNamed opens storages by malformed URLs.
func TestABadAddressOfAStorageIsNamed(t *testing.T) {
	r := newRig(t)
	r.real = true
	for url, want := range map[string]string{
		"redis://localhost:x":                    `invalid URL of the storage "redis://localhost:x": want host, port, database number`,
		"redis://localhost:1/x":                  `invalid URL of the storage "redis://localhost:1/x": want host, port, database number`,
		"redis://localhost:1?dial_timeout=x":     `invalid URL of the storage "redis://localhost:1": want host, port, database number and options`,
		"postgres://%zz":                         `invalid URL of the storage "***": want a URL such as postgres://localhost/database`,
		"postgres://localhost:1/x?sslmode=foo":   `invalid URL of the storage "***": want a URL such as postgres://localhost/database`,
		"nope":                                   `open: invalid URL "without a scheme": want one that begins with memory`,
		"sqlite:":                                `invalid storage "sqlite:": want a path behind sqlite:, such as sqlite:jobs.db`,
		"redis://localhost:1 --prefix {":         `invalid prefix "{": want 1 to 64 letters`,
		"postgres://localhost:1/x --schema pg_x": `invalid schema "pg_x": want 1 to 40 lower-case letters`,
	} {
		got := r.run("queue ls --storage " + url)
		if got.code != BadInput || !strings.HasPrefix(got.err, "midge: "+want) {
			t.Errorf("%s: got %d, %swant %s", url, got.code, got.err, want)
		}
	}
}

// TestTheDatabaseOfAnApplicationPointsToItsDashboard opens a database with other tables, as that of Config.DB.
func TestTheDatabaseOfAnApplicationPointsToItsDashboard(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE orders (id INTEGER)"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	r.real = true
	got := r.run("queue ls --storage sqlite:" + path)
	want := "\nnext: if a program keeps its tasks in this database, by Config.DB, use the dashboard of that program\n"
	if got.code != Refused || !strings.Contains(got.err, path) || !strings.HasSuffix(got.err, want) {
		t.Errorf("got %d, %s, want %d and %s", got.code, got.err, Refused, want)
	}
}
