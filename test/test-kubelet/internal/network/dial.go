package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const dialTimeout = 5 * time.Second

// DialLoopback connects to a port on the loopback of a network namespace, first by IPv4 and then by IPv6, as container
// runtimes do. An empty path is the test kubelet's own namespace.
func DialLoopback(ctx context.Context, path string, port uint16) (net.Conn, error) {
	if path == "" {
		return dialLoopback(ctx, port)
	}
	type dialed struct {
		connection net.Conn
		err        error
	}
	result := make(chan dialed, 1)
	go func() {
		// Never unlocked: Go ends the thread with this goroutine, so nothing else runs in the pod's namespace.
		runtime.LockOSThread()
		var one dialed
		if one.err = enter(path); one.err == nil {
			one.connection, one.err = dialLoopback(ctx, port)
		}
		result <- one
	}()
	one := <-result
	return one.connection, one.err
}

func enter(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter %s: %w", path, err)
	}
	return nil
}

// One address at a time: with several, Go dials in other goroutines, whose threads are in another namespace.
func dialLoopback(ctx context.Context, port uint16) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	var failures []error
	for _, host := range []string{"127.0.0.1", "::1"} {
		connection, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
		if err == nil {
			return connection, nil
		}
		failures = append(failures, err)
	}
	return nil, errors.Join(failures...)
}
