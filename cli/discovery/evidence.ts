/** What a detector says about a cluster, and how it knows. */

/** How far a claim can be relied on; of two that differ, the surer one wins. */
export type Confidence = 'certain' | 'likely' | 'guess'

export interface Finding<T> {
  readonly value: T
  readonly confidence: Confidence
  /** Names the object and the field: `ConfigMap kube-system/kubeadm-config networking.podSubnet`. */
  readonly how: string
}

export const DISTRIBUTIONS = ['kubeadm', 'k3s', 'rke2', 'kind', 'openshift', 'gke', 'eks', 'aks', 'unknown'] as const
export type Distribution = (typeof DISTRIBUTIONS)[number]

export const CNIS = [
  'antrea',
  'aws-vpc',
  'azure',
  'calico',
  'canal',
  'cilium',
  'flannel',
  'gke',
  'kindnet',
  'kube-router',
  'kubenet',
  'openshift-sdn',
  'ovn-kubernetes',
  'weave',
] as const
export type CniName = (typeof CNIS)[number]

export interface Cni {
  readonly name: CniName
  /** How packets go from node to node, in the product's own words: `vxlan`, `bgp`, `native`, `geneve` … */
  readonly mode: string
  /** Programs in the kernel take pods' packets past netfilter and the routing rules. */
  readonly bypassesNetfilter: boolean
  /** `node`: pods have addresses of Node.spec.podCIDRs. `own`: the CNI has books of its own. */
  readonly podRanges: 'node' | 'own'
  /** What the advice distinguishes beyond that: TRAITS of cni/cni-claim.ts. */
  readonly traits: readonly string[]
}

export const PROXY_MODES = ['iptables', 'ipvs', 'nftables', 'none'] as const
export type KubeProxyMode = (typeof PROXY_MODES)[number]

export interface KubeProxy {
  readonly mode: KubeProxyMode
  /** Who does its work where the mode is none: `Cilium`. */
  readonly insteadOf: string | undefined
}

export type DnsFlavour = 'coredns' | 'k3s' | 'aks' | 'rke2' | 'openshift' | 'kube-dns' | 'immutable' | 'unknown'

/** Something else in the cluster that also joins clusters. */
export interface OtherProduct {
  readonly name: string
  /** It writes ServiceExports' status, or ServiceImports, as we do. */
  readonly ownsMcs: boolean
}

export type Evidence =
  | ({ readonly about: 'podCIDRs' } & Finding<readonly string[]>)
  | ({ readonly about: 'serviceCIDRs' } & Finding<readonly string[]>)
  | ({ readonly about: 'distribution' } & Finding<Distribution>)
  | ({ readonly about: 'cni' } & Finding<Cni>)
  | ({ readonly about: 'kubeProxy' } & Finding<KubeProxy>)
  | ({ readonly about: 'dnsFlavour' } & Finding<DnsFlavour>)
  | ({ readonly about: 'dnsAddress' } & Finding<string>)
  | ({ readonly about: 'dnsDomain' } & Finding<string>)
  | ({ readonly about: 'platform' } & Finding<string>)
  | ({ readonly about: 'other' } & Finding<OtherProduct>)

export function isAbout<K extends Evidence['about']>(
  about: K,
): (claim: Evidence) => claim is Extract<Evidence, { about: K }> {
  return (claim): claim is Extract<Evidence, { about: K }> => claim.about === about
}

/** A claim about networks, or nothing when none of the texts is one. */
export function networks(
  about: 'podCIDRs' | 'serviceCIDRs',
  value: readonly string[],
  confidence: Confidence,
  how: string,
): Evidence[] {
  return value.length === 0 ? [] : [{ about, value, confidence, how }]
}

interface CniFacts {
  readonly mode: string
  readonly how: string
  readonly confidence?: Confidence
  readonly bypassesNetfilter?: boolean
  readonly podRanges?: Cni['podRanges']
  readonly traits?: readonly Trait[]
}

/** What the advice distinguishes within one product. */
export type Trait =
  | 'calico-api-v3'
  | 'calico-bgp'
  | 'calico-ebpf'
  | 'cilium-bpf-host-routing'
  | 'cilium-bpf-masquerade'
  | 'cilium-cloud-ipam'
  | 'cilium-host-firewall'
  | 'cilium-wide-devices'
  | 'cloud-addresses'
  | 'kindnet-early-masquerade'
  | 'ovn-shared-gateway'

/** Putting together what a detector of a CNI found. */
export function cniClaim(name: CniName, facts: CniFacts): Evidence {
  const { mode, how, confidence = 'certain', bypassesNetfilter = false, podRanges = 'node', traits = [] } = facts
  return { about: 'cni', value: { name, mode, bypassesNetfilter, podRanges, traits }, confidence, how }
}
