package redis

import "strconv"

// reply reads the values of a list that a script returned, one after the other. After the first
// value of an unexpected type, bad is set and all later values are zero.
type reply struct {
	list []any
	bad  bool
}

func values(list []any) *reply { return &reply{list: list} }

func (r *reply) next() any {
	if r.bad || len(r.list) == 0 {
		r.bad = true
		return nil
	}
	v := r.list[0]
	r.list = r.list[1:]
	return v
}

func (r *reply) text() string {
	s, ok := r.next().(string)
	r.bad = r.bad || !ok
	return s
}

// optional reads a text, and reports whether it is there: it may be nil, or the list may have ended.
func (r *reply) optional() (string, bool) {
	if len(r.list) == 0 {
		return "", false
	}
	s, ok := r.next().(string)
	return s, ok
}

// number reads an integer, or the text of one.
func (r *reply) number() int64 {
	switch v := r.next().(type) {
	case int64:
		return v
	case string:
		n, err := strconv.ParseFloat(v, 64) // a score may come with an exponent
		r.bad = r.bad || err != nil
		return int64(n)
	}
	r.bad = true
	return 0
}

func (r *reply) sublist() *reply {
	v, ok := r.next().([]any)
	r.bad = r.bad || !ok
	return &reply{list: v}
}

// texts reads all values that are left.
func (r *reply) texts() (all []string) {
	for len(r.list) > 0 && !r.bad {
		all = append(all, r.text())
	}
	return all
}

// size returns how many bytes of text are left in the list.
func (r *reply) size() int {
	n := 0
	for _, v := range r.list {
		s, _ := v.(string)
		n += len(s)
	}
	return n
}

// first returns the first byte of a text, or 0 for an empty text.
func first(s string) byte {
	if s == "" {
		return 0
	}
	return s[0]
}
