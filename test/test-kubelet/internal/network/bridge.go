package network

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
)

// NamespaceFolder is where named network namespaces are found.
const NamespaceFolder = "/run/netns"

// Bridge is the node's side of its pods' network.
type Bridge struct {
	Name     string
	Prefixes []netip.Prefix
	// Prefix of the names of the namespaces made here: only those are ever removed.
	NamePrefix string
	MTU        int
}

// NamespaceOf gives the name of a pod's network namespace.
func (bridge *Bridge) NamespaceOf(uid string) string { return bridge.NamePrefix + "-" + short(uid) }

func short(uid string) string {
	sum := sha256.Sum256([]byte(uid))
	return hex.EncodeToString(sum[:4])
}

// Setup makes the bridge with the first address of each pod prefix, where it is not there yet.
func (bridge *Bridge) Setup() error {
	if _, err := ip("link", "show", "dev", bridge.Name); err != nil {
		if _, err := ip("link", "add", bridge.Name, "address", bridge.hardwareAddress(), "type", "bridge"); err != nil {
			return err
		}
	}
	for _, prefix := range bridge.Prefixes {
		address := netip.PrefixFrom(Gateway(prefix), prefix.Bits()).String()
		if _, err := ip(withoutWait(prefix.Addr(), "address", "replace", address, "dev", bridge.Name)...); err != nil {
			return err
		}
		path := "/proc/sys/net/ipv4/ip_forward"
		if prefix.Addr().Is6() {
			path = "/proc/sys/net/ipv6/conf/all/forwarding"
		}
		if err := os.WriteFile(path, []byte("1"), 0o644); err != nil {
			return fmt.Errorf("forwarding: %w", err)
		}
	}
	if bridge.MTU > 0 {
		if _, err := ip("link", "set", bridge.Name, "mtu", fmt.Sprint(bridge.MTU)); err != nil {
			return err
		}
	}
	_, err := ip("link", "set", bridge.Name, "up")
	return err
}

// hardwareAddress is what the bridge is given, as CNI plugins do: left to itself, it takes the lowest address of its
// ports and changes it as pods come and go. A pod that has not learnt it yet sends to another port's address. Where the
// bridge's netfilter hooks are on, connection tracking confirms such a packet before it is masqueraded, and the
// connection never is.
func (bridge *Bridge) hardwareAddress() string {
	sum := sha256.Sum256([]byte(fmt.Sprint(bridge.Prefixes)))
	return "02:" + strings.ReplaceAll(fmt.Sprintf("% x", sum[:5]), " ", ":")
}

// withoutWait skips the search for duplicates of IPv6 addresses: pods would not answer for a second or two.
func withoutWait(address netip.Addr, arguments ...string) []string {
	if address.Is6() {
		return append(arguments, "nodad")
	}
	return arguments
}

// Attach makes a pod's namespace with eth0 in it. What an earlier life left under the same name goes first.
func (bridge *Bridge) Attach(uid string, addresses []netip.Addr) error {
	name, outer := bridge.NamespaceOf(uid), "pod"+short(uid)
	bridge.Detach(uid)
	if _, err := ip("netns", "add", name); err != nil {
		return err
	}
	steps := [][]string{
		{"link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", name},
		{"link", "set", outer, "master", bridge.Name},
	}
	if bridge.MTU > 0 {
		steps = append(steps, []string{"link", "set", outer, "mtu", fmt.Sprint(bridge.MTU)},
			[]string{"-n", name, "link", "set", "eth0", "mtu", fmt.Sprint(bridge.MTU)})
	}
	steps = append(steps,
		// A pod that calls its own Service comes back through the port it left by.
		[]string{"link", "set", outer, "type", "bridge_slave", "hairpin", "on"},
		[]string{"link", "set", outer, "up"},
		[]string{"-n", name, "link", "set", "lo", "up"},
		[]string{"-n", name, "link", "set", "eth0", "up"})
	for i, address := range addresses {
		prefix := netip.PrefixFrom(address, bridge.Prefixes[i].Bits()).String()
		steps = append(steps,
			append([]string{"-n", name}, withoutWait(address, "address", "add", prefix, "dev", "eth0")...),
			[]string{"-n", name, "route", "add", "default", "via", Gateway(bridge.Prefixes[i]).String()})
	}
	for _, step := range steps {
		if _, err := ip(step...); err != nil {
			bridge.Detach(uid)
			return err
		}
	}
	return nil
}

// Detach takes a pod's namespace away. It is no error when there is none.
func (bridge *Bridge) Detach(uid string) {
	// The device by itself too: a process that still holds the namespace would keep both.
	_, _ = ip("link", "del", "pod"+short(uid))
	_, _ = ip("netns", "del", bridge.NamespaceOf(uid))
}

// Remove takes the bridge away.
func (bridge *Bridge) Remove() { _, _ = ip("link", "del", bridge.Name) }

// Sweep removes all namespaces whose name starts with the prefix and a dash, and gives their names.
func Sweep(prefix string) ([]string, error) {
	entries, err := os.ReadDir(NamespaceFolder)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var removed []string
	for _, entry := range entries {
		rest, ours := strings.CutPrefix(entry.Name(), prefix+"-")
		if !ours || len(rest) != 8 || strings.Trim(rest, "0123456789abcdef") != "" {
			continue
		}
		if _, err := ip("netns", "del", entry.Name()); err != nil {
			return removed, err
		}
		removed = append(removed, entry.Name())
	}
	return removed, nil
}

func ip(arguments ...string) (string, error) {
	command := exec.Command("ip", arguments...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("ip %s: %w: %s", strings.Join(arguments, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
