package main

import (
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"sealane.io/test-kubelet/internal/images"
	"sealane.io/test-kubelet/internal/kubelet"
	"sealane.io/test-kubelet/internal/podspec"
)

type options struct {
	kubeconfig, node, nodeIP, podCIDR, bridge, prefix, netns string
	clusterDNS, clusterDomain, resolvConf                    string
	stateDir, images, shared, labels                         string
	serviceHost                                              string
	tlsCert, tlsKey, clientCA                                string
	port, mtu                                                int
	maxGrace                                                 time.Duration
	cleanup                                                  bool
}

func parse(arguments []string) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("test-kubelet", flag.ContinueOnError)
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "how to reach the API server (required)")
	flags.StringVar(&o.node, "node", "", "the node's name (required)")
	flags.StringVar(&o.nodeIP, "node-ip", "", "the node's addresses, with commas between (required)")
	flags.StringVar(&o.podCIDR, "pod-cidr", "", "prefixes for pods, with commas between; default: the Node's spec.podCIDRs")
	flags.StringVar(&o.bridge, "bridge", "cni0", "bridge that pods hang on; made where it is missing")
	flags.StringVar(&o.prefix, "prefix", "", "first part of the names of pods' network namespaces (required)")
	flags.StringVar(&o.netns, "netns", "", "named network namespace to enter first: unlike with \"ip netns exec\", the pods' namespaces are then seen by the whole machine")
	flags.StringVar(&o.clusterDNS, "cluster-dns", "", "addresses of the cluster's DNS, with commas between")
	flags.StringVar(&o.clusterDomain, "cluster-domain", "cluster.local", "the cluster's domain")
	flags.StringVar(&o.resolvConf, "resolv-conf", "/etc/resolv.conf", "the node's own resolver file")
	flags.StringVar(&o.stateDir, "state-dir", "", "folder for all files of pods (required)")
	flags.StringVar(&o.images, "images", "", "JSON file that says how an image is run (required)")
	flags.StringVar(&o.shared, "shared-host-path", "", "paths that hostPath volumes share with the machine, with commas between; others lie in the state folder")
	flags.StringVar(&o.labels, "node-labels", "", "labels of a new Node: key=value, with commas between")
	flags.StringVar(&o.serviceHost, "kubernetes-service-host", "", "host:port by which pods reach the API server; default: the Service \"kubernetes\"")
	flags.StringVar(&o.tlsCert, "tls-cert", "", "serving certificate; default: self-signed")
	flags.StringVar(&o.tlsKey, "tls-key", "", "key of --tls-cert")
	flags.StringVar(&o.clientCA, "client-ca", "", "authority of clients; without it everybody may ask")
	flags.IntVar(&o.port, "port", 10250, "port of the kubelet's interface")
	flags.IntVar(&o.mtu, "mtu", 0, "largest packet of the pods' devices; default: the kernel's")
	flags.DurationVar(&o.maxGrace, "max-grace", 0, "bound on terminationGracePeriodSeconds, to keep tests short; 0: none")
	flags.BoolVar(&o.cleanup, "cleanup", false, "remove namespaces, bridge and files at the end")
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("%q is not expected", flags.Arg(0))
	}
	for _, required := range []struct{ name, value string }{
		{"kubeconfig", o.kubeconfig}, {"node", o.node}, {"node-ip", o.nodeIP}, {"prefix", o.prefix},
		{"state-dir", o.stateDir}, {"images", o.images},
	} {
		if required.value == "" {
			return nil, fmt.Errorf("--%s is expected", required.name)
		}
	}
	return o, nil
}

func (o *options) config(log *slog.Logger) (kubelet.Config, error) {
	config := kubelet.Config{
		Node: o.node, NodeIPs: list(o.nodeIP), PodCIDRs: list(o.podCIDR), Bridge: o.bridge, MTU: o.mtu, Prefix: o.prefix,
		Port: o.port, Shared: list(o.shared), MaxGrace: o.maxGrace, Log: log,
		Labels: map[string]string{},
	}
	for _, address := range config.NodeIPs {
		if _, err := netip.ParseAddr(address); err != nil {
			return config, fmt.Errorf("--node-ip: %w", err)
		}
	}
	for _, label := range list(o.labels) {
		key, value, ok := strings.Cut(label, "=")
		if !ok {
			return config, fmt.Errorf("--node-labels: %q is not key=value", label)
		}
		config.Labels[key] = value
	}
	var err error
	if config.StateDir, err = filepath.Abs(o.stateDir); err != nil {
		return config, err
	}
	if config.Images, err = images.Load(o.images); err != nil {
		return config, err
	}
	nodeFile, err := os.ReadFile(o.resolvConf)
	if err != nil {
		return config, fmt.Errorf("--resolv-conf: %w", err)
	}
	config.DNS = podspec.DNS{ClusterServers: list(o.clusterDNS), ClusterDomain: o.clusterDomain, NodeFile: string(nodeFile)}
	if o.serviceHost != "" {
		address, err := netip.ParseAddrPort(o.serviceHost)
		if err != nil {
			return config, fmt.Errorf("--kubernetes-service-host: %w", err)
		}
		config.APIServer = podspec.Variable{Name: address.Addr().String(), Value: fmt.Sprint(address.Port())}
	}
	settings, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return config, err
	}
	settings.QPS, settings.Burst = 50, 100
	settings.UserAgent = "test-kubelet"
	config.Client, err = kubernetes.NewForConfig(settings)
	return config, err
}

func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}
