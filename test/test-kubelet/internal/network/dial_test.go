package network

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestDialLoopback(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to make namespaces")
	}
	name := fmt.Sprintf("sl-%08x-dial", os.Getpid())
	for _, line := range [][]string{{"netns", "add", name}, {"-n", name, "link", "set", "lo", "up"}} {
		if _, err := ip(line...); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _, _ = ip("netns", "delete", name) })
	path := filepath.Join(NamespaceFolder, name)
	for _, host := range []string{"127.0.0.1", "::1"} {
		listener := listenIn(t, path, host)
		port := uint16(listener.Addr().(*net.TCPAddr).Port)
		if connection, err := DialLoopback(t.Context(), "", port); err == nil {
			connection.Close()
			t.Errorf("%s: port %d answers outside too", host, port)
		}
		connection, err := DialLoopback(t.Context(), path, port)
		if err != nil {
			t.Fatal(err)
		}
		if got := connection.RemoteAddr().(*net.TCPAddr).IP.String(); got != host {
			t.Errorf("got a connection to %s, want %s", got, host)
		}
		connection.Close()
		listener.Close()
		if _, err := DialLoopback(t.Context(), path, port); err == nil {
			t.Errorf("%s: port %d answers after its end", host, port)
		}
	}
	if _, err := DialLoopback(t.Context(), path+"-other", 80); err == nil {
		t.Error("a namespace that does not exist is entered")
	}
}

func listenIn(t *testing.T, path, host string) net.Listener {
	t.Helper()
	result := make(chan net.Listener, 1)
	go func() {
		defer close(result)
		runtime.LockOSThread()
		if err := enter(path); err != nil {
			t.Error(err)
			return
		}
		listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			t.Error(err)
			return
		}
		result <- listener
	}()
	listener := <-result
	if listener == nil {
		t.FailNow()
	}
	return listener
}
