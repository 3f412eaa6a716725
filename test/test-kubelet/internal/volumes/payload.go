// Package volumes makes the folders that a pod's volumes are.
package volumes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// File is one file of a volume that is made of objects.
type File struct {
	Data []byte
	Mode os.FileMode
}

const dataLink = "..data"

// writePayload puts files into a folder so that a reader sees either all old or all new ones: they lie in a folder of
// their own, "..data" points to it, and each visible name points through "..data". It gives whether anything changed.
func writePayload(folder string, files map[string]File, group int) (bool, error) {
	if same(folder, files) {
		return false, nil
	}
	fresh, err := os.MkdirTemp(folder, "..test-kubelet-")
	if err != nil {
		return false, err
	}
	if err := os.Chmod(fresh, 0o755); err != nil {
		return false, err
	}
	for path, file := range files {
		if err := writeFile(filepath.Join(fresh, path), file, group); err != nil {
			return false, err
		}
	}
	old, _ := os.Readlink(filepath.Join(folder, dataLink))
	temporary := filepath.Join(folder, fmt.Sprintf("..link-%d", time.Now().UnixNano()))
	if err := os.Symlink(filepath.Base(fresh), temporary); err != nil {
		return false, err
	}
	if err := os.Rename(temporary, filepath.Join(folder, dataLink)); err != nil {
		return false, err
	}
	if err := linkNames(folder, files); err != nil {
		return false, err
	}
	if old != "" {
		return true, os.RemoveAll(filepath.Join(folder, old))
	}
	return true, nil
}

func writeFile(path string, file File, group int) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, file.Data, file.Mode); err != nil {
		return err
	}
	mode := file.Mode
	if group != 0 {
		mode |= mode & 0o400 >> 3 // the pod's group reads what the owner reads
		if err := os.Chown(path, 0, group); err != nil {
			return err
		}
	}
	// Once more: the process's umask does not count for volumes.
	return os.Chmod(path, mode)
}

// linkNames makes a link for each first part of a path, and removes those whose target is gone.
func linkNames(folder string, files map[string]File) error {
	wanted := map[string]bool{}
	for path := range files {
		name, _, _ := strings.Cut(path, "/")
		wanted[name] = true
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if name := entry.Name(); !strings.HasPrefix(name, "..") && !wanted[name] {
			if err := os.Remove(filepath.Join(folder, name)); err != nil {
				return err
			}
		}
	}
	for name := range wanted {
		err := os.Symlink(filepath.Join(dataLink, name), filepath.Join(folder, name))
		if err != nil && !os.IsExist(err) {
			return err
		}
	}
	return nil
}

func same(folder string, files map[string]File) bool {
	base := filepath.Join(folder, dataLink)
	target, err := filepath.EvalSymlinks(base)
	if err != nil {
		return false
	}
	count := 0
	err = filepath.Walk(target, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		relative, err := filepath.Rel(target, path)
		if err != nil {
			return err
		}
		file, wanted := files[relative]
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !wanted || string(data) != string(file.Data) {
			return os.ErrInvalid
		}
		count++
		return nil
	})
	return err == nil && count == len(files)
}
