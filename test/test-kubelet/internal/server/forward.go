package server

import (
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"

	"sealane.io/test-kubelet/internal/kubelet"
)

const (
	forwardIdleTimeout = 4 * time.Hour
	// When one direction has ended, the other one has this long. Containerd does the same.
	forwardGrace = time.Second
)

// servePortForward speaks SPDY and WebSocket through the same code as container runtimes do.
func servePortForward(w http.ResponseWriter, r *http.Request, node Node) {
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !hasPod(node, r.PathValue("namespace"), r.PathValue("pod")) {
		http.Error(w, kubelet.ErrNotFound.Error(), http.StatusNotFound)
		return
	}
	portforward.ServePortForward(w, r, &forwarder{node: node, namespace: r.PathValue("namespace")}, r.PathValue("pod"),
		r.PathValue("uid"), options, forwardIdleTimeout, streamCreationTimeout, portforward.SupportedProtocols)
}

func hasPod(node Node, namespace, name string) bool {
	for _, pod := range node.Pods().Items {
		if pod.Namespace == namespace && pod.Name == name {
			return true
		}
	}
	return false
}

type forwarder struct {
	node      Node
	namespace string
}

func (forwarder *forwarder) PortForward(
	ctx context.Context, pod, _ string, port int32, stream io.ReadWriteCloser,
) error {
	connection, err := forwarder.node.Dial(ctx, forwarder.namespace, pod, uint16(port))
	if err != nil {
		return err
	}
	defer connection.Close()
	return join(stream, connection)
}

// join copies both ways until both have ended, or until some time after the first one has.
func join(stream io.ReadWriteCloser, connection net.Conn) error {
	defer stream.Close()
	ended := make(chan error, 2)
	go func() { _, err := io.Copy(stream, connection); ended <- err }()
	go func() { _, err := io.Copy(connection, stream); ended <- err }()
	err := <-ended
	select {
	case other := <-ended:
		if err == nil {
			err = other
		}
	case <-time.After(forwardGrace):
	}
	return err
}
