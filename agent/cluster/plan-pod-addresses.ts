/**
 * Holds the addresses that pods have against the ranges that this cluster states, and plans the condition about it. The
 * addresses are those of EndpointSlices, which the agent watches anyway, so no Pod is listed. Pure.
 */
import {
  type Address,
  type Prefix,
  addressIn,
  classifyAddress,
  containsAddress,
  formatAddress,
  networksAround,
  parsePrefix,
} from '../../model/addresses/addresses.ts'
import {
  CONDITION_POD_ADDRESSES,
  type Cluster,
  type ConditionFinding,
  type EndpointSlice,
  LABEL_SOURCE_CLUSTER,
  type Node,
  findCondition,
  setCondition,
  isMachine,
} from '../../model/model.ts'
import { KeyedMemo } from '../../reconcile/reconcile.ts'

/** A pod outside the stated ranges. */
interface OutsidePod {
  /** `namespace/name` */
  readonly pod: string
  readonly address: Address
}

export interface PodAddressWorld {
  /** The ranges of pods and Services that this cluster states. */
  readonly stated: { readonly podCIDRs: readonly string[]; readonly serviceCIDRs: readonly string[] }
  readonly nodes: readonly Node[]
  readonly slices: readonly EndpointSlice[]
}

/** The result for each slice, which is valid while the slice, the ranges and the nodes stay the same. */
export interface PodAddressMemory {
  readonly bySlice: KeyedMemo<readonly OutsidePod[]>
  inputs: { readonly text: string; readonly prefixes: readonly Prefix[]; readonly skipped: Skipped } | undefined
}

export function newPodAddressMemory(): PodAddressMemory {
  return { bySlice: new KeyedMemo(), inputs: undefined }
}

interface Skipped {
  /** Addresses of nodes: pods on the host network have these. */
  readonly addresses: ReadonlySet<string>
  /** Nodes whose pods Sealane does not serve. */
  readonly nodes: ReadonlySet<string>
}

/** Limits the pods of one slice, and of all slices, that are looked at further. */
const MOST_OF_SLICE = 4
const MOST_PODS = 256

/** The networks to add to the stated ones, and an example. Undefined if no pod is outside. */
export interface PodsOutside {
  readonly example: OutsidePod
  readonly networks: readonly string[]
}

export function podsOutsideRanges(world: PodAddressWorld, memory: PodAddressMemory): PodsOutside | undefined {
  const { prefixes, skipped } = inputsOf(world, memory)
  const outside: OutsidePod[] = []
  for (const slice of world.slices) {
    const key = `${slice.metadata.namespace ?? ''}/${slice.metadata.name}`
    const found = memory.bySlice.get(key, [slice, prefixes, skipped], () => outsideIn(slice, prefixes, skipped))
    if (outside.length < MOST_PODS) outside.push(...found)
  }
  memory.bySlice.endRound()
  const [example] = outside.sort((a, b) => (a.pod < b.pod ? -1 : 1))
  if (example === undefined) return undefined
  const networks = networksAround(
    outside.map(({ address }) => address),
    {
      declared: [],
      taken: world.stated.serviceCIDRs.map((text) => parsePrefix(text)),
      nodes: world.nodes.flatMap(addressesOf),
    },
  )
  return { example, networks }
}

/** The same objects while their content is the same, because the memory compares by identity. */
function inputsOf(
  { stated, nodes }: PodAddressWorld,
  memory: PodAddressMemory,
): NonNullable<PodAddressMemory['inputs']> {
  const addresses = nodes.flatMap(addressesOf).map(formatAddress).sort()
  const without = nodes.filter((node) => !isMachine(node)).map(({ metadata }) => metadata.name)
  const text = JSON.stringify([stated.podCIDRs, addresses, without.sort()])
  if (memory.inputs?.text === text) return memory.inputs
  const skipped = { addresses: new Set(addresses), nodes: new Set(without) }
  return (memory.inputs = { text, prefixes: stated.podCIDRs.map((one) => parsePrefix(one)), skipped })
}

function outsideIn(slice: EndpointSlice, prefixes: readonly Prefix[], skipped: Skipped): readonly OutsidePod[] {
  const { addressType, endpoints = [], metadata } = slice
  if (addressType === 'FQDN' || metadata.labels?.[LABEL_SOURCE_CLUSTER] !== undefined) return []
  const family = addressType === 'IPv4' ? 4 : 6
  return endpoints
    .flatMap(({ addresses, targetRef, nodeName }): OutsidePod[] => {
      // Other endpoints are machines outside the cluster, which are meant to be outside.
      if (targetRef?.kind !== 'Pod' || skipped.nodes.has(nodeName ?? '')) return []
      const pod = `${metadata.namespace ?? ''}/${targetRef.name ?? '-'}`
      return addresses.flatMap((text) => {
        const address = addressIn(text, addressType)
        if (address === undefined || classifyAddress(address) !== 'usable') return []
        const isInside = prefixes.some((prefix) => containsAddress(prefix, address))
        // A cluster that states no range of a family does not offer that family.
        const isOffered = prefixes.some((prefix) => prefix.family === family)
        return isInside || !isOffered || skipped.addresses.has(formatAddress(address)) ? [] : [{ pod, address }]
      })
    })
    .slice(0, MOST_OF_SLICE)
}

function addressesOf({ status }: Node): Address[] {
  const texts = (status?.addresses ?? [])
    .filter(({ type }) => type === 'InternalIP' || type === 'ExternalIP')
    .map(({ address }) => address)
  return texts.flatMap((text) => addressIn(text, text.includes(':') ? 'IPv6' : 'IPv4') ?? [])
}

/**
 * The Cluster with its new status. Undefined if its status needs no change. A cluster whose pods never were outside gets
 * no condition. It names networks and no pods, so that a rollout does not change it.
 */
export function planPodAddressStatus(
  own: Cluster,
  stated: PodAddressWorld['stated'],
  outside: PodsOutside | undefined,
  nowMs: number,
): Cluster | undefined {
  const before = own.status?.conditions ?? []
  const known = findCondition(before, CONDITION_POD_ADDRESSES)
  if (outside === undefined && known === undefined) return undefined
  const finding = podFinding(stated, outside)
  const conditions = setCondition(before, finding, nowMs)
  return conditions === before ? undefined : { ...own, status: { ...own.status, conditions } }
}

function podFinding(stated: PodAddressWorld['stated'], outside: PodsOutside | undefined): ConditionFinding {
  const type = CONDITION_POD_ADDRESSES
  if (outside === undefined) {
    const message = 'the pods behind Services have addresses inside the pod CIDRs'
    return { type, status: 'True', reason: 'PodsInsideRanges', message }
  }
  return { type, status: 'False', reason: 'PodsOutsideRanges', message: outsideText(stated, outside) }
}

function outsideText({ podCIDRs }: PodAddressWorld['stated'], { networks, example }: PodsOutside): string {
  const flags = [...podCIDRs, ...networks].map((cidr) => `--pod-cidr ${cidr}`).join(' ')
  const [found, todo] =
    networks.length === 0
      ? [`pod ${example.pod} has the address ${formatAddress(example.address)}`, 'with the network of the pod as well']
      : [`pods have addresses in ${networks.join(', ')}`, flags]
  const effect = 'other clusters do not reach such pods; run sealane join again, with'
  return `${found}, outside the pod CIDRs ${podCIDRs.join(', ')}: ${effect} ${todo}`
}
