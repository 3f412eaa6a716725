package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/transport/websocket"

	"sealane.io/test-kubelet/internal/kubelet"
)

// dialNode has pod shop/web, whose ports are those of this machine.
type dialNode struct{ fixedNode }

func (dialNode) Pods() *corev1.PodList {
	return &corev1.PodList{Items: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}}}
}

func (dialNode) Dial(ctx context.Context, _, _ string, port uint16) (net.Conn, error) {
	var dialer net.Dialer
	return dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
}

// echoPort gives back what it gets, and ends the connection after a line.
func echoPort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				buffer := make([]byte, 4096)
				for {
					count, err := connection.Read(buffer)
					_, _ = connection.Write(buffer[:count])
					if err != nil || bytes.HasSuffix(buffer[:count], []byte("\n")) {
						return
					}
				}
			}()
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

// What the product's own client does: v4.channel.k8s.io, with two channels for the port.
func forwardByWebSocket(t *testing.T, server string, port int, text string) (data, failure string) {
	t.Helper()
	roundTripper, holder, err := websocket.RoundTripperFor(&rest.Config{Host: server})
	if err != nil {
		t.Fatal(err)
	}
	target := server + "/portForward/shop/web?port=" + strconv.Itoa(port)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	connection, err := websocket.Negotiate(roundTripper, holder, request, "v4.channel.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	_ = connection.SetReadDeadline(time.Now().Add(5 * time.Second))
	if err := connection.WriteMessage(2, append([]byte{0}, text...)); err != nil {
		t.Fatal(err)
	}
	var channels [2]bytes.Buffer
	for {
		_, message, err := connection.ReadMessage()
		if err != nil {
			if !strings.Contains(err.Error(), "close 1000") {
				t.Errorf("got %v, want the normal end", err)
			}
			break
		}
		channels[message[0]].Write(message[1:])
	}
	for index := range channels {
		head := channels[index].Next(2)
		if len(head) != 2 || int(binary.LittleEndian.Uint16(head)) != port {
			t.Errorf("channel %d begins with %v, want port %d", index, head, port)
		}
	}
	return channels[0].String(), channels[1].String()
}

func TestPortForwardByWebSocket(t *testing.T) {
	server := httptest.NewServer(Handler(dialNode{}))
	defer server.Close()
	if data, failure := forwardByWebSocket(t, server.URL, echoPort(t), "hello\n"); data != "hello\n" || failure != "" {
		t.Errorf("got %q and error %q", data, failure)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close()
	if data, failure := forwardByWebSocket(t, server.URL, port, ""); data != "" || !strings.Contains(failure, "refused") {
		t.Errorf("got %q and error %q, want that it is refused", data, failure)
	}
}

func TestPortForwardBySPDY(t *testing.T) {
	server := httptest.NewServer(Handler(dialNode{}))
	defer server.Close()
	transport, upgrader, err := spdy.RoundTripperFor(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(server.URL + "/portForward/shop/web")
	if err != nil {
		t.Fatal(err)
	}
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, target)
	stop, ready := make(chan struct{}), make(chan struct{})
	defer close(stop)
	ports := []string{"0:" + strconv.Itoa(echoPort(t))}
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, ports, stop, ready, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case <-time.After(5 * time.Second):
		t.Fatal("no forwarding within 5 s")
	}
	forwarded, err := forwarder.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	connection, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(forwarded[0].Local))))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := connection.Write([]byte("hello\n")); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(connection); err != nil || string(text) != "hello\n" {
		t.Errorf("got %q, %v", text, err)
	}
}

func TestPortForwardOfNoPod(t *testing.T) {
	server := httptest.NewServer(Handler(dialNode{}))
	defer server.Close()
	response, err := http.Get(server.URL + "/portForward/shop/other")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(response.Body)
	response.Body.Close()
	if response.StatusCode != http.StatusNotFound || !strings.Contains(string(text), kubelet.ErrNotFound.Error()) {
		t.Errorf("got %d %q", response.StatusCode, text)
	}
}
