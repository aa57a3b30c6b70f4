package memory

import (
	"slices"
	"sort"
)

// names holds distinct texts in order, in short sorted chunks as in sorted.
type names struct {
	chunks [][]string // none is empty
}

// chunk returns the index of the first chunk that does not end before a name, len(n.chunks) if there is none.
func (n *names) chunk(name string) int {
	return sort.Search(len(n.chunks), func(i int) bool {
		c := n.chunks[i]
		return c[len(c)-1] >= name
	})
}

// insert adds a name.
func (n *names) insert(name string) {
	i := n.chunk(name)
	if i == len(n.chunks) {
		if i == 0 || len(n.chunks[i-1]) >= chunkSize {
			n.chunks = append(n.chunks, []string{name})
			return
		}
		i--
	}
	if c := n.chunks[i]; len(c) >= chunkSize {
		half := len(c) / 2
		n.chunks = slices.Insert(n.chunks, i+1, slices.Clone(c[half:]))
		clear(c[half:])
		n.chunks[i] = c[:half]
		if c[half-1] < name {
			i++
		}
	}
	at, _ := slices.BinarySearch(n.chunks[i], name)
	n.chunks[i] = slices.Insert(n.chunks[i], at, name)
}

// remove removes a name, if it is there.
func (n *names) remove(name string) {
	i := n.chunk(name)
	if i == len(n.chunks) {
		return
	}
	c := n.chunks[i]
	at, found := slices.BinarySearch(c, name)
	switch {
	case !found:
	case len(c) == 1:
		n.chunks = slices.Delete(n.chunks, i, i+1)
	default:
		n.chunks[i] = slices.Delete(c, at, at+1)
	}
}

// from returns up to most names at a name or after it.
func (n *names) from(name string, most int) (list []string) {
	for i := n.chunk(name); i < len(n.chunks) && len(list) < most; i++ {
		c := n.chunks[i]
		at, _ := slices.BinarySearch(c, name)
		list = append(list, c[at:min(len(c), at+most-len(list))]...)
	}
	return list
}
