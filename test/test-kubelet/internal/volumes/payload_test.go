package volumes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, folder string, files map[string]string) bool {
	t.Helper()
	payload := map[string]File{}
	for path, text := range files {
		payload[path] = File{Data: []byte(text), Mode: 0o644}
	}
	changed, err := writePayload(folder, payload, 0)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

func TestPayload(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, map[string]string{"a": "1", "deep/b": "2"})
	opened, err := os.Open(filepath.Join(folder, dataLink))
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	if write(t, folder, map[string]string{"a": "1", "deep/b": "2"}) {
		t.Error("nothing has changed, and it was written")
	}
	if !write(t, folder, map[string]string{"a": "3", "c": "4"}) {
		t.Error("a change was not written")
	}
	for path, want := range map[string]string{"a": "3", "c": "4"} {
		if text, err := os.ReadFile(filepath.Join(folder, path)); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v", path, text, err)
		}
	}
	entries, _ := os.ReadDir(folder)
	names := ""
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), "..test-kubelet-") {
			names += entry.Name() + " "
		}
	}
	if names != "..data a c " || len(entries) != 4 {
		t.Errorf("left: %s and %d entries", names, len(entries))
	}
}

func TestHostPathOfNodeAndMachine(t *testing.T) {
	maker := &Maker{HostRoot: "/state/hostpath/n1", Shared: []string{"/dev/net/tun", "/lib/modules"}}
	for path, want := range map[string]bool{
		"/dev/net/tun": true, "/lib/modules/6.1": true, "/lib/modules-extra": false, "/var/lib/sealane": false,
	} {
		if got := maker.isShared(path); got != want {
			t.Errorf("%s: shared is %v", path, got)
		}
	}
}
