package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"sealane.io/test-kubelet/internal/network"
)

const enteredVariable = "TEST_KUBELET_ENTERED"

// The main thread is the one that the parent-death signal of whoever started the test kubelet belongs to. It must be the one
// that calls exec, or the test kubelet outlives a test that was killed.
func init() { runtime.LockOSThread() }

// enterNode moves the test kubelet into the node's network namespace. Only one thread can be moved, so the program starts
// again from that thread: then all of them are inside.
func enterNode(name string) error {
	if name == "" || os.Getenv(enteredVariable) == name {
		return nil
	}
	file, err := os.Open(filepath.Join(network.NamespaceFolder, name))
	if err != nil {
		return fmt.Errorf("--netns: %w", err)
	}
	defer file.Close()
	if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("--netns %s: %w", name, err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return syscall.Exec(self, os.Args, append(os.Environ(), enteredVariable+"="+name))
}
