// Package kubelet makes a node of a cluster out of a network namespace and runs the pods that are bound to it.
package kubelet

import (
	"log/slog"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"

	"sealane.io/test-kubelet/internal/images"
	"sealane.io/test-kubelet/internal/podspec"
)

// Config is the configuration of one test kubelet.
type Config struct {
	Client    kubernetes.Interface
	Node      string
	NodeIPs   []string
	PodCIDRs  []string // empty: from the Node's spec
	Bridge    string
	MTU       int
	Prefix    string // of network namespaces' names
	Port      int
	StateDir  string
	Labels    map[string]string
	Images    images.Images
	Shared    []string // hostPath volumes that are the machine's own
	DNS       podspec.DNS
	APIServer podspec.Variable // name: host, value: port; as pods shall see the API server, empty: the Service's
	MaxGrace  time.Duration    // bound on terminationGracePeriodSeconds; 0: none
	Log       *slog.Logger
}

func (config *Config) podsFolder() string { return filepath.Join(config.StateDir, "pods") }

// Version is what the node says of its kubelet.
const Version = "v1.36.3-test-kubelet"
