package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

const vocabulary = `the a and of to in it is was that river moon lantern harbour stone wind
quiet morning letter bridge garden winter window orchard market bell ship road glass
paper clock candle sparrow field cloud silver thread kettle valley shadow wheel island`

// documents returns n texts of fifty words, the same each time, with a few frequent
// words and many rare ones, as in any language.
func documents(n int) []string {
	vocabulary := strings.Fields(vocabulary)
	source := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(source, 1.3, 2, uint64(len(vocabulary)-1))
	docs := make([]string, n)
	for i := range docs {
		text := make([]string, 50)
		for j := range text {
			text[j] = vocabulary[zipf.Uint64()]
		}
		docs[i] = strings.Join(text, " ") + "."
	}
	return docs
}

// words returns the words of a text, in lower case.
func words(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return r == ' ' || r == '.' })
}

// countAll counts the words without tasks, for the comparison.
func countAll(docs []string) map[string]int {
	counts := make(map[string]int)
	for _, d := range docs {
		for _, w := range words(d) {
			counts[w]++
		}
	}
	return counts
}

func printTop(out io.Writer, counts map[string]int, n int) {
	byCount := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	for _, w := range byCount[:min(n, len(byCount))] {
		sayf(out, "%6d %s", counts[w], w)
	}
}

// compare returns an error if got is not want.
func compare(out io.Writer, got, want map[string]int) error {
	wrong := 0
	for _, w := range slices.Sorted(maps.Keys(want)) {
		if got[w] != want[w] {
			wrong++
			sayf(out, "WRONG: %s counted %d times, is there %d times", w, got[w], want[w])
		}
	}
	if wrong > 0 || len(got) != len(want) {
		return fmt.Errorf("%d of %d counts are wrong, %d words found", wrong, len(want), len(got))
	}
	sayf(out, "all %d words are counted right", len(want))
	return nil
}
