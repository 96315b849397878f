// Command refundd serves refunds that happen at most once each, and holds the tools of those who run it.
//
// Its promises: stdout carries only a command's result, logs go to stderr; the exit code is 0 for a clean end, 1 for a
// failure, 2 for a wrong use, 3 where the command ran and found something for a human; a bad configuration ends in one
// sentence that says what to do and carries neither a database URL nor a password. The package only wires rooms
// together.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	// else a reader of stdout or stderr that leaves ends the process
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	forgetShell()
	os.Exit(run(followGoRun(ctx), os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}
