// Package server answers what the API server asks a kubelet: logs, commands in containers,
// connections to ports of pods, its pods, its health.
package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sealane.io/test-kubelet/internal/kubelet"
)

// Node is the part of the kubelet that is asked.
type Node interface {
	Exec(ctx context.Context, command kubelet.Command) (int, error)
	Dial(ctx context.Context, namespace, pod string, port uint16) (net.Conn, error)
	LogFile(namespace, pod, container string, previous bool) (path string, live func() bool, err error)
	Pods() *corev1.PodList
}

// Config of the server.
type Config struct {
	Address string
	Node    Node
	// Certificate and key files; with neither, a certificate is made that nobody can check. An API server checks
	// it only when it is told to (--kubelet-certificate-authority).
	CertFile, KeyFile string
	// ClientCA is a file with the authority of clients. Without it anybody who reaches the port may use it: fit for
	// a network namespace of a test and for nothing else.
	ClientCA string
	Hosts    []string
	Log      *slog.Logger
}

// Serve answers until the context ends.
func Serve(ctx context.Context, config Config) error {
	settings, err := tlsConfig(config)
	if err != nil {
		return err
	}
	if config.ClientCA == "" {
		config.Log.Warn("every client may run commands in this node's pods: no --client-ca was given")
	}
	// Streams upgrade the connection, which HTTP/2 cannot.
	settings.NextProtos = []string{"http/1.1"}
	listener, err := net.Listen("tcp", config.Address)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: Handler(config.Node), TLSConfig: settings, ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:    slog.NewLogLogger(config.Log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	go func() {
		<-ctx.Done()
		server.Close()
	}()
	err = server.ServeTLS(listener, "", "")
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Handler is the kubelet's interface, as far as it is served here.
func Handler(node Node) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	mux.HandleFunc("/pods", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(node.Pods())
	})
	logs := func(w http.ResponseWriter, r *http.Request) { serveLogs(w, r, node) }
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", logs)
	exec := func(w http.ResponseWriter, r *http.Request) { serveExec(w, r, node) }
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", exec)
	mux.HandleFunc("/exec/{namespace}/{pod}/{uid}/{container}", exec)
	forward := func(w http.ResponseWriter, r *http.Request) { servePortForward(w, r, node) }
	mux.HandleFunc("/portForward/{namespace}/{pod}", forward)
	mux.HandleFunc("/portForward/{namespace}/{pod}/{uid}", forward)
	for _, name := range []string{"/attach/", "/run/", "/metrics", "/stats/"} {
		mux.HandleFunc(name, func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, r.URL.Path+" is not supported by the test kubelet", http.StatusNotImplemented)
		})
	}
	return mux
}

func tlsConfig(config Config) (*tls.Config, error) {
	var certificate tls.Certificate
	var err error
	if config.CertFile != "" {
		certificate, err = tls.LoadX509KeyPair(config.CertFile, config.KeyFile)
	} else {
		certificate, err = selfSigned(config.Hosts)
	}
	if err != nil {
		return nil, fmt.Errorf("serving certificate: %w", err)
	}
	settings := &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	if config.ClientCA == "" {
		return settings, nil
	}
	text, err := os.ReadFile(config.ClientCA)
	if err != nil {
		return nil, err
	}
	settings.ClientCAs, settings.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !settings.ClientCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate", config.ClientCA)
	}
	return settings, nil
}
