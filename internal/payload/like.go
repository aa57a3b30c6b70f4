package payload

import "slices"

// example has the values of like whose types a value may take: the value in its own place, and values in
// similar places.
type example struct {
	data   []byte
	places []int
	// strict means that the value must have the kind of the places, because they are one field, or the elements
	// of a list of one type.
	strict bool
}

func likeOf(data []byte) example {
	if data == nil {
		return example{}
	}
	return example{data: data, places: []int{0}, strict: true}
}

// find is writer.find for like alone.
func (e example) find(kinds ...kind) (v value, at int, ok bool, wanted kind) {
	for _, place := range e.places {
		v, next := valueAt(e.data, place)
		if slices.Contains(kinds, v.kind) {
			return v, next, true, kindNil
		}
		if e.strict {
			wanted = max(wanted, v.kind)
		}
	}
	return value{}, 0, false, wanted
}

// elements are the elements of a list in like.
type elements struct {
	data   []byte
	places []int
	one    bool  // all elements but nil have one kind
	kinds  []int // the place of the first element of each kind
}

func (w *writer) elementsOf(data []byte, items, at int) elements {
	if known, ok := w.lists[at]; ok {
		return known
	}
	begin := at
	e := elements{data: data, places: make([]int, 0, items), one: true}
	var seen [kindExtension + 1]bool
	for range items {
		e.places = append(e.places, at)
		v, next := valueAt(data, at)
		if !seen[v.kind] {
			seen[v.kind] = true
			e.kinds = append(e.kinds, at)
			e.one = e.one && (len(e.kinds) == 1 || v.kind == kindNil || len(e.kinds) == 2 && seen[kindNil])
		}
		at = skipItems(data, next, v.items)
	}
	w.lists[begin] = e
	return e
}

// element returns the example for the n-th element.
func (e elements) element(n int) example {
	places := e.kinds
	if n < len(e.places) {
		places = append([]int{e.places[n]}, places...)
	}
	return example{data: e.data, places: places, strict: e.one}
}

// fields are the entries of a map in like.
type fields struct {
	data   []byte
	keys   keys
	places map[string]int // the places of the values by key, as JSON shows the key
	kinds  []int          // the place of the first value of each kind
}

func (w *writer) fieldsOf(data []byte, old value, at int) fields {
	if known, ok := w.maps[at]; ok {
		return known
	}
	begin := at
	f := fields{data: data, places: make(map[string]int, old.items/2)}
	if old.items == 0 {
		return f
	}
	f.keys = keysOf(data, old, at)
	var seen [kindExtension + 1]bool
	for range old.items / 2 {
		key, next := valueAt(data, at)
		at = skipItems(data, next, key.items)
		switch f.keys { //nolint:exhaustive // other keys are not looked up
		case keysInt:
			f.places[key.digits()] = at
		case keysText:
			f.places[string(key.body)] = at
		}
		v, _ := valueAt(data, at)
		if !seen[v.kind] {
			seen[v.kind] = true
			f.kinds = append(f.kinds, at)
		}
		at = skip(data, at)
	}
	w.maps[begin] = f
	return f
}

// field returns the example for the value of a key. The value of a new key may have any kind.
func (f fields) field(key string) example {
	if at, ok := f.places[key]; ok {
		return example{data: f.data, places: []int{at}, strict: true}
	}
	return example{data: f.data, places: f.kinds}
}
