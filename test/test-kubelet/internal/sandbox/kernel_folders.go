package sandbox

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// kernelFolders mounts /proc and /sys. Both show the namespaces that the stage is in.
func (root *RootFS) kernelFolders() error {
	for _, path := range []string{"/proc", "/sys"} {
		if err := os.MkdirAll(root.inside(path), 0o555); err != nil {
			return err
		}
	}
	flags := uintptr(unix.MS_NOSUID | unix.MS_NOEXEC | unix.MS_NODEV)
	if err := unix.Mount("proc", root.inside("/proc"), "proc", flags, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if !root.Privileged {
		flags |= unix.MS_RDONLY
	}
	if err := unix.Mount("sysfs", root.inside("/sys"), "sysfs", flags, ""); err != nil {
		return fmt.Errorf("mount /sys: %w", err)
	}
	return nil
}

var usualDevices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}

func (root *RootFS) devices() error {
	if root.Privileged {
		if err := root.bind(Bind{Source: "/dev", Target: "/dev"}); err != nil {
			return err
		}
		return nil
	}
	if err := os.MkdirAll(root.inside("/dev"), 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", root.inside("/dev"), "tmpfs", unix.MS_NOSUID, "mode=0755,size=65536k"); err != nil {
		return fmt.Errorf("mount /dev: %w", err)
	}
	for _, device := range append(usualDevices, root.Devices...) {
		if err := root.bind(Bind{Source: device, Target: device}); err != nil {
			return err
		}
	}
	for _, path := range []string{"/dev/pts", "/dev/shm"} {
		if err := os.MkdirAll(root.inside(path), 0o755); err != nil {
			return err
		}
	}
	options := "newinstance,ptmxmode=0666,mode=0620"
	if err := unix.Mount("devpts", root.inside("/dev/pts"), "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, options); err != nil {
		return fmt.Errorf("mount /dev/pts: %w", err)
	}
	if err := unix.Mount("shm", root.inside("/dev/shm"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"); err != nil {
		return fmt.Errorf("mount /dev/shm: %w", err)
	}
	links := map[string]string{
		"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1",
		"stderr": "/proc/self/fd/2",
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(root.inside("/dev"), name)); err != nil {
			return err
		}
	}
	return nil
}
