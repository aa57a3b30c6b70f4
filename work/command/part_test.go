//go:build linux || darwin

package command_test

import (
	"context"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage/memory"
	"github.com/midgehq/midge/work/command"
)

// The environment of a worker process of a test.
const (
	envScript = "COMMAND_TEST_SCRIPT"
	envTasks  = "COMMAND_TEST_TASKS"
	envMemory = "COMMAND_TEST_MEMORY"
)

// workerMain runs a script for some tasks, and prints the mark of its processes once all of them run.
func workerMain() {
	tasks, _ := strconv.Atoi(os.Getenv(envTasks))
	store, err := memory.Open(memory.Config{})
	must(err)
	runner, err := midge.NewRunner(store, midge.RunnerConfig{Queues: []string{"films"}, Concurrency: tasks})
	must(err)
	cfg := shell(os.Getenv(envScript))
	cfg.Memory, _ = strconv.ParseInt(os.Getenv(envMemory), 10, 64)
	must(command.Handle(runner, "packed", cfg))
	client, err := midge.NewClient(store, midge.ClientConfig{})
	must(err)
	for range tasks {
		_, err := client.Enqueue(context.Background(), packed{})
		must(err)
	}
	must(runner.Run(context.Background()))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// movedMain moves to the process group of the worker, and runs until a signal that it does not ignore ends it.
func movedMain(ignored ...os.Signal) {
	if len(ignored) > 0 {
		signal.Ignore(ignored...)
	}
	group, err := syscall.Getpgid(os.Getppid())
	must(err)
	must(syscall.Setpgid(0, group))
	never := make(chan os.Signal, 1)
	signal.Notify(never, syscall.SIGUSR1)
	must(os.WriteFile(os.Getenv(envReady), nil, 0o600))
	<-never
}
