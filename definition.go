package midge

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/midgehq/midge/internal/codec"
	"github.com/midgehq/midge/storage"
)

// definition holds the declarations of a job type.
type definition struct {
	kind    string
	aliases []string // earlier kinds, the oldest first
	queue   string   // "" for a kind of HandleRaw
	options Options  // with defaults filled
	typ     reflect.Type
	codec   codec.Parameters
	asks    bool // the type has a method BeforeEnqueue
	names   bool // the type has a method Partition, and no Options.Partition
	costs   bool // the type has a method Cost, and no Options.Cost

	verifier codec.Verifier // nil in production
}

// definitions remembers the definitions of the types that were used. The zero value works; it is
// safe for concurrent use.
type definitions struct {
	byType   sync.Map
	verifier codec.Verifier // is shown what is encoded; nil in production
	prepared bool           // no BeforeEnqueue is called; false in production
}

// verify makes a storage that is a codec.Verifier see what is encoded. On a storage that is codec.Prepared,
// jobs are not prepared.
func (c *definitions) verify(store storage.Storage) {
	c.verifier, _ = store.(codec.Verifier)
	_, c.prepared = store.(codec.Prepared)
}

// of returns the definition of a job, which is a struct or a pointer to one.
func (c *definitions) of(job any) (*definition, error) {
	v := reflect.ValueOf(job)
	if !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, storage.Invalid("job", "nil", "a struct, or a pointer to one")
	}
	return c.ofType(v.Type())
}

func (c *definitions) ofType(typ reflect.Type) (*definition, error) {
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	known, _ := c.byType.Load(typ)
	if d, ok := known.(*definition); ok {
		return d, nil
	}
	d, err := define(typ)
	if err != nil {
		return nil, err
	}
	d.verifier, d.asks = c.verifier, d.asks && !c.prepared
	c.byType.Store(typ, d)
	return d, nil
}

// define reads and checks the declarations of a struct type. Its errors name the type.
func define(typ reflect.Type) (*definition, error) {
	if typ.Kind() != reflect.Struct {
		return nil, storage.Invalid("job", typ.String(), "a struct, or a pointer to one")
	}
	zero := reflect.New(typ).Interface()
	if err := checkMethods(typ, zero); err != nil {
		return nil, err
	}
	kind, err := kindOf(typ, zero)
	if err != nil {
		return nil, err
	}
	d := &definition{kind: kind, typ: typ, codec: codec.ParametersOf(typ)}
	if d.aliases, err = aliasesOf(typ, zero, kind); err != nil {
		return nil, err
	}
	if o, ok := zero.(interface{ Options() Options }); ok {
		if d.options, err = ask(typ, "Options", o.Options); err != nil {
			return nil, err
		}
	}
	_, d.asks = zero.(interface {
		BeforeEnqueue(ctx context.Context) error
	})
	_, d.names = zero.(partitioned)
	d.names = d.names && d.options.Partition == ""
	_, d.costs = zero.(costed)
	d.costs = d.costs && d.options.Cost == 0
	d.options.fill()
	d.queue = d.options.Queue
	if err := d.check(); err != nil {
		return nil, fmt.Errorf("%v: %w", typ, err)
	}
	if err := d.codec.CheckRenames(string(d.options.Encoding)); err != nil {
		return nil, err
	}
	if err := d.codec.Check(string(d.options.Encoding)); err != nil {
		return nil, err
	}
	return d, nil
}

// checkMethods refuses a method that has the name of a declaration but another signature, because
// midge would silently ignore it.
func checkMethods(typ reflect.Type, zero any) error {
	_, kind := zero.(interface{ Kind() string })
	_, options := zero.(interface{ Options() Options })
	_, aliases := zero.(interface{ Aliases() []string })
	_, asks := zero.(interface {
		BeforeEnqueue(ctx context.Context) error
	})
	_, names := zero.(partitioned)
	_, costs := zero.(costed)
	_, before := zero.(interface {
		BeforeRun(ctx context.Context) error
	})
	_, after := zero.(interface {
		AfterRun(ctx context.Context, end error)
	})
	for name, ok := range map[string]bool{
		"Kind() string": kind, "Aliases() []string": aliases, "Options() midge.Options": options,
		"Partition() string": names, "Cost() int": costs, "BeforeEnqueue(context.Context) error": asks,
		"BeforeRun(context.Context) error": before, "AfterRun(context.Context, error)": after,
	} {
		if ok {
			continue
		}
		method, _, _ := strings.Cut(name, "(")
		if _, has := reflect.TypeOf(zero).MethodByName(method); has {
			return storage.Invalid("job type", typ.String(), "no method %s, or one that is %s", method, name)
		}
	}
	return nil
}

// fill sets the defaults.
func (o *Options) fill() {
	if o.Queue == "" {
		o.Queue = DefaultQueue
	}
	switch o.Retries {
	case 0:
		o.Retries = defaultRetries
	case None:
		o.Retries = 0
	}
	if o.CrashLimit == 0 {
		o.CrashLimit = defaultCrashLimit
	}
	if o.Encoding == "" {
		o.Encoding = MessagePack
	}
}

// check validates the type's options, and lets the storage's validation check a task with these
// options.
func (d *definition) check() error {
	if err := d.options.check(); err != nil {
		return err
	}
	if d.options.Unique != nil {
		if err := d.options.Unique.check(d); err != nil {
			return err
		}
	}
	c := newCall(d)
	in := c.insert(d, nil)
	return storage.CheckInsert(storage.Limits{}, &in)
}

// partitioned is a job that names its partition.
type partitioned interface{ Partition() string }

// costed is a job that names the cost of its start.
type costed interface{ Cost() int }

// partitionOf returns the partition that a job names. A panic of its method is an *InvalidError.
func (d *definition) partitionOf(job any) (string, error) {
	key, err := askJob(d, job, "Partition", partitioned.Partition)
	if err != nil {
		return "", err
	}
	return key, checkPartition("answer of Partition of "+d.typ.String(), key)
}

// costOf returns the cost that a job names. A panic of its method is an *InvalidError.
func (d *definition) costOf(job any) (storage.Cost, error) {
	n, err := askJob(d, job, "Cost", costed.Cost)
	if err != nil {
		return 0, err
	}
	return storage.CostOf("answer of Cost of "+d.typ.String(), n) //nolint:wrapcheck // it names the type
}

// askJob calls a method of a job or of a pointer to it. A panic of the method is an *InvalidError.
func askJob[M, A any](d *definition, job any, method string, call func(M) A) (answer A, err error) {
	m, ok := job.(M)
	if !ok {
		m, ok = codec.Addressable(job).(M)
	}
	if !ok {
		return answer, storage.Invalid("job", fmt.Sprintf("%T", job), "a struct, or a pointer to one")
	}
	defer func() {
		if p := recover(); p != nil {
			err = storage.Invalid("job", d.typ.String(), "a method %s that returns, not a panic: %v", method, p)
		}
	}()
	return call(m), nil
}

// oldest returns the first kind that the type had. Names that must survive a rename are made of it.
func (d *definition) oldest() string { return d.kinds()[0] }

// kinds returns all kinds of the type's tasks, the oldest first.
func (d *definition) kinds() []string { return append(slices.Clip(d.aliases), d.kind) }

// encode encodes a job's parameters; equal parameters are encoded as equal bytes.
func (d *definition) encode(encoding string, job any) ([]byte, error) {
	payload, err := d.encodePart(encoding, job)
	if err == nil && d.verifier != nil {
		d.verifier.Verify(d.codec, encoding, payload)
	}
	return payload, err
}

// encodePart encodes a job, or one of its fields.
func (d *definition) encodePart(encoding string, v any) ([]byte, error) {
	payload, err := d.codec.Encode(encoding, v)
	if err != nil {
		return nil, storage.Invalid("job", d.typ.String(), "parameters that can be encoded: %v", err)
	}
	return payload, nil
}
