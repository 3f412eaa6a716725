package sandbox

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// RootFS describes a container's root folder: a small file system in memory with the machine's programs bound into
// it, read-only, and the container's own files and volumes.
type RootFS struct {
	// At is an empty folder of the machine to build on. The mount is seen by the container alone.
	At string
	// Paths in the container, each with what is seen there of the machine, read-only, beside its programs.
	Paths map[string]string
	// Devices beside the usual ones.
	Devices []string
	Binds   []Bind
	// Privileged keeps /proc/sys and /sys writable and shows all devices.
	Privileged bool
	ReadOnly   bool
}

// Parts of the machine's /etc that programs need and that say nothing about the machine's network.
var etcFromMachine = []string{
	"alternatives", "ssl", "ca-certificates", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "protocols", "services",
	"localtime", "mime.types", "gai.conf",
}

var etcOwn = map[string]string{
	"passwd":        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
	"group":         "root:x:0:\nnogroup:x:65534:\n",
	"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nprotocols: files\nservices: files\n",
	"os-release":    "ID=test-kubelet\nNAME=test-kubelet\n",
}

func (root *RootFS) build() error {
	// What happens below must not reach the machine's mounts.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("test-kubelet", root.At, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount the root folder: %w", err)
	}
	steps := []func() error{root.programs, root.etc, root.kernelFolders, root.devices, root.volumes, root.enter, root.lock}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (root *RootFS) inside(path string) string { return filepath.Join(root.At, path) }

func (root *RootFS) programs() error {
	for _, name := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		info, err := os.Lstat(name)
		if err != nil {
			continue
		}
		if info.Mode()&os.ModeSymlink != 0 {
			target, err := os.Readlink(name)
			if err != nil {
				return err
			}
			if err := os.Symlink(target, root.inside(name)); err != nil {
				return err
			}
			continue
		}
		if err := root.bind(Bind{Source: name, Target: name, ReadOnly: true}); err != nil {
			return err
		}
	}
	for _, path := range slices.Sorted(maps.Keys(root.Paths)) {
		if err := root.bind(Bind{Source: root.Paths[path], Target: path, ReadOnly: true}); err != nil {
			return err
		}
	}
	for path, mode := range map[string]os.FileMode{
		"/tmp": os.ModeSticky | 0o777, "/var/tmp": os.ModeSticky | 0o777, "/run": 0o755, "/root": 0o700,
		"/home": 0o755, "/var/lib": 0o755, "/var/log": 0o755, "/mnt": 0o755, "/opt": 0o755,
	} {
		if err := os.MkdirAll(root.inside(path), 0o755); err != nil {
			return err
		}
		if err := os.Chmod(root.inside(path), mode); err != nil {
			return err
		}
	}
	return os.Symlink("../run", root.inside("/var/run"))
}

func (root *RootFS) etc() error {
	if err := os.MkdirAll(root.inside("/etc"), 0o755); err != nil {
		return err
	}
	for name, text := range etcOwn {
		if err := os.WriteFile(root.inside("/etc/"+name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, name := range etcFromMachine {
		path := "/etc/" + name
		if _, err := os.Stat(path); err != nil {
			continue
		}
		if err := root.bind(Bind{Source: path, Target: path, ReadOnly: true}); err != nil {
			return err
		}
	}
	return nil
}

func (root *RootFS) volumes() error {
	for _, bind := range root.Binds {
		if err := root.bind(bind); err != nil {
			return err
		}
	}
	return nil
}

// bind mounts a file or folder of the machine, following links at the source only.
func (root *RootFS) bind(bind Bind) error {
	source, err := filepath.EvalSymlinks(bind.Source)
	if err != nil {
		return fmt.Errorf("mount %s: %w", bind.Target, err)
	}
	info, err := os.Stat(source)
	if err != nil {
		return fmt.Errorf("mount %s: %w", bind.Target, err)
	}
	target := root.inside(followRun(bind.Target))
	if err := makeMountPoint(target, info.IsDir()); err != nil {
		return fmt.Errorf("mount %s: %w", bind.Target, err)
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", source, bind.Target, err)
	}
	if !bind.ReadOnly {
		return nil
	}
	if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("make %s read-only: %w", bind.Target, err)
	}
	return nil
}

// followRun resolves /var/run, the one link in a container's root that volumes are often mounted below.
func followRun(path string) string {
	clean := filepath.Clean("/" + path)
	if rest, ok := strings.CutPrefix(clean, "/var/run"); ok && (rest == "" || rest[0] == '/') {
		return "/run" + rest
	}
	return clean
}

func makeMountPoint(path string, folder bool) error {
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	if folder {
		return os.MkdirAll(path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return file.Close()
}

// enter makes the built folder the root and lets go of the machine's.
func (root *RootFS) enter() error {
	if err := os.Chdir(root.At); err != nil {
		return err
	}
	// With the same folder twice the old root lands on top of the new one, and is taken off at once.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change the root folder: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("let go of the machine's root folder: %w", err)
	}
	return os.Chdir("/")
}

// lock makes read-only what a container that is not privileged must not write.
func (root *RootFS) lock() error {
	if !root.Privileged {
		for _, path := range []string{"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus"} {
			if err := readOnlyInPlace(path); err != nil {
				return err
			}
		}
	}
	if root.ReadOnly {
		if err := unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("make the root folder read-only: %w", err)
		}
	}
	return nil
}

func readOnlyInPlace(path string) error {
	if _, err := os.Stat(path); err != nil {
		return nil
	}
	if err := unix.Mount(path, path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("make %s read-only: %w", path, err)
	}
	if err := unix.Mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("make %s read-only: %w", path, err)
	}
	return nil
}
