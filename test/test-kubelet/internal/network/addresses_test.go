package network

import (
	"net/netip"
	"testing"
)

func take(t *testing.T, addresses *Addresses, owner, want string) {
	t.Helper()
	got, err := addresses.Take(owner)
	text := ""
	for i, address := range got {
		if i > 0 {
			text += ","
		}
		text += address.String()
	}
	if err != nil {
		text = err.Error()
	}
	if text != want {
		t.Errorf("%s got %s, want %s", owner, text, want)
	}
}

func TestAddresses(t *testing.T) {
	addresses := NewAddresses([]netip.Prefix{netip.MustParsePrefix("10.42.0.0/29"), netip.MustParsePrefix("fd00:42::/64")})
	addresses.Keep("old", []netip.Addr{netip.MustParseAddr("10.42.0.3"), netip.MustParseAddr("fd00:42::3")})
	take(t, addresses, "a", "10.42.0.2,fd00:42::2")
	take(t, addresses, "b", "10.42.0.4,fd00:42::4")
	addresses.Release("a")
	take(t, addresses, "c", "10.42.0.5,fd00:42::5") // 10.42.0.2 rests
	take(t, addresses, "d", "10.42.0.6,fd00:42::6")
	take(t, addresses, "e", "10.42.0.2,fd00:42::7") // and is used when nothing else is free
	take(t, addresses, "f", "no free address is left in 10.42.0.0/29")
	addresses.Release("old")
	take(t, addresses, "f", "10.42.0.3,fd00:42::8")
}
