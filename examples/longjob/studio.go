package main

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// frames is the number of frames of each film.
const frames = 150

// studio enqueues films and watches them.
type studio struct {
	client *midge.Client
	say    *zap.SugaredLogger
}

// encodeAll enqueues three films and returns when all of them have ended.
func (s *studio) encodeAll(ctx context.Context, pace time.Duration) error {
	films := []Encode{
		{Film: "Metropolis", Frames: frames, Pace: pace},
		{Film: "Nosferatu", Frames: frames, Pace: pace, DieAt: frames * 2 / 5},
		{Film: "Faust", Frames: frames, Pace: pace},
	}
	var watchers sync.WaitGroup
	defer watchers.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	tasks := make([]midge.Task, len(films))
	for i, film := range films {
		task, err := s.client.Enqueue(ctx, film)
		if err != nil {
			return err
		}
		s.say.Infof("» %s is %s", film.Film, task.Ref)
		tasks[i] = task
		watchers.Go(func() { s.watch(ctx, film.Film, task.Ref) })
	}
	if err := s.cancel(ctx, tasks[2].Ref, frames/3); err != nil {
		return err
	}
	for i, task := range tasks {
		if err := s.report(ctx, films[i].Film, task.Ref); err != nil {
			return err
		}
	}
	return nil
}

// watch prints the progress of a film from time to time, until the film or ctx has
// ended.
func (s *studio) watch(ctx context.Context, film string, ref storage.Ref) {
	shown := 0
	for ctx.Err() == nil {
		task, at, err := s.look(ctx, ref)
		if err != nil || task.State.Ended() {
			return
		}
		if at.Frame/30 != shown/30 {
			s.say.Infof("» %s: frame %d of %d, by process %d", film, at.Frame, at.Of, at.Child)
			shown = at.Frame
		}
		wait(ctx, 50*time.Millisecond)
	}
}

// look reads a task and its progress.
func (s *studio) look(ctx context.Context, ref storage.Ref) (task storage.Task, at progress, err error) {
	task, err = s.client.Task(ctx, ref)
	if err == nil && task.Progress != nil {
		err = json.Unmarshal(task.Progress, &at)
	}
	return task, at, err
}

// cancel cancels a task when it has reached a frame.
func (s *studio) cancel(ctx context.Context, ref storage.Ref, frame int) error {
	for {
		task, at, err := s.look(ctx, ref)
		if err != nil {
			return err
		}
		if at.Frame >= frame || task.State.Ended() {
			break
		}
		wait(ctx, 20*time.Millisecond)
	}
	state, err := s.client.Cancel(ctx, ref)
	if err != nil {
		return err
	}
	s.say.Infof("» cancelled %s at frame %d or so; it is %s until its job has seen it", ref, frame, state)
	return nil
}

// report waits until a task has ended, and prints its state and its failures.
func (s *studio) report(ctx context.Context, film string, ref storage.Ref) error {
	if err := s.client.Await(ctx, ref, nil); err != nil && !errors.Is(err, midge.ErrCancelled) {
		return err
	}
	task, _, err := s.look(ctx, ref)
	if err != nil {
		return err
	}
	s.say.Infof("» %s is %s after %d failures", film, task.State, task.Retries)
	for _, attempt := range task.Attempts {
		s.say.Infof("»   %s: %s", attempt.Outcome, attempt.Error)
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
