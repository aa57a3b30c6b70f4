// Package command runs programs as jobs: a process for each task of a kind. The command "midge work" is made
// of it, and docs/any-program.md describes the program's side: parameters on standard input, exit codes, and
// lines of JSON on file descriptor 3.
//
//	func main() {
//		reaper := command.Main() // first
//		…
//		err = command.Handle(runner, "encode", command.Config{Path: "./encode.sh", Reaper: reaper})
//
// # Processes
//
// A task is a process group. The leader's end ends the group: the leader stays a zombie until the others are
// killed, so that the number of the group cannot belong to somebody else meanwhile.
//
// Two mechanisms end the processes of a worker that dies. Linux kills the leaders together with the worker
// (PDEATHSIG), but not the processes that they have started. The reaper, one process per worker, receives
// each group through a pipe, and kills all groups when the pipe ends. It is the program itself, started again
// under another name: that needs no file beside the program, and no shell in the image of a container. The
// price is the call of [Main], whose value Config.Reaper requires, so that nobody can forget it.
//
// The reaper also finds processes that have left their group, by the mark MIDGE_WORKER in their environment.
// It searches for them at most once per second, because a search reads a file of every process of the system.
// docs/any-program.md lists the processes that are not covered.
//
// # Bounds
//
// The result, the error and each line of a program are bounded, and are stored with the task. The log of the
// runner has the beginning of the error of an attempt, as that of any job, and no other text of a program;
// the handler of "midge work" leaves these errors out. If a writer of Config.Stdout or Config.Stderr panics,
// a line reports the type of the value, which may hold what the program has written.
package command
