/** Putting together what a detector of a CNI found. */
import type { Evidence, Cni, CniName, Confidence } from '../evidence.ts'

export interface CniFacts {
  readonly mode: string
  readonly how: string
  readonly confidence?: Confidence
  readonly bypassesNetfilter?: boolean
  readonly podRanges?: Cni['podRanges']
  readonly traits?: readonly Trait[]
}

/** What the advice distinguishes within one product. */
export const TRAITS = [
  'calico-api-v3',
  'calico-bgp',
  'calico-ebpf',
  'cilium-bpf-host-routing',
  'cilium-bpf-masquerade',
  'cilium-cloud-ipam',
  'cilium-host-firewall',
  'cilium-wide-devices',
  'cloud-addresses',
  'kindnet-early-masquerade',
  'ovn-shared-gateway',
] as const
export type Trait = (typeof TRAITS)[number]

export function cniClaim(name: CniName, facts: CniFacts): Evidence {
  const { mode, how, confidence = 'certain', bypassesNetfilter = false, podRanges = 'node', traits = [] } = facts
  return { about: 'cni', value: { name, mode, bypassesNetfilter, podRanges, traits }, confidence, how }
}
