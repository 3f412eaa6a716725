/**
 * Plans what the pods of this node may call in other clusters: endpoints that are offered only to some namespaces, and
 * clusters that only some namespaces may call. A pod counts by its addresses. Pure.
 */
import {
  type EgressRules,
  callersOf,
  choosesNamespace,
  keepsOpenCalls,
  togetherChosen,
} from '../../model/access/access.ts'
import {
  type EndpointSlice,
  LABEL_SERVICE_NAME,
  LABEL_SOURCE_CLUSTER,
  type Namespace,
  type NamespaceChoice,
  type Pod,
  nameHash,
} from '../../model/model.ts'
import type { AddressFamily } from '../world/world.ts'
import { portsOf } from './plan-access.ts'

/** The pods of this node whose namespaces are chosen. */
export interface PodGroup {
  readonly choice: NamespaceChoice
  readonly pods: readonly string[]
}

export interface CallsPlan {
  /** `address . protocol . port`, and the chain that knows who may call it. */
  readonly limited: ReadonlyMap<string, string>
  /** Prefixes of other clusters, and where their packets go on. Undefined: all may call all clusters. */
  readonly egress: ReadonlyMap<string, string> | undefined
  /** By name. */
  readonly groups: ReadonlyMap<string, PodGroup>
  /** Open TCP connections outlast what takes away, in both directions. */
  readonly keepsOpen: boolean
}

export const NOTHING_LIMITED: CallsPlan = {
  limited: new Map(),
  egress: undefined,
  groups: new Map(),
  keepsOpen: false,
}

/** The chain for calls of a group to services. */
export function callsChain(group: string): string {
  return `calls-${group}`
}

/** The chain for calls of a group to services whose exporters let open connections go on. */
export function keptChain(group: string): string {
  return `kept-${group}`
}

/** The chain for calls of a group to clusters. */
export function leavesChain(group: string): string {
  return `leaves-${group}`
}

export interface LimitedPort {
  /** The namespaces that may call. */
  readonly choice: NamespaceChoice
  /** TCP connections that are open go on. */
  readonly keepsOpen: boolean
}

/** The ports that not all namespaces may call. */
export type LimitedPorts = ReadonlyMap<string, LimitedPort>

/** What earlier plans have read. Only for plans of the same family. */
export type CallsMemo = WeakMap<EndpointSlice, readonly string[]>

/**
 * What several services have in common may be called by those who may call one of them: its packets do not say for which
 * service they are.
 */
export function limitedPorts(
  slices: readonly EndpointSlice[],
  { self, family }: { readonly self: string; readonly family: AddressFamily },
  memo: CallsMemo = new WeakMap(),
): LimitedPorts {
  const read = (slice: EndpointSlice): readonly string[] => {
    let keys = memo.get(slice)
    if (keys === undefined) memo.set(slice, (keys = portKeys(slice, family)))
    return keys
  }
  const foreign = slices.filter((slice) => isForeign(slice, self))
  const choices = foreign.map(callersOf)
  const found = new Map<string, LimitedPort[]>()
  for (const [i, slice] of foreign.entries()) {
    const choice = choices[i]
    if (choice === undefined) continue
    const one: LimitedPort = { choice, keepsOpen: keepsOpenCalls(slice) }
    for (const key of read(slice)) {
      const known = found.get(key)
      if (known === undefined) found.set(key, [one])
      else known.push(one)
    }
  }
  if (found.size === 0) return new Map()
  for (const [i, slice] of foreign.entries()) {
    if (choices[i] === undefined) for (const key of read(slice)) found.delete(key)
  }
  return new Map([...found].map(([key, all]) => [key, all.length === 1 && all[0] ? all[0] : together(all)]))
}

/** What all of them let go on goes on. */
function together(all: readonly LimitedPort[]): LimitedPort {
  const keepsOpen = all.every((one) => one.keepsOpen)
  return { choice: togetherChosen(all.map(({ choice }) => choice)), keepsOpen }
}

/** Whether the slice was imported from another cluster. */
function isForeign({ metadata: { labels = {} } }: EndpointSlice, self: string): boolean {
  const source = labels[LABEL_SOURCE_CLUSTER]
  return source !== undefined && source !== self && labels[LABEL_SERVICE_NAME] !== undefined
}

function portKeys(slice: EndpointSlice, family: AddressFamily): string[] {
  if (slice.addressType !== family.slices) return []
  const ports = portsOf(slice)
  const addresses = (slice.endpoints ?? []).flatMap((one) =>
    one.addresses.flatMap((text) => family.podAddress(text) ?? []),
  )
  return addresses.flatMap((address) => ports.map((port) => `${address} . ${port}`))
}

export interface CallsInput {
  readonly family: AddressFamily
  /** The name of this node. */
  readonly here: string
  readonly limited: LimitedPorts
  readonly egress: EgressRules | undefined
  readonly keepsOpen: boolean
  /** Prefixes of each other cluster. */
  readonly clusters: ReadonlyMap<string, readonly string[]>
  /** Those of other nodes are ignored. Empty until pods have been read: nobody may then call what is limited. */
  readonly pods: readonly Pod[]
  readonly namespaces: readonly Namespace[]
}

export function planCalls(input: CallsInput): CallsPlan {
  const { limited, egress, clusters, keepsOpen } = input
  if (limited.size === 0 && egress === undefined) return { ...NOTHING_LIMITED, keepsOpen }
  const callers = podCallers(input)
  const groups = new Map<string, PodGroup>()
  const names = new Map<NamespaceChoice, string>()
  const groupOf = (choice: NamespaceChoice): string => {
    let name = names.get(choice)
    if (name === undefined) names.set(choice, (name = nameHash(JSON.stringify(choice))))
    if (!groups.has(name)) groups.set(name, { choice, pods: callers(choice) })
    return name
  }
  const toClusters = [...clusters].flatMap(([id, prefixes]) => {
    const choice = egress?.to(id)
    const target = choice === undefined ? 'return' : `goto ${leavesChain(groupOf(choice))}`
    return prefixes.map((prefix) => [prefix, target] as const)
  })
  return {
    limited: new Map(
      [...limited].map(([key, { choice, keepsOpen: keeps }]) => {
        const group = groupOf(choice)
        return [key, `goto ${keeps ? keptChain(group) : callsChain(group)}`]
      }),
    ),
    egress: egress === undefined ? undefined : new Map(toClusters),
    groups,
    keepsOpen,
  }
}

/**
 * Gives the addresses of pods whose namespaces are chosen. Pods on the host network have the address of the node. An
 * address of several pods, one of which is about to go, needs the namespaces of all of them.
 */
function podCallers({ family, here, pods, namespaces }: CallsInput): (choice: NamespaceChoice) => string[] {
  const labels = new Map(namespaces.map(({ metadata }) => [metadata.name, metadata.labels ?? {}]))
  const addresses = new Map<string, Set<string>>()
  for (const { metadata, spec, status } of pods) {
    if ((spec?.nodeName ?? here) !== here || spec?.hostNetwork === true) continue
    if (status?.phase === 'Succeeded' || status?.phase === 'Failed') continue
    for (const address of podAddresses(status, family)) {
      const known = addresses.get(address)
      if (known === undefined) addresses.set(address, new Set([metadata.namespace ?? '']))
      else known.add(metadata.namespace ?? '')
    }
  }
  return (choice) => {
    const chosen = new Map<string, boolean>()
    const isChosen = (name: string): boolean => {
      let is = chosen.get(name)
      if (is === undefined) chosen.set(name, (is = choosesNamespace(choice, { name, labels: labels.get(name) })))
      return is
    }
    return [...addresses].filter(([, all]) => [...all].every(isChosen)).map(([address]) => address)
  }
}

/** Canonical addresses of the family. */
export function podAddresses(status: Pod['status'], family: AddressFamily): string[] {
  const texts = [...(status?.podIPs?.map(({ ip }) => ip) ?? []), status?.podIP ?? '']
  return [...new Set(texts.flatMap((text) => family.podAddress(text) ?? []))]
}
