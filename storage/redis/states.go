package redis

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/midgehq/midge/internal/states"
	"github.com/midgehq/midge/storage"
)

// inLine is the letter of a waiting task in the line, which no sorted set has.
const inLine = 'l'

func letterOf(state storage.State) string { return string(states.Named(string(state)).Letter) }

// stateOf returns the state of a letter, or "" for a letter that stands for none.
func stateOf(letter byte) storage.State {
	if letter == inLine {
		return storage.Waiting
	}
	for _, s := range states.All() {
		if s.Letter == letter && letter != 0 {
			return storage.State(s.Name)
		}
	}
	return ""
}

// stateTables returns the tables of states, as Lua text, by their names in the scripts. SEARCHED is a list
// of letters, SIZES has for each state of callers the keys that hold its tasks, and the others have letters
// as their keys.
func stateTables() map[string]string {
	all, sizes := map[string]string{"LIVESTATES": "l=true,", "SHOWNSTATES": "l='w',"}, make(map[string]string)
	for _, s := range states.All() {
		if s.Letter == 0 || s.Number == states.Keyed {
			continue
		}
		letter, set := string(s.Letter), placeOf(sets[s.Number])
		all["STATESETS"] += letter + "=" + set + ","
		for name, is := range map[string]bool{
			"LIVESTATES": s.Live, "ENDEDSTATES": s.Ended, "TIMEDSTATES": s.Timed,
			"PLACEDSTATES": s.Ended || s.Live && s.Timed, // sorted by a moment and a place
		} {
			if is {
				all[name] += letter + "=true,"
			}
		}
		if shown := string(states.Named(s.Name).Letter); shown != letter {
			all["SHOWNSTATES"] += letter + "=" + quote(shown) + ","
		}
		switch s.Number {
		case states.Pending:
			set = placeOf("pending")
		case states.Cursor, states.Declined:
		default: // the others are searched in ways of their own
			all["SEARCHED"] += quote(letter) + ","
		}
		sizes[s.Name] += set + ","
	}
	sizes[string(storage.Waiting)] += placeOf("line")
	for _, s := range states.Public() {
		all["SIZES"] += "{" + sizes[s.Name] + "},"
	}
	for name, entries := range all {
		all[name] = "{" + entries + "}"
	}
	return all
}

// placeOf returns the place of a key of a queue in KEYS.
func placeOf(suffix string) string { return strconv.Itoa(slices.Index(suffixes[:], suffix) + 1) }

// keyTypes returns the types of the keys of a queue, as Lua text.
func keyTypes() string {
	types := map[string]string{"line": "list"}
	for _, suffix := range []string{"meta", "tasks", "pending", "side", "unique", "damaged", "lanes", "claims"} {
		types[suffix] = "hash"
	}
	all := make([]string, block)
	for i, suffix := range suffixes {
		all[i] = quote(cmp.Or(types[suffix], "zset"))
	}
	return "{" + strings.Join(all, ",") + "}"
}
