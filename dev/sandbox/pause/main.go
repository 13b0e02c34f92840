// Command pause holds a pod's namespaces open: it does nothing, until it is told to end.
//
// It is written in Go because the sandbox builds with Go already and needs no C compiler then.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		// As the first process of a shared pid namespace it inherits orphans, and has to bury them.
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}
