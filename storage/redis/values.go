package redis

import "strconv"

// reply takes a list that a script answered with apart. After the first value that is
// not what it should be, bad is set and all that follows is zero.
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

// optional is a text that may be missing, also at the end of the list.
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

// size is how many bytes of text are left.
func (r *reply) size() int {
	n := 0
	for _, v := range r.list {
		s, _ := v.(string)
		n += len(s)
	}
	return n
}

// first is the first byte of a text, 0 where there is none.
func first(s string) byte {
	if s == "" {
		return 0
	}
	return s[0]
}
