package command_test

import (
	"context"
	"fmt"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage/memory"
	"github.com/midgehq/midge/work/command"
)

// A program of any language runs the tasks of a kind.
func ExampleHandle() {
	main := func(ctx context.Context) error {
		reaper := command.Main() // the first call of main
		store, err := memory.Open(memory.Config{})
		if err != nil {
			return err
		}
		runner, err := midge.NewRunner(store, midge.RunnerConfig{})
		if err != nil {
			return err
		}
		cfg := command.Config{Path: "./encode.sh", Reaper: reaper}
		err = command.Handle(runner, "encode", cfg)
		if err != nil {
			return err // the program is not there, or may not be executed
		}
		return runner.Run(ctx)
	}
	if err := main(context.Background()); err != nil {
		fmt.Println("not started")
	}
	// Output: not started
}
