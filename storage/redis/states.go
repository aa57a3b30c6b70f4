package redis

import (
	"fmt"
	"slices"
	"strings"

	"github.com/midgehq/midge/internal/states"
	"github.com/midgehq/midge/storage"
)

// inLine is the letter of a waiting task in the line, which no sorted set has.
const inLine = 'l'

// sets are the sorted sets of the states that the scripts know, as suffixes of keys.
var sets = map[states.Number]string{
	states.Waiting: "waiting", states.Suspect: "suspects", states.Declined: "declined", states.Pending: "leases",
	states.Scheduled: "scheduled", states.Retry: "retry", states.Completed: "completed",
	states.Cancelled: "cancelled", states.Dead: "dead", states.Cursor: "cursors",
}

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

// stateTables returns the tables of states that the scripts use, as Lua text, by their names in the scripts. All
// but SIZES and SEARCHED have letters as their keys.
func stateTables() map[string]string {
	all := map[string][]string{"LIVESTATES": {"l=true"}, "SHOWNSTATES": {"l='w'"}}
	add := func(name string, is bool, value string) {
		if is {
			all[name] = append(all[name], value)
		}
	}
	for _, s := range states.All() {
		if s.Letter == 0 {
			continue
		}
		is, letter := fmt.Sprintf("%c=true", s.Letter), fmt.Sprintf("'%c'", s.Letter)
		placed := s.Ended || s.Live && s.Timed // sorted by a moment and a place
		add("STATESETS", true, fmt.Sprintf("%c=%d", s.Letter, placeOf(sets[s.Number])))
		add("LIVESTATES", s.Live, is)
		add("ENDEDSTATES", s.Ended, is)
		add("TIMEDSTATES", s.Timed, is)
		add("PLACEDSTATES", placed, is)
		// Leases, cursors and the lines of kinds are searched in ways of their own.
		add("SEARCHED", placed || s.Number == states.Waiting || s.Number == states.Suspect, letter)
		first := states.Named(s.Name).Letter
		add("SHOWNSTATES", first != s.Letter, fmt.Sprintf("%c='%c'", s.Letter, first))
	}
	for _, first := range states.Public() {
		var keys []string
		for _, s := range states.All() {
			switch {
			case s.Name != first.Name || s.Letter == 0:
			case s.Number == states.Pending:
				keys = append(keys, fmt.Sprint(pendingKey+1))
			default:
				keys = append(keys, fmt.Sprint(placeOf(sets[s.Number])))
			}
		}
		if first.Number == states.Waiting {
			keys = append(keys, fmt.Sprint(lineKey+1))
		}
		add("SIZES", true, "{"+strings.Join(keys, ",")+"}")
	}
	tables := make(map[string]string, len(all))
	for name, entries := range all {
		tables[name] = "{" + strings.Join(entries, ",") + "}"
	}
	return tables
}

// placeOf returns the place of a key of a queue in KEYS.
func placeOf(suffix string) int { return slices.Index(suffixes[:], suffix) + 1 }

// keyTypes returns the types of the keys of a queue, as Lua text.
func keyTypes() string {
	var all []string
	for _, suffix := range suffixes {
		switch suffix {
		case "meta", "tasks", "pending", "side", "unique", "damaged", "lanes", "claims":
			all = append(all, "'hash'")
		case "line":
			all = append(all, "'list'")
		default:
			all = append(all, "'zset'")
		}
	}
	return "{" + strings.Join(all, ",") + "}"
}
