package memory

import (
	"slices"
	"sort"

	"github.com/midgehq/midge/storage/internal/engine"
)

// place is a position in an order. No two values of one order have the same place.
type place = engine.Place

// sorted holds values in the order of their places. It is a list of short sorted
// chunks. Inserting and removing cost two binary searches and the shift of a part of one
// chunk (for a removal the shorter part), and next to nothing at either end, where queues
// are busy. To read on from any place, as pages of a listing do, costs only the search.
//
// Chunks are split and never joined: places in every order here move on (to later moments,
// to higher numbers), so that chunks with few values are soon empty.
type sorted[T any] struct {
	chunks [][]entry[T] // none is empty; all places of one come before those of the next
	size   int
	// usual is the longest that the last chunk has become. An order that is filled and
	// emptied all the time, as the order of the pending tasks is, allocates its next chunk
	// in that size at once.
	usual int
	// spare is the memory of the last chunk that was emptied, as long as most of it is left, because an
	// order with few values is emptied after each of them.
	spare []entry[T]
}

type entry[T any] struct {
	place

	value T
}

// chunkSize keeps a chunk within a few kilobytes.
const chunkSize = 128

// insert adds a value at a place that is free.
func (s *sorted[T]) insert(at place, value T) {
	s.size++
	e := entry[T]{at, value}
	i := s.chunk(at)
	if i == len(s.chunks) { // after all others
		switch {
		case i == 0 || len(s.chunks[i-1]) >= chunkSize:
			if s.spare == nil {
				s.spare = make([]entry[T], 0, s.usual)
			}
			s.chunks = append(s.chunks, append(s.spare, e))
			s.spare = nil
		default:
			s.chunks[i-1] = append(s.chunks[i-1], e)
			s.usual = max(s.usual, len(s.chunks[i-1]))
		}
		return
	}
	if c := s.chunks[i]; len(c) >= chunkSize {
		half := len(c) / 2
		s.chunks = slices.Insert(s.chunks, i+1, slices.Clone(c[half:]))
		clear(c[half:])
		s.chunks[i] = c[:half]
		if s.chunks[i][half-1].Before(at) {
			i++
		}
	}
	s.chunks[i] = slices.Insert(s.chunks[i], search(s.chunks[i], at), e)
}

// remove removes the value at a place, if there is one.
func (s *sorted[T]) remove(at place) {
	i := s.chunk(at)
	if i == len(s.chunks) {
		return
	}
	c := s.chunks[i]
	j := search(c, at)
	if c[j].place != at {
		return
	}
	s.size--
	switch {
	case len(c) == 1 && i == 0:
		if c[0] = (entry[T]{}); cap(c) > s.usual/2 {
			s.spare = c[:0]
		}
		s.chunks[0] = nil
		s.chunks = s.chunks[1:]
	case len(c) == 1:
		s.chunks = slices.Delete(s.chunks, i, i+1)
	case j < len(c)/2:
		copy(c[1:], c[:j])
		c[0] = entry[T]{}
		s.chunks[i] = c[1:]
	default:
		s.chunks[i] = slices.Delete(c, j, j+1)
	}
}

// clone returns a copy in which of replaces each value.
func (s *sorted[T]) clone(of func(T) T) sorted[T] {
	c := sorted[T]{chunks: make([][]entry[T], len(s.chunks)), size: s.size, usual: s.usual}
	for i := range s.chunks {
		c.chunks[i] = slices.Clone(s.chunks[i])
		for j := range c.chunks[i] {
			c.chunks[i][j].value = of(c.chunks[i][j].value)
		}
	}
	return c
}

// same returns its argument.
func same[T any](value T) T { return value }

// head returns the first place and its value, false if there is none.
func (s *sorted[T]) head() (place, T, bool) {
	if s.size == 0 {
		var none T
		return place{}, none, false
	}
	e := &s.chunks[0][0]
	return e.place, e.value, true
}

// after appends to list the values whose places come after p, at most n of them.
func (s *sorted[T]) after(p place, n int, list []entry[T]) []entry[T] {
	for i := s.chunk(p); i < len(s.chunks) && n > 0; i++ {
		c := s.chunks[i]
		for j := search(c, p); j < len(c) && n > 0; j++ {
			if c[j].place != p {
				list = append(list, c[j])
				n--
			}
		}
	}
	return list
}

// from returns the values at a place and after it, at most n of them.
func (s *sorted[T]) from(p place, n int) (list []entry[T]) {
	for i := s.chunk(p); i < len(s.chunks) && len(list) < n; i++ {
		c := s.chunks[i]
		j := search(c, p)
		list = append(list, c[j:min(len(c), j+n-len(list))]...)
	}
	return list
}

// before appends to list the values whose places come before p, in reverse order, at most n of them.
func (s *sorted[T]) before(p place, n int, list []entry[T]) []entry[T] {
	for i := min(s.chunk(p), len(s.chunks)-1); i >= 0 && n > 0; i-- {
		c := s.chunks[i]
		for j := search(c, p) - 1; j >= 0 && n > 0; j-- {
			list = append(list, c[j])
			n--
		}
	}
	return list
}

// until returns the values whose moments are now or before, at most n of them. The order must be one of
// moments.
func (s *sorted[T]) until(now int64, n int) []T {
	var come []T
	for _, c := range s.chunks {
		for i := range c {
			if c[i].Sort > now || len(come) == n {
				return come
			}
			come = append(come, c[i].value)
		}
	}
	return come
}

// chunk returns the index of the first chunk that does not end before p, len(s.chunks) if there is none.
// In most cases it is the first chunk, or none.
func (s *sorted[T]) chunk(p place) int {
	n := len(s.chunks)
	switch {
	case n == 0 || last(s.chunks[n-1]).Before(p):
		return n
	case !last(s.chunks[0]).Before(p):
		return 0
	}
	return sort.Search(n, func(i int) bool { return !last(s.chunks[i]).Before(p) })
}

func last[T any](c []entry[T]) place { return c[len(c)-1].place }

// search returns the index of the first entry of c that is not before p.
func search[T any](c []entry[T], p place) int {
	if !c[0].Before(p) {
		return 0
	}
	return sort.Search(len(c), func(i int) bool { return !c[i].Before(p) })
}
