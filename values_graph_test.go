package midge_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/midgehq/midge"
)

// node is a node of a random graph.
type node struct {
	ID    int
	Next  *node
	Kids  []*node
	Named map[string]*node
	Any   any
}

// TestRandomGraphsComeBackOrAreRefused encodes random graphs. A graph with a cycle is refused. Any
// other graph comes back with the same paths.
func TestRandomGraphsComeBackOrAreRefused(t *testing.T) {
	const graphs = 200
	random := rand.New(rand.NewPCG(1, 28))
	cyclic := 0
	bubble(t, func(b *bench) {
		for range graphs {
			root, loops := randomGraph(random)
			if loops {
				cyclic++
			}
			for _, encoding := range bothEncodings {
				task, err := b.client.Enqueue(b.ctx, carrying(encoding, root))
				if loops {
					wantsInvalid(t, "a graph with a cycle", err, tooDeep)
					continue
				}
				var got carry[*node]
				if err := errors.Join(err, midge.Decode(task, &got)); err != nil || paths(got.V) != paths(root) {
					t.Errorf("%s: got %s, %v; want %s", encoding, paths(got.V), err, paths(root))
				}
			}
		}
	})
	if cyclic < graphs/4 || cyclic > 3*graphs/4 {
		t.Errorf("%d of %d graphs had cycles, want many of both", cyclic, graphs)
	}
}

// randomGraph returns the root of a graph of up to eight nodes, and whether a walk from the root
// meets a cycle.
func randomGraph(random *rand.Rand) (root *node, loops bool) {
	nodes := make([]*node, 2+random.IntN(7))
	for i := range nodes {
		nodes[i] = &node{ID: i}
	}
	forward := random.IntN(2) == 0 // edges to later nodes alone make no cycle
	pick := func(i int) *node {
		low := 0
		if forward {
			low = i + 1
		}
		if low >= len(nodes) || random.IntN(3) == 0 {
			return nil
		}
		return nodes[low+random.IntN(len(nodes)-low)]
	}
	for i, n := range nodes {
		n.Next = pick(i)
		if kid := pick(i); kid != nil {
			n.Kids = []*node{kid}
		}
		if kid := pick(i); kid != nil {
			n.Named = map[string]*node{"kid": kid}
		}
		if kid := pick(i); !forward && kid != nil {
			n.Any = []any{kid}
		}
	}
	return nodes[0], meetsItself(nodes[0], map[*node]bool{})
}

// meetsItself reports whether a walk from n comes back to a node of its way.
func meetsItself(n *node, way map[*node]bool) bool {
	if n == nil {
		return false
	}
	if way[n] {
		return true
	}
	way[n] = true
	defer delete(way, n)
	next := append([]*node{n.Next, n.Named["kid"]}, n.Kids...)
	if held, ok := n.Any.([]any); ok {
		next = append(next, held[0].(*node))
	}
	return slices.ContainsFunc(next, func(n *node) bool { return meetsItself(n, way) })
}

// paths prints all paths from a node, without those through an any, which come back as maps.
func paths(n *node) string {
	if n == nil {
		return "-"
	}
	kid := (*node)(nil)
	if len(n.Kids) > 0 {
		kid = n.Kids[0]
	}
	return fmt.Sprintf("%d(%s %s %s)", n.ID, paths(n.Next), paths(kid), paths(n.Named["kid"]))
}

// hermit has itself in fields that are not stored, and signed in a field that its encoder leaves out.
type (
	hermit struct {
		Name   string
		Parent *hermit `json:"-" msgpack:"-"`
		self   *hermit
	}
	signed struct {
		Name string
		Self *signed
	}
)

func (s signed) MarshalText() ([]byte, error)     { return []byte(s.Name), nil }
func (s *signed) UnmarshalText(text []byte) error { s.Name = string(text); return nil }

func TestACycleThatIsNotStoredIsAccepted(t *testing.T) {
	alone := &hermit{Name: "ann"}
	alone.Parent, alone.self = alone, alone
	own := signed{Name: "bob"}
	own.Self = &own
	for _, encoding := range bothEncodings {
		if f := fateOf(t, encoding, alone); !f.ran || *f.got != (hermit{Name: "ann"}) {
			t.Errorf("%s: got %+v, want the name alone", encoding, f)
		}
		if f := fateOf(t, encoding, own); !f.ran || f.got != (signed{Name: "bob"}) {
			t.Errorf("%s: got %+v, want the name alone", encoding, f)
		}
	}
}
