package imports

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/midgehq/midge/storage"
)

// message is a task of asynq. The hash of the task holds it as a protobuf message, which readMessage
// decodes by the numbers of its fields. asynq never changes these numbers.
type message struct {
	typ, id, group, failure string
	payload                 []byte
	headers                 map[string]string
	retry, retried          int64
	timeout, deadline, retention/* all in seconds */ int64
}

var errMessage = errors.New("its record is no message of asynq")

// The numbers of the fields of a message.
const (
	fieldType      = 1
	fieldPayload   = 2
	fieldID        = 3
	fieldRetry     = 5
	fieldRetried   = 6
	fieldError     = 7
	fieldTimeout   = 8
	fieldDeadline  = 9
	fieldRetention = 12
	fieldGroup     = 14
	fieldHeaders   = 15
)

// readMessage decodes a message. It returns errMessage if data is no message with a type and an id.
func readMessage(data []byte) (m message, err error) {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return m, errMessage
		}
		data = data[n:]
		switch kind {
		case protowire.VarintType:
			v, n := protowire.ConsumeVarint(data)
			if n < 0 {
				return m, errMessage
			}
			data = data[n:]
			m.number(number, int64(v))
		case protowire.BytesType:
			v, n := protowire.ConsumeBytes(data)
			if n < 0 {
				return m, errMessage
			}
			data = data[n:]
			if err := m.bytes(number, v); err != nil {
				return m, err
			}
		default:
			n := protowire.ConsumeFieldValue(number, kind, data)
			if n < 0 {
				return m, errMessage
			}
			data = data[n:]
		}
	}
	if m.typ == "" || m.id == "" {
		return m, errMessage
	}
	return m, nil
}

func (m *message) number(field protowire.Number, v int64) {
	switch field {
	case fieldRetry:
		m.retry = v
	case fieldRetried:
		m.retried = v
	case fieldTimeout:
		m.timeout = v
	case fieldDeadline:
		m.deadline = v
	case fieldRetention:
		m.retention = v
	default: // an import does not need the field
	}
}

func (m *message) bytes(field protowire.Number, v []byte) error {
	switch field {
	case fieldType:
		m.typ = string(v)
	case fieldPayload:
		m.payload = v
	case fieldID:
		m.id = string(v)
	case fieldError:
		m.failure = string(v)
	case fieldGroup:
		m.group = string(v)
	case fieldHeaders:
		return m.header(v)
	default: // an import does not need the field
	}
	return nil
}

// header decodes an entry of the map of headers: a key and a value.
func (m *message) header(entry []byte) error {
	var pair [2]string
	for len(entry) > 0 {
		number, kind, n := protowire.ConsumeTag(entry)
		if n < 0 || kind != protowire.BytesType || number < 1 || number > 2 {
			return errMessage
		}
		v, size := protowire.ConsumeBytes(entry[n:])
		if size < 0 {
			return errMessage
		}
		pair[number-1] = string(v)
		entry = entry[n+size:]
	}
	if m.headers == nil {
		m.headers = make(map[string]string)
	}
	m.headers[pair[0]] = pair[1]
	return nil
}

// insert makes the insert of a task of a kind in a queue from a message. due is the time of the task, zero
// for now. reason is why the message cannot be inserted, "" if it can.
func (m *message) insert(
	queue, kind string, due time.Time, limits storage.Limits,
) (in storage.Insert, reason string) {
	payload := m.payload
	switch {
	case len(payload) == 0:
		payload = []byte("{}") // a task without parameters
	case !json.Valid(payload):
		return in, "its payload is no JSON"
	}
	in = storage.Insert{
		Ref: storage.Ref{Queue: queue, ID: idOf("asynq",
			m.id)}, Kind: kind, Encoding: "json", Payload: payload, At: due,
		MaxRetries: int(min(max(0, m.retry-m.retried), storage.MaxLimit)), CrashLimit: 3,
		Timeout: seconds(m.timeout), Keep: storage.Keep{For: seconds(m.retention)},
		Headers: make(map[string]string),
	}
	maps.Copy(in.Headers, m.headers)
	if m.deadline > 0 {
		in.Headers[storage.DeadlineHeader] = time.Unix(m.deadline, 0).UTC().Format(time.RFC3339Nano)
	}
	if m.failure != "" {
		in.Headers["asynq.error"] = storage.CleanText(m.failure, maxError)
	}
	if in.Ref.ID != m.id {
		in.Headers["asynq.id"] = storage.CleanText(m.id, maxError)
	}
	in = in.CompleteHeaders()
	return in, unfit(limits, &in)
}

// seconds converts a number of seconds to a duration within the limits of the storage.
func seconds(n int64) time.Duration {
	return time.Duration(min(max(0, n), int64(storage.MaxDelay/time.Second))) * time.Second
}

// unfit returns why the storage would refuse an insert, "" if it would accept it.
func unfit(limits storage.Limits, in *storage.Insert) string {
	if err := storage.CheckInsert(limits, in); err != nil {
		return err.Error()
	}
	return ""
}

// idOf returns the id under which a task is inserted: its own id, or a hash of it if midge does not allow
// the id.
func idOf(peer, id string) string {
	ref := storage.Ref{Queue: "q", ID: id}
	if storage.CheckRef(ref) == nil && !strings.HasPrefix(id, storage.CursorPrefix) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return peer + "-" + hex.EncodeToString(sum[:16])
}
