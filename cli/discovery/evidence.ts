/** The claims of the detectors about a cluster, with their sources. */

/** The reliability of a claim. If two claims differ, the more reliable one counts. */
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
  /** The namespace of its workload. Undefined if none was found. */
  readonly namespace: string | undefined
  /** How packets get from node to node, in the terms of the product: `vxlan`, `bgp`, `native`, `geneve` … */
  readonly mode: string
  /** BPF programs forward packets of pods without netfilter and the routing rules. */
  readonly bypassesNetfilter: boolean
  /** `node`: pods have addresses of Node.spec.podCIDRs. `own`: the CNI has its own IPAM. */
  readonly podRanges: 'node' | 'own'
  /** Further properties on which the advice depends: see Trait. */
  readonly traits: readonly string[]
}

export const PROXY_MODES = ['iptables', 'ipvs', 'nftables', 'none'] as const
export type KubeProxyMode = (typeof PROXY_MODES)[number]

export interface KubeProxy {
  readonly mode: KubeProxyMode
  /** The product that replaces kube-proxy if the mode is `none`: `Cilium`. */
  readonly insteadOf: string | undefined
}

export type DnsFlavour = 'coredns' | 'k3s' | 'aks' | 'rke2' | 'openshift' | 'kube-dns' | 'immutable' | 'unknown'

/** Another product in the cluster that joins clusters. */
export interface OtherProduct {
  readonly name: string
  /** The product writes ServiceImports, or the status of ServiceExports, as Sealane does. */
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

/** A claim about networks. Empty if there are no networks. */
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
  readonly namespace?: string | undefined
  readonly confidence?: Confidence
  readonly bypassesNetfilter?: boolean
  readonly podRanges?: Cni['podRanges']
  readonly traits?: readonly Trait[]
}

/** Properties of a CNI on which the advice depends. */
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

/** Builds the claim of a CNI detector. */
export function cniClaim(name: CniName, facts: CniFacts): Evidence {
  const {
    mode,
    how,
    namespace,
    confidence = 'certain',
    bypassesNetfilter = false,
    podRanges = 'node',
    traits = [],
  } = facts
  return { about: 'cni', value: { name, namespace, mode, bypassesNetfilter, podRanges, traits }, confidence, how }
}
