// Package dashboard shows midge's queues, tasks, schedules and runners in a browser, and lets users change
// them as far as their roles permit. It is one http.Handler, and imports only midge and the standard library:
//
//	h, err := dashboard.Handler(store, dashboard.Config{Base: "/midge", Who: who})
//	mux.Handle("/midge/", h)
//	go h.Run(ctx) // keeps the history
//
// All pages are rendered by the server and work without JavaScript; with it they are live. A process reads
// queues, runners, schedules and causes of death from the storage at most once a second for all its viewers
// together, and once more after each action. While it has no viewer, it does not read them. It reads lists of
// tasks, single tasks and the audit for each viewer. Only Run writes the history: once a minute it reads the
// queues and writes a sample.
//
// # Who is admitted
//
// Config.Who asks the login of the application. Config.Users is a login of the dashboard's own. With neither,
// Config.Token admits all who have it, and nobody else: an address identifies no person, because
// requests from this machine may have passed through a proxy, and may come from another user of the machine.
//
// # What pages have in common
//
// At the foot of a page stands the command line of midge that prints the same data. The search field at the
// left makes suggestions while its text is typed, and works without JavaScript, too. Charts have a tick where
// a runner of another version appeared (see storage.RunnerInfo.Version), and a table of their values.
//
// # Safety
//
// A GET request changes nothing. Users can do only what their roles permit, and each action is recorded in
// the audit. A request from another site that would change something is refused (http.CrossOriginProtection).
// Each response forbids scripts and styles within the page, and files from other origins.
//
// The bounds on the time and number of connections are the server's. A server that strangers reach has a
// ReadHeaderTimeout, an IdleTimeout and a WriteTimeout, so that a client who is slow, or does not read its
// answer, does not keep a connection. A live page sets the deadline of each of its writes, and outlives a
// WriteTimeout; a download does not. midge serve bounds each write instead of the whole answer.
package dashboard
