package images

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func load(t *testing.T, text string) (Images, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "images.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(path)
}

func TestFind(t *testing.T) {
	images, err := load(t, `{"alpine/socat:1": {"root": "host"}, "docker.io/library/busybox:2": {"cmd": ["sh"]}}`)
	if err != nil {
		t.Fatal(err)
	}
	for name, found := range map[string]bool{
		"alpine/socat:1": true, "docker.io/alpine/socat:1": true, "busybox:2": true, "alpine/socat:2": false, "alpine/socat": false,
	} {
		if _, err := images.Find(name); (err == nil) != found {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": {"entrypont": []}}`:      `unknown field "entrypont"`,
		`{"a": {"root": "/somewhere"}}`: `a: root is "/somewhere", expected "host"`,
	} {
		if _, err := load(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}
