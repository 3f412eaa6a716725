package network

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestBridge(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to make namespaces")
	}
	// The thread keeps its new namespace and is thrown away with it; programs that it starts are inside too.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	prefix := fmt.Sprintf("sl-%08x", os.Getpid())
	bridge := &Bridge{Name: "cni0", NamePrefix: prefix, MTU: 1400, Prefixes: []netip.Prefix{
		netip.MustParsePrefix("10.42.1.0/24"), netip.MustParsePrefix("fd00:42::/64"),
	}}
	if err := bridge.Setup(); err != nil {
		t.Fatal(err)
	}
	if err := bridge.Setup(); err != nil {
		t.Fatalf("a second time: %v", err)
	}
	before := linkAddress(t, "cni0")
	addresses := []netip.Addr{netip.MustParseAddr("10.42.1.7"), netip.MustParseAddr("fd00:42::7")}
	defer bridge.Detach("pod-a")
	for range 2 { // the second takes the place of what a killed test kubelet left
		if err := bridge.Attach("pod-a", addresses); err != nil {
			t.Fatal(err)
		}
	}
	if after := linkAddress(t, "cni0"); after != before {
		t.Errorf("the bridge had %s, and %s once a pod hung on it: pods would talk to a place that is gone", before, after)
	}
	name := bridge.NamespaceOf("pod-a")
	for _, command := range []struct{ line, want string }{
		{"-n " + name + " address show dev eth0", "inet 10.42.1.7/24"},
		{"-n " + name + " address show dev eth0", "inet6 fd00:42::7/64"},
		{"-n " + name + " link show dev eth0", "mtu 1400"},
		{"-n " + name + " route get 192.0.2.1", "via 10.42.1.1 dev eth0 src 10.42.1.7"},
		{"-n " + name + " -6 route get 2001:db8::1", "via fd00:42::1 dev eth0"},
		{"address show dev cni0", "inet 10.42.1.1/24"},
		{"-d link show dev pod" + short("pod-a"), "hairpin on"},
	} {
		got, err := ip(strings.Fields(command.line)...)
		if err != nil || !strings.Contains(got, command.want) {
			t.Errorf("ip %s: %v, expected %q in\n%s", command.line, err, command.want, got)
		}
	}
	if removed, err := Sweep(prefix); err != nil || strings.Join(removed, " ") != name {
		t.Errorf("swept %v, %v, want %s", removed, err, name)
	}
	if removed, _ := Sweep(prefix); len(removed) > 0 {
		t.Errorf("swept again: %v", removed)
	}
}

func linkAddress(t *testing.T, device string) string {
	t.Helper()
	line, err := ip("-o", "link", "show", "dev", device)
	_, rest, found := strings.Cut(line, "link/ether ")
	if err != nil || !found {
		t.Fatalf("link of %s: %v: %q", device, err, line)
	}
	return strings.Fields(rest)[0]
}
