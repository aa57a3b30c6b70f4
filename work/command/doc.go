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
// The death of the worker is noticed by two. Linux kills the leaders (PDEATHSIG), which survives nothing but
// misses grandchildren. The reaper, one process per worker, is told each group through a pipe, and kills all
// groups when the pipe ends. It is the program itself, started again under another name, because that needs
// no file beside the program, no shell in the image of a container, and no second language. The price is the
// call of [Main], whose value Config.Reaper asks for, so that nobody can forget it. The reaper also finds
// processes that have left their group, by a mark in their environment. It alone looks for them, and at most
// once per second, because a look costs a read of every process of the system.
//
// # Bounds
//
// The result, the error and each line of a program are bounded, and are stored with the task alone: this
// package logs nothing.
package command
