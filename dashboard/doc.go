// Package dashboard shows what midge's queues, tasks, schedules and runners do, in a browser, and lets
// those who may act on them. It is one http.Handler made of the standard library alone:
//
//	h, err := dashboard.Handler(store, dashboard.Config{Base: "/midge", Who: who})
//	mux.Handle("/midge/", h)
//	go h.Run(ctx) // keeps the history
//
// All pages are rendered by the server and work without JavaScript; with it they are live. Queues, runners,
// schedules and causes of death are read from the storage once a second for all viewers of a process
// together, and not at all while nobody looks. Lists of tasks, a task and the audit are read for each viewer.
// Only Run writes the history, once a minute.
//
// # Who may look
//
// With neither Config.Who nor Config.Users the handler serves only this machine: requests from a loopback
// address, for a loopback name, that no proxy has passed on. A proxy shows by the headers that it adds, by
// HTTP/1.0, or by an Origin or a Referer that names another host. A proxy on this machine that speaks
// HTTP/1.1, adds no header and puts a loopback name in the place of the one that was asked for cannot be
// told from a browser at a first GET. Whoever passes requests on sets Config.Who or Config.Users.
//
// # What pages have in common
//
// A page shows at its foot the line of the command midge that tells the same. The field at the left
// suggests what a text names while it is typed, and its page works without JavaScript. Charts have a tick
// where a runner of another version came, as storage.RunnerInfo.Version names it, and a table beside them.
//
// # Safety
//
// A GET changes nothing, a role permits what a page offers, and each act is in the audit. A request from
// another site that would change something is refused (http.CrossOriginProtection). Each answer forbids
// scripts and styles that are not the dashboard's own.
package dashboard
