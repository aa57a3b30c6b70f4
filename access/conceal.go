package access

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/midgehq/midge/storage"
)

// cutOff stands in an error in place of the beginning of a program's output: see the package work/command.
const cutOff = "(the beginning is cut off)\n"

// mostCuts is the number of places of a text at which conceal searches for parts of values.
const mostCuts = 32

// values are the values that conceal replaces.
type values struct {
	sorted []string
	within []int // for each value, the place of the longest other value with which it begins, or -1
}

func sortedValues(found []string) values {
	slices.Sort(found)
	v := values{sorted: slices.Compact(found)}
	v.within = make([]int, len(v.sorted))
	for i, value := range v.sorted {
		v.within[i] = v.begin(i-1, value)
	}
	return v
}

// begin returns the place of the longest value with which a text begins, -1 for none. The value at the place
// at is the last one in order before the text, so it begins with each value with which the text begins.
func (v values) begin(at int, text string) int {
	for at >= 0 && !strings.HasPrefix(text, v.sorted[at]) {
		at = v.within[at]
	}
	return at
}

// conceal returns a text in which Hidden replaces each of the values, and each part of a value of at least
// leastConcealed bytes that is left at a cut of the text. The time that it takes hardly grows with the number
// of values, except for a text that was cut.
func (v values) conceal(text string) string {
	var hidden []bool // for each byte of the text, nil for none
	hide := func(begin, size int) {
		if hidden == nil && size > 0 {
			hidden = make([]bool, len(text))
		}
		for i := range size {
			hidden[begin+i] = true
		}
	}
	done := 0 // all bytes before are hidden or stand before a value
	for at := range len(text) {
		next, is := slices.BinarySearch(v.sorted, text[at:])
		if !is {
			next--
		}
		if next = v.begin(next, text[at:]); next < 0 {
			continue
		}
		if end := at + len(v.sorted[next]); end > done {
			begin := max(at, done)
			hide(begin, end-begin)
			done = end
		}
	}
	ends, begins := cuts(text)
	if len(ends)+len(begins) == 0 {
		return masked(text, hidden)
	}
	for _, value := range v.sorted {
		for _, end := range ends {
			size := overlap(text[:end], value)
			hide(end-size, size)
		}
		for _, begin := range begins {
			if rest := text[begin:]; len(rest) >= leastConcealed && strings.Contains(value, rest) { // cut at both ends
				hide(begin, len(rest))
			}
			hide(begin, overlap(value, text[begin:]))
		}
	}
	return masked(text, hidden)
}

// masked returns a text in which Hidden replaces each run of hidden bytes. A nil hidden has none.
func masked(text string, hidden []bool) string {
	if hidden == nil {
		return text
	}
	var b strings.Builder
	for at := 0; at < len(text); {
		end := at + 1
		for end < len(text) && hidden[end] == hidden[at] {
			end++
		}
		if hidden[at] {
			b.WriteString(Hidden)
		} else {
			b.WriteString(text[at:end])
		}
		at = end
	}
	return b.String()
}

// cuts returns the places of a text before which and behind which something of it is missing.
func cuts(text string) (ends, begins []int) {
	full := func(bound int) bool { return len(text) <= bound && len(text) > bound-utf8.UTFMax }
	odd := strings.ContainsRune(text, utf8.RuneError) // the bytes that were replaced had another length
	long := len(text) - storage.MaxText + utf8.UTFMax // a stack, or a full error and a stack behind it
	if full(storage.MaxReason) || full(storage.MaxAttemptError) || long > 0 || odd {
		ends = append(ends, len(text))
	}
	if joint := strings.Index(text[len(text)-max(long, 0):], "\n\n"); joint >= 0 {
		ends = append(ends, len(text)-long+joint)
	}
	for rest := text; len(ends) < mostCuts; { // from the end, where midge's own mark stands
		mark := strings.LastIndex(rest, "…")
		if mark < 0 {
			break
		}
		rest = text[:mark]
		ends = append(ends, mark, len(strings.TrimSuffix(rest, `"`)))
	}
	if mark := strings.Index(text, cutOff); mark >= 0 {
		begins = append(begins, mark+len(cutOff))
	}
	return slices.Compact(ends), begins
}

// overlap returns the length of the longest beginning of right with which left ends, 0 if it is shorter than
// leastConcealed. Its time grows with the length of the shorter text alone.
func overlap(left, right string) int {
	most := min(len(left), len(right))
	left, right = left[len(left)-most:], right[:most]
	if most < leastConcealed || !strings.Contains(left, right[:leastConcealed]) {
		return 0
	}
	borders := make([]int, most) // for each beginning of right, the longest shorter one with which it ends
	grow := func(size int, by byte) int {
		for size > 0 && right[size] != by {
			size = borders[size-1]
		}
		if right[size] == by {
			size++
		}
		return size
	}
	for i := 1; i < most; i++ {
		borders[i] = grow(borders[i-1], right[i])
	}
	size := 0
	for i := range most {
		size = grow(size, left[i])
	}
	if size < leastConcealed {
		return 0
	}
	return size
}
