package main

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"time"

	"github.com/hibiken/asynq"
	"github.com/hibiken/asynqmon"
)

// onAsynq is asynq on a Redis, and the rows with which it is filled.
type onAsynq struct {
	redis   asynq.RedisClientOpt
	client  *asynq.Client
	look    *asynq.Inspector
	rows    []row
	example string // the id of an archived or completed task of queue mail
}

func serveAsynqmon(ctx context.Context, all *stack, addr string, rows []row) (peer, error) {
	a := &onAsynq{redis: asynq.RedisClientOpt{Addr: addr}, rows: rows}
	a.client, a.look = asynq.NewClient(a.redis), asynq.NewInspector(a.redis)
	all.add(func() error { return errors.Join(a.client.Close(), a.look.Close()) })
	if err := a.fill(ctx, all); err != nil {
		return peer{}, err
	}
	h := asynqmon.New(asynqmon.Options{RedisConnOpt: a.redis})
	all.add(h.Close)
	url, err := listen(ctx, all, h)
	return peer{URL: url, Pages: map[string]string{
		"overview": "/", "queues": "/", "tasks": "/queues/mail?status=pending",
		"task": "/queues/mail/tasks/" + a.example, "dead": "/queues/mail?status=archived",
		"schedules": "/schedulers", "runners": "/servers",
	}}, err
}

// fill enqueues tasks and runs them, until each has the state of its row.
func (a *onAsynq) fill(ctx context.Context, all *stack) error {
	queues := map[string]int{}
	for _, r := range a.rows {
		if r.Running == 0 {
			queues[r.Queue] = 1
		}
		for i := range r.begun() {
			opts := []asynq.Option{asynq.Retention(time.Hour)}
			if r.last(i) {
				opts = append(opts, asynq.MaxRetry(0))
			}
			if err := a.enqueue(ctx, r, i, opts...); err != nil {
				return err
			}
		}
	}
	server, err := a.work(20, queues)
	if err != nil {
		return err
	}
	err = await(ctx, "asynq's tasks", func() (bool, error) { return a.idle(queues) })
	server.Shutdown()
	if err != nil {
		return err
	}
	if err := a.leave(ctx); err != nil {
		return err
	}
	return a.live(ctx, all)
}

// leave adds the tasks that stay waiting or scheduled, and pauses queues.
func (a *onAsynq) leave(ctx context.Context) error {
	for _, r := range a.rows {
		for i := range r.Waiting {
			if err := a.enqueue(ctx, r, r.begun()+i); err != nil {
				return err
			}
		}
		for i := range r.Scheduled {
			if err := a.enqueue(ctx, r, r.begun()+i, asynq.ProcessIn(time.Duration(i+1)*time.Hour)); err != nil {
				return err
			}
		}
		if r.Paused {
			if err := a.look.PauseQueue(r.Queue); err != nil {
				return err
			}
		}
	}
	dead, err := a.look.ListArchivedTasks("mail", asynq.PageSize(1))
	if err == nil && len(dead) == 0 {
		dead, err = a.look.ListCompletedTasks("mail", asynq.PageSize(1))
	}
	if len(dead) > 0 {
		a.example = dead[0].ID
	}
	return err
}

// live starts a scheduler, and a server on which the running tasks run. The server leaves out the queues
// whose tasks must stay waiting.
func (a *onAsynq) live(ctx context.Context, all *stack) error {
	idle := map[string]bool{}
	queues := map[string]int{}
	for _, r := range a.rows {
		if queues[r.Queue] = 1; r.Waiting > 0 && r.Running == 0 && !r.Paused {
			idle[r.Queue] = true
		}
	}
	maps.DeleteFunc(queues, func(queue string, _ int) bool { return idle[queue] })
	server, err := a.work(4, queues)
	if err != nil {
		return err
	}
	all.add(func() error { server.Shutdown(); return nil })
	scheduler := asynq.NewScheduler(a.redis, &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel})
	for _, s := range schedules {
		task := asynq.NewTask(s.Kind, []byte("{}"))
		if _, err := scheduler.Register(s.Spec, task, asynq.Queue(s.Queue)); err != nil {
			return err
		}
	}
	if err := scheduler.Start(); err != nil {
		return err
	}
	all.add(func() error { scheduler.Shutdown(); return nil })
	return await(ctx, "asynq's running tasks", func() (bool, error) {
		info, err := a.look.GetQueueInfo("exports")
		return err == nil && info.Active == 4, err
	})
}

func (a *onAsynq) enqueue(ctx context.Context, r row, i int, opts ...asynq.Option) error {
	payload, err := json.Marshal(paramsOf(i))
	if err != nil {
		return err
	}
	_, err = a.client.EnqueueContext(ctx, asynq.NewTask(r.Kind, payload), append(opts, asynq.Queue(r.Queue))...)
	return err
}

func (a *onAsynq) work(concurrency int, queues map[string]int) (*asynq.Server, error) {
	server := asynq.NewServer(a.redis, asynq.Config{
		Concurrency: concurrency, Queues: queues, LogLevel: asynq.FatalLevel, ShutdownTimeout: time.Second,
		TaskCheckInterval: 5 * time.Millisecond,
		RetryDelayFunc:    func(int, error, *asynq.Task) time.Duration { return time.Hour },
	})
	return server, server.Start(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		var p params
		if err := json.Unmarshal(task.Payload(), &p); err != nil {
			return err
		}
		r := find(a.rows, task.Type())
		if r.runs(p.User) {
			<-ctx.Done()
		}
		if text := r.failure(p.User); text != "" {
			return errors.New(text)
		}
		return nil
	}))
}

// idle reports whether no task of the queues is pending or active.
func (a *onAsynq) idle(queues map[string]int) (bool, error) {
	names, err := a.look.Queues()
	if err != nil {
		return false, err
	}
	for _, name := range names {
		if queues[name] == 0 {
			continue
		}
		info, err := a.look.GetQueueInfo(name)
		if err != nil || info.Pending+info.Active > 0 {
			return false, err
		}
	}
	return true, nil
}
