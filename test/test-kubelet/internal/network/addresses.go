// Package network gives each pod a network namespace with an address on the node's bridge.
package network

import (
	"fmt"
	"net/netip"
	"sync"
)

// Addresses hands out the addresses of a node's pod prefixes, one of each prefix per owner.
type Addresses struct {
	mu       sync.Mutex
	prefixes []netip.Prefix
	owners   map[netip.Addr]string
	// Where the next search starts: an address rests as long as possible before it is used again, so that nobody
	// talks to a new pod and means the old one.
	next []netip.Addr
}

// NewAddresses takes the node's pod prefixes. The first address of each is the bridge's.
func NewAddresses(prefixes []netip.Prefix) *Addresses {
	addresses := &Addresses{prefixes: prefixes, owners: map[netip.Addr]string{}}
	for _, prefix := range prefixes {
		addresses.next = append(addresses.next, Gateway(prefix).Next())
	}
	return addresses
}

// Gateway is the bridge's address in a pod prefix.
func Gateway(prefix netip.Prefix) netip.Addr { return prefix.Masked().Addr().Next() }

// Take reserves one address of each prefix.
func (addresses *Addresses) Take(owner string) ([]netip.Addr, error) {
	addresses.mu.Lock()
	defer addresses.mu.Unlock()
	var taken []netip.Addr
	for i, prefix := range addresses.prefixes {
		address, err := addresses.search(i, prefix)
		if err != nil {
			return nil, err
		}
		taken = append(taken, address)
	}
	for i, address := range taken {
		addresses.owners[address] = owner
		addresses.next[i] = address.Next()
	}
	return taken, nil
}

// Keep reserves addresses that a pod already had.
func (addresses *Addresses) Keep(owner string, list []netip.Addr) {
	addresses.mu.Lock()
	defer addresses.mu.Unlock()
	for _, address := range list {
		addresses.owners[address] = owner
	}
}

// Release frees all addresses of an owner.
func (addresses *Addresses) Release(owner string) {
	addresses.mu.Lock()
	defer addresses.mu.Unlock()
	for address, have := range addresses.owners {
		if have == owner {
			delete(addresses.owners, address)
		}
	}
}

func (addresses *Addresses) search(index int, prefix netip.Prefix) (netip.Addr, error) {
	first := Gateway(prefix).Next()
	usable := func(address netip.Addr) bool {
		// The last IPv4 address of a prefix is its broadcast address.
		return prefix.Contains(address) && (!address.Is4() || prefix.Contains(address.Next()))
	}
	candidate := addresses.next[index]
	wrapped := false
	for {
		if !usable(candidate) {
			if wrapped {
				return netip.Addr{}, fmt.Errorf("no free address is left in %s", prefix)
			}
			wrapped = true
			candidate = first
			if !usable(candidate) {
				return netip.Addr{}, fmt.Errorf("%s is too small for pods", prefix)
			}
		}
		if _, used := addresses.owners[candidate]; !used {
			return candidate, nil
		}
		candidate = candidate.Next()
	}
}
