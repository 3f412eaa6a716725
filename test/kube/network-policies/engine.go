// Package engine pins kube-network-policies, an engine of NetworkPolicies that clusters without one in their pod
// network install. It is a test subject beside Sealane, never a part of the product.
package engine
