package server

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"sealane.io/test-kubelet/internal/kubelet"
)

type fixedNode struct{ log string }

func (fixedNode) Exec(context.Context, kubelet.Command) (int, error) { return 0, kubelet.ErrNotFound }

func (fixedNode) Dial(context.Context, string, string, uint16) (net.Conn, error) {
	return nil, kubelet.ErrNotFound
}

func (node fixedNode) LogFile(_, pod, _ string, _ bool) (string, func() bool, error) {
	if pod != "web" {
		return "", nil, kubelet.ErrNotFound
	}
	return node.log, func() bool { return false }, nil
}

func (fixedNode) Pods() *corev1.PodList { return &corev1.PodList{} }

const written = `2026-01-01T00:00:01Z stdout F one
2026-01-01T00:00:02Z stderr F two
2026-01-01T00:00:03Z stdout P thr
2026-01-01T00:00:03Z stdout F ee
`

func TestLogs(t *testing.T) {
	log := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(log, []byte(written), 0o600); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(Handler(fixedNode{log}))
	defer server.Close()
	for _, test := range []struct {
		path string
		code int
		want string
	}{
		{"shop/web/main", 200, "one\ntwo\nthree\n"},
		{"shop/web/main?tailLines=3", 200, "two\nthree\n"},
		{"shop/web/main?tailLines=0", 200, ""},
		{"shop/web/main?stream=Stderr", 200, "two\n"},
		{"shop/web/main?limitBytes=6", 200, "one\ntw"},
		{"shop/web/main?timestamps=true&tailLines=3", 200, "2026-01-01T00:00:02Z two\n2026-01-01T00:00:03Z thr2026-01-01T00:00:03Z ee\n"},
		{"shop/web/main?sinceTime=2026-01-01T00:00:02Z&follow=true", 200, "two\nthree\n"},
		{"shop/web/main?colour=blue", 400, "colour=blue: is not supported by the test kubelet\n"},
		{"shop/other/main", 404, kubelet.ErrNotFound.Error() + "\n"},
	} {
		response, err := http.Get(server.URL + "/containerLogs/" + test.path)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != test.code || string(text) != test.want {
			t.Errorf("%s: got %d %q, want %d %q", test.path, response.StatusCode, text, test.code, test.want)
		}
	}
}

func TestRefusals(t *testing.T) {
	server := httptest.NewServer(Handler(fixedNode{}))
	defer server.Close()
	for path, want := range map[string]string{
		"/healthz": "200 ok", "/attach/shop/web": "501 /attach/shop/web is not supported by the test kubelet",
		"/exec/shop/web/main":                       "400 you must specify at least 1 of stdin, stdout, stderr",
		"/exec/shop/web/main?output=1":              "400 command: at least one is expected",
		"/exec/shop/other/main?output=1&command=ls": "404 " + kubelet.ErrNotFound.Error(),
	} {
		response, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if got := response.Status[:4] + strings.TrimSpace(string(text)); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}
