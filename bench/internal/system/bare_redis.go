package system

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// onBareRedis has for each queue a list of the ids of waiting jobs, a hash of bodies, a sorted
// set of leases, a sorted set of jobs that are due later, a counter, a flag that the worker
// sleeps, and a list to wake it.
type onBareRedis struct{ client *goredis.Client }

func openBareRedis(at Place) *onBareRedis {
	return &onBareRedis{goredis.NewClient(&goredis.Options{Addr: at.Addr})}
}

func bareKeys(queue string) []string {
	return []string{
		queue + ":line", queue + ":bodies", queue + ":leases", queue + ":later", queue + ":completed",
		queue + ":sleeps", queue + ":wake",
	}
}

// The arguments of these scripts are: the due moment, 0 for now, and ids with bodies; the most
// tasks to claim, and when their leases end; ids.
var (
	bareInsert = goredis.NewScript(`
local due, call = ARGV[1], redis.call
call('HSET', KEYS[2], unpack(ARGV, 2))
local list = {}
if due == '0' then
  for i = 2, #ARGV, 2 do list[i / 2] = ARGV[i] end
  call('RPUSH', KEYS[1], unpack(list))
else
  for i = 2, #ARGV, 2 do list[i - 1], list[i] = due, ARGV[i] end
  call('ZADD', KEYS[4], unpack(list))
end
if call('DEL', KEYS[6]) == 1 then call('RPUSH', KEYS[7], '1') end`)

	bareClaim = goredis.NewScript(`
local call = redis.call
local t = call('TIME')
local now = string.format('%.0f', t[1] * 1000000 + t[2])
local due = call('ZRANGEBYSCORE', KEYS[4], '-inf', now, 'LIMIT', '0', '1000')
if #due > 0 then
  call('ZREMRANGEBYRANK', KEYS[4], '0', #due - 1)
  call('RPUSH', KEYS[1], unpack(due))
end
local ids = call('LRANGE', KEYS[1], '0', ARGV[1] - 1)
if #ids == 0 then
  call('SET', KEYS[6], '1')
  return {ids, call('ZRANGE', KEYS[4], '0', '0', 'WITHSCORES')}
end
call('LTRIM', KEYS[1], #ids, '-1')
local leases = {}
for i = 1, #ids do leases[2 * i - 1], leases[2 * i] = ARGV[2], ids[i] end
call('ZADD', KEYS[3], unpack(leases))
return {ids, call('HMGET', KEYS[2], unpack(ids))}`)

	bareSettle = goredis.NewScript(`
redis.call('ZREM', KEYS[3], unpack(ARGV))
redis.call('HDEL', KEYS[2], unpack(ARGV))
redis.call('INCRBY', KEYS[5], #ARGV)`)
)

func (s *onBareRedis) insert(ctx context.Context, queue string, due time.Time, bodies [][]byte) error {
	args := make([]any, 1, 1+2*len(bodies))
	args[0] = int64(0)
	if !due.IsZero() {
		args[0] = due.UnixMicro()
	}
	for _, body := range bodies {
		var id [16]byte
		_, _ = rand.Read(id[:]) // never fails
		args = append(args, hex.EncodeToString(id[:13]), body)
	}
	err := bareInsert.Run(ctx, s.client, bareKeys(queue), args...).Err()
	if errors.Is(err, goredis.Nil) { // the script returns nothing
		return nil
	}
	return err
}

func (s *onBareRedis) claim(ctx context.Context, queue string, most int) ([]bareJob, time.Time, error) {
	till := time.Now().Add(bareLease).UnixMicro()
	reply, err := bareClaim.Run(ctx, s.client, bareKeys(queue), most, till).Slice()
	if err != nil {
		return nil, time.Time{}, err
	}
	ids, bodies := reply[0].([]any), reply[1].([]any)
	if len(ids) == 0 {
		if len(bodies) < 2 {
			return nil, time.Time{}, nil
		}
		at, err := strconv.ParseInt(bodies[1].(string), 10, 64)
		return nil, time.UnixMicro(at), err
	}
	jobs := make([]bareJob, len(ids))
	for i := range ids {
		jobs[i] = bareJob{id: ids[i].(string), body: []byte(bodies[i].(string))}
	}
	return jobs, time.Time{}, nil
}

func (s *onBareRedis) settle(ctx context.Context, queue string, jobs []bareJob) error {
	args := make([]any, len(jobs))
	for i := range jobs {
		args[i] = &jobs[i].id
	}
	err := bareSettle.Run(ctx, s.client, bareKeys(queue), args...).Err()
	if errors.Is(err, goredis.Nil) {
		return nil
	}
	return err
}

func (s *onBareRedis) wait(ctx context.Context, queue string, most time.Duration) error {
	if most <= 0 {
		return nil
	}
	err := s.client.Do(ctx, "BLPOP", queue+":wake", most.Seconds()).Err()
	if errors.Is(err, goredis.Nil) {
		return nil
	}
	return err
}

func (s *onBareRedis) totals(ctx context.Context, queue string) (Totals, error) {
	keys := bareKeys(queue)
	pipe := s.client.Pipeline()
	waiting, pending, later := pipe.LLen(ctx, keys[0]), pipe.ZCard(ctx, keys[2]), pipe.ZCard(ctx, keys[3])
	completed := pipe.IncrBy(ctx, keys[4], 0)
	_, err := pipe.Exec(ctx)
	return Totals{
		Waiting: waiting.Val(), Pending: pending.Val(), Later: later.Val(), Completed: completed.Val(),
	}, err
}

func (s *onBareRedis) close() error { return s.client.Close() }
