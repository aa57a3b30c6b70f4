package midgetest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/midgetest"
)

// price forgets its currency when it is read.
type price struct {
	cents    int
	currency string
}

func (p price) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%d %s", p.cents, p.currency), nil
}

func (p *price) UnmarshalText(b []byte) error {
	_, err := fmt.Sscan(string(b), &p.cents)
	return err
}

// fussy does not read its own output.
type fussy struct{ n int }

func (f fussy) MarshalText() ([]byte, error)  { return fmt.Append(nil, f.n), nil }
func (f *fussy) UnmarshalText(_ []byte) error { return errors.New("a number is wanted") }

type (
	sale struct {
		Items []struct {
			Name  string
			Price price
		}
	}
	saleJSON sale
	fuss     struct{ Fussy fussy }
	loose    struct{ Any any }
	looser   struct{ Any any }
)

func (saleJSON) Options() midge.Options { return midge.Options{Encoding: midge.JSON} }
func (looser) Options() midge.Options   { return midge.Options{Encoding: midge.JSON} }

func TestAKitFailsATestWhoseValuesDoNotComeBack(t *testing.T) {
	one := sale{Items: []struct {
		Name  string
		Price price
	}{{"tea", price{5, "EUR"}}}}
	for want, job := range map[string]any{
		`midgetest: the parameters of midgetest_test.sale do not come back as they were enqueued: got 5  for field Items[].Price, want 5 EUR`:     one,
		`midgetest: the parameters of midgetest_test.saleJSON do not come back as they were enqueued: got 5  for field Items[].Price, want 5 EUR`: saleJSON(one),
		`midgetest: the parameters of midgetest_test.fuss do not come back: midgetest_test.fuss from msgpack: got bytes for field "Fussy", ` +
			`which the decoder of midgetest_test.fussy refused (*errors.errorString)`: fuss{},
		`midgetest: the parameters of midgetest_test.loose do not come back as they were enqueued: got string x for field Any, want []uint8 x`: loose{[]byte("x")},
	} {
		for name, enqueue := range map[string]func(k *midgetest.Kit) error{
			"Enqueue": func(k *midgetest.Kit) error { _, err := k.Client().Enqueue(t.Context(), job); return err },
			"EnqueueMany": func(k *midgetest.Kit) error {
				_, err := k.Client().EnqueueMany(t.Context(), []midge.Item{midge.New(job)})
				return err
			},
			"inline": func(k *midgetest.Kit) error {
				_, err := k.Inline().EnqueueIn(t.Context(), time.Hour, job)
				return err
			},
			"FollowUp": func(k *midgetest.Kit) error { return k.Work(step{"follow"}).Err },
		} {
			got := failure(t, func(t testing.TB) {
				must(t, enqueue(midgetest.New(t, midgetest.Config{Register: func(r *midge.Runner) error {
					return midge.Handle(r, func(ctx context.Context, _ step) error { return midge.FollowUp(ctx, job) })
				}})))
			})
			if got != want {
				t.Errorf("%s of %T: the failure is\n%s\nwant\n%s", name, job, got, want)
			}
		}
	}
}

// Production does not decode the values that it encodes.
func TestProductionAcceptsValuesThatDoNotComeBack(t *testing.T) {
	_, err := newClient(t).Enqueue(t.Context(), fuss{})
	must(t, err)
}

// harmless is a job that comes back with differences that the encodings promise.
type harmless struct {
	Empty  []int
	None   map[string]int
	At     time.Time
	Hidden string `json:"-"           msgpack:"-"`
	Was    int    `midge:"was=Before"`
	inner  int
}

type harmlessJSON harmless

func (harmlessJSON) Options() midge.Options { return midge.Options{Encoding: midge.JSON} }

func TestAKitAcceptsValuesThatComeBack(t *testing.T) {
	k := midgetest.New(t, midgetest.Config{})
	for _, v := range []any{
		nil, 1, 128, int64(-1), uint64(1 << 63), 1.5, "text", true,
		[]any{1, "a", nil},
		map[string]any{"b": 1, "a": 616581622363398142},
		struct{ B, A int }{1, 2},
		map[int]string{2: "b", 1: "a"},
		json.Number("1.50"),
	} {
		_, err1 := k.Client().Enqueue(t.Context(), loose{v})
		_, err2 := k.Client().Enqueue(t.Context(), looser{v})
		must(t, errors.Join(err1, err2))
	}
	v := harmless{Empty: []int{}, At: time.Date(2026, 3, 1, 0, 0, 0, 0, time.FixedZone("west", -8*3600)), Hidden: "a", Was: 7, inner: 7}
	_, err1 := k.Client().Enqueue(t.Context(), v)
	_, err2 := k.Client().Enqueue(t.Context(), harmlessJSON(v))
	must(t, errors.Join(err1, err2))
}
