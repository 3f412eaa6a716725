package podspec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// DNS is what the node knows about name resolution.
type DNS struct {
	ClusterServers []string
	ClusterDomain  string
	// NodeFile is the node's own resolv.conf, as text.
	NodeFile string
}

// ResolvConf gives the text of a pod's /etc/resolv.conf.
func ResolvConf(pod *corev1.Pod, dns DNS) string {
	servers, searches, options := parseResolvConf(dns.NodeFile)
	policy := pod.Spec.DNSPolicy
	if policy == corev1.DNSClusterFirst && pod.Spec.HostNetwork {
		// Kubernetes: a pod on the node's network uses the node's DNS unless it says ClusterFirstWithHostNet.
		policy = corev1.DNSDefault
	}
	switch policy {
	case corev1.DNSNone:
		servers, searches, options = nil, nil, nil
	case corev1.DNSDefault:
	default:
		servers = dns.ClusterServers
		own := []string{pod.Namespace + ".svc." + dns.ClusterDomain, "svc." + dns.ClusterDomain, dns.ClusterDomain}
		searches = append(own, searches...)
		options = []string{"ndots:5"}
	}
	if config := pod.Spec.DNSConfig; config != nil {
		servers = appendNew(servers, config.Nameservers)
		searches = appendNew(searches, config.Searches)
		for _, option := range config.Options {
			options = withOption(options, option)
		}
	}
	var text strings.Builder
	for _, server := range servers {
		fmt.Fprintf(&text, "nameserver %s\n", server)
	}
	if len(searches) > 0 {
		fmt.Fprintf(&text, "search %s\n", strings.Join(searches, " "))
	}
	if len(options) > 0 {
		fmt.Fprintf(&text, "options %s\n", strings.Join(options, " "))
	}
	return text.String()
}

func parseResolvConf(text string) (servers, searches, options []string) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		switch words[0] {
		case "nameserver":
			servers = append(servers, words[1])
		case "search":
			searches = words[1:]
		case "options":
			options = append(options, words[1:]...)
		}
	}
	return servers, searches, options
}

func appendNew(list, more []string) []string {
	for _, item := range more {
		if !contains(list, item) {
			list = append(list, item)
		}
	}
	return list
}

func contains(list []string, item string) bool {
	for _, have := range list {
		if have == item {
			return true
		}
	}
	return false
}

// withOption puts an option in the place of an earlier one with the same name.
func withOption(options []string, option corev1.PodDNSConfigOption) []string {
	text := option.Name
	if option.Value != nil && *option.Value != "" {
		text += ":" + *option.Value
	}
	for i, have := range options {
		if name, _, _ := strings.Cut(have, ":"); name == option.Name {
			options[i] = text
			return options
		}
	}
	return append(options, text)
}

// Hostname is what the pod's processes see as their host's name.
func Hostname(pod *corev1.Pod, node string) string {
	switch {
	case pod.Spec.HostNetwork:
		return node
	case pod.Spec.Hostname != "":
		return pod.Spec.Hostname
	default:
		// A label of DNS has at most 63 characters, and does not end with a dash or a dot.
		name := pod.Name
		if len(name) > 63 {
			name = strings.TrimRight(name[:63], "-.")
		}
		return name
	}
}

// HostsFile gives the text of a pod's /etc/hosts.
func HostsFile(pod *corev1.Pod, node, clusterDomain string, podIPs []string) string {
	var text strings.Builder
	text.WriteString("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n")
	name := Hostname(pod, node)
	for _, address := range podIPs {
		if pod.Spec.Subdomain != "" && !pod.Spec.HostNetwork {
			fmt.Fprintf(&text, "%s\t%s.%s.%s.svc.%s\t%s\n", address, name, pod.Spec.Subdomain, pod.Namespace, clusterDomain, name)
		} else {
			fmt.Fprintf(&text, "%s\t%s\n", address, name)
		}
	}
	for _, alias := range pod.Spec.HostAliases {
		fmt.Fprintf(&text, "%s\t%s\n", alias.IP, strings.Join(alias.Hostnames, "\t"))
	}
	return text.String()
}
