/**
 * Holds the addresses that pods have against the ranges that this cluster states, and plans the condition about it. The
 * addresses are those of EndpointSlices, which the agent watches anyway, and those that the routeagents report of the
 * pods of their nodes, so the agent lists no Pod. Pure.
 */
import {
  type Address,
  type StatedPods,
  addressesOfNode,
  familyName,
  formatAddress,
  networksAround,
  outsideAddress,
  parsePrefix,
} from '../../model/addresses/addresses.ts'
import {
  CONDITION_POD_ADDRESSES,
  type Cluster,
  type ConditionFinding,
  type EndpointSlice,
  LABEL_SOURCE_CLUSTER,
  MAX_PODS_OUTSIDE,
  type Node,
  type RouteAgent,
  findCondition,
  setCondition,
  isMachine,
} from '../../model/model.ts'
import { KeyedMemo } from '../../reconcile/reconcile.ts'

/** A pod outside the stated ranges. */
interface OutsidePod {
  /** `pod shop/web-1`, or `a pod of node w1` */
  readonly title: string
  readonly address: Address
}

export interface PodAddressWorld {
  /** The ranges of pods and Services that this cluster states. */
  readonly stated: { readonly podCIDRs: readonly string[]; readonly serviceCIDRs: readonly string[] }
  readonly nodes: readonly Node[]
  readonly slices: readonly EndpointSlice[]
  /** What each node reports of its own pods. */
  readonly routeAgents: readonly RouteAgent[]
  /** Nodes whose routeagent no longer writes: what it has reported says nothing about the pods of now. */
  readonly silent?: ReadonlySet<string>
}

/** The result for each slice, which is valid while the slice, the ranges and the nodes stay the same. */
export interface PodAddressMemory {
  readonly bySlice: KeyedMemo<readonly OutsidePod[]>
  inputs: { readonly text: string; readonly known: Known } | undefined
}

export function newPodAddressMemory(): PodAddressMemory {
  return { bySlice: new KeyedMemo(), inputs: undefined }
}

interface Known extends StatedPods {
  /** Nodes whose pods Sealane does not serve. */
  readonly without: ReadonlySet<string>
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
  const known = inputsOf(world, memory)
  const ofSlices: OutsidePod[] = []
  for (const slice of world.slices) {
    const key = `${slice.metadata.namespace ?? ''}/${slice.metadata.name}`
    const found = memory.bySlice.get(key, [slice, known], () => outsideIn(slice, known))
    if (ofSlices.length < MOST_PODS) ofSlices.push(...found)
  }
  memory.bySlice.endRound()
  const byTitle = (a: OutsidePod, b: OutsidePod): number => (a.title < b.title ? -1 : 1)
  const outside = [...ofSlices.sort(byTitle), ...reportedOutside(world, known).sort(byTitle)]
  const [example] = outside
  if (example === undefined) return undefined
  const networks = networksAround(
    outside.map(({ address }) => address),
    {
      declared: [],
      taken: world.stated.serviceCIDRs.map((text) => parsePrefix(text)),
      nodes: world.nodes.flatMap(addressesOfNode),
    },
  )
  return { example, networks }
}

/** The same object while its content is the same, because the memory compares by identity. */
function inputsOf({ stated, nodes }: PodAddressWorld, memory: PodAddressMemory): Known {
  const addresses = nodes.flatMap(addressesOfNode).map(formatAddress).sort()
  const without = nodes.filter((node) => !isMachine(node)).map(({ metadata }) => metadata.name)
  const text = JSON.stringify([stated.podCIDRs, addresses, without.sort()])
  if (memory.inputs?.text === text) return memory.inputs.known
  const podCIDRs = stated.podCIDRs.map((one) => parsePrefix(one))
  const known = { podCIDRs, nodes: new Set(addresses), without: new Set(without) }
  memory.inputs = { text, known }
  return known
}

/**
 * A node is believed as far as its report has the form of one: what it says only adds a network to a condition. Its
 * report may be older than the ranges that are stated now.
 */
function reportedOutside({ nodes, routeAgents, silent }: PodAddressWorld, known: Known): OutsidePod[] {
  const present = new Set(nodes.map(({ metadata }) => metadata.name))
  return routeAgents
    .filter(({ metadata: { name } }) => present.has(name) && !known.without.has(name) && silent?.has(name) !== true)
    .flatMap(({ metadata, status }) =>
      (status?.podsOutside ?? []).slice(0, MAX_PODS_OUTSIDE).flatMap((text): OutsidePod[] => {
        const address = outsideAddress(text, known)
        return address === undefined ? [] : [{ title: `a pod of node ${metadata.name}`, address }]
      }),
    )
    .slice(0, MOST_PODS)
}

function outsideIn(slice: EndpointSlice, known: Known): readonly OutsidePod[] {
  const { addressType, endpoints = [], metadata } = slice
  if (addressType === 'FQDN' || metadata.labels?.[LABEL_SOURCE_CLUSTER] !== undefined) return []
  return endpoints
    .flatMap(({ addresses, targetRef, nodeName }): OutsidePod[] => {
      // Other endpoints are machines outside the cluster, which are meant to be outside.
      if (targetRef?.kind !== 'Pod' || known.without.has(nodeName ?? '')) return []
      const title = `pod ${metadata.namespace ?? ''}/${targetRef.name ?? '-'}`
      return addresses.flatMap((text) => {
        const address = outsideAddress(text, known)
        return address === undefined || familyName(address.family) !== addressType ? [] : [{ title, address }]
      })
    })
    .slice(0, MOST_OF_SLICE)
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
    const message = 'pods have addresses inside the pod CIDRs'
    return { type, status: 'True', reason: 'PodsInsideRanges', message }
  }
  return { type, status: 'False', reason: 'PodsOutsideRanges', message: outsideText(stated, outside) }
}

function outsideText({ podCIDRs }: PodAddressWorld['stated'], { networks, example }: PodsOutside): string {
  const flags = [...podCIDRs, ...networks].map((cidr) => `--pod-cidr ${cidr}`).join(' ')
  const [found, todo] =
    networks.length === 0
      ? [`${example.title} has the address ${formatAddress(example.address)}`, 'with the network of the pod as well']
      : [`pods have addresses in ${networks.join(', ')}`, flags]
  const effect = 'other clusters do not reach such pods; run sealane join again, with'
  return `${found}, outside the pod CIDRs ${podCIDRs.join(', ')}: ${effect} ${todo}`
}
