/** Says who the ends of a call are: pods of this node, services, clusters. */
import type { ObjectCache } from '../../kubeapi/kubeapi.ts'
import {
  type EndpointSlice,
  type FlowEndpoint,
  type FlowParties,
  type KubeObject,
  LABEL_K8S_SERVICE_NAME,
  LABEL_SERVICE_NAME,
  LABEL_SOURCE_CLUSTER,
  type Pod,
  type ServiceImport,
} from '../../model/model.ts'
import {
  type Prefix,
  comparePrefixes,
  familyOf,
  parseAddress,
  parsePrefix,
  prefixSize,
} from '../../model/addresses/addresses.ts'
import { type AddressFamily, type RouteAgentCaches, addressFamily } from '../world/world.ts'
import type { CallAddresses } from './plan-totals.ts'

/** The prefixes of one family. */
export interface CallRanges {
  readonly family: AddressFamily
  readonly self: string
  readonly clustersetIpRange: Prefix
  /** Pod networks of this cluster. */
  readonly podCidrs: readonly Prefix[]
  /** Prefixes of each other cluster, as elements of a set. */
  readonly clusters: ReadonlyMap<string, readonly string[]>
}

interface Ranges {
  readonly init: CallRanges
  readonly isService: (address: string) => boolean
  readonly isOwn: (address: string) => boolean
  readonly clusterOf: (address: string) => string | undefined
}

/** What is known of the ends of a call. */
export interface CallNames {
  readonly parties: FlowParties
  /** The pod of this node that calls. */
  readonly pod?: string
}

export type PartyCaches = Pick<RouteAgentCaches, 'imports' | 'slices' | 'callers'>

export class CallParties {
  readonly #caches: PartyCaches
  readonly #ranges = new Map<4 | 6, Ranges>()
  readonly #pods: NamesByAddress<Pod>
  readonly #imports = new NamesByAddress<ServiceImport>(({ metadata, spec }) => [nameOf(metadata), spec.ips ?? []])
  /** Services of this cluster, and of others. */
  readonly #own = new NamesByAddress<EndpointSlice>((slice) => serviceOf(slice, LABEL_K8S_SERVICE_NAME))
  readonly #remote = new NamesByAddress<EndpointSlice>((slice) => serviceOf(slice, LABEL_SERVICE_NAME))

  /** Reads pods of this node only. */
  constructor(caches: PartyCaches, node: string) {
    this.#caches = caches
    this.#pods = new NamesByAddress((pod) => [nameOf(pod.metadata), podAddresses(pod, node)])
  }

  /** Watches the caches, and starts that of pods. Returns the function that ends this. */
  follow(): () => void {
    const { imports, slices, callers } = this.#caches
    const stops = [
      this.#imports.follow(imports),
      this.#own.follow(slices),
      this.#remote.follow(slices),
      this.#pods.follow(callers.pods.open()),
    ]
    return () => stops.forEach((stop) => stop())
  }

  /** The pod of this node that has the address. */
  podAt(address: string): { readonly namespace: string; readonly pod: string } | undefined {
    const [namespace, pod] = this.#pods.at(address).at(-1)?.split('/') ?? []
    return namespace === undefined || pod === undefined ? undefined : { namespace, pod }
  }

  setRanges(init: CallRanges): void {
    const { family, clustersetIpRange, podCidrs, clusters } = init
    this.#ranges.set(family.family, {
      init,
      isService: family.within([clustersetIpRange]),
      isOwn: family.within(podCidrs),
      clusterOf: ownersOf(
        [...clusters].flatMap(([id, prefixes]) => prefixes.map((text) => ({ id, prefix: parsePrefix(text) }))),
      ),
    })
  }

  /** Whether a call went to a service that has no endpoint for this node. */
  hasNoEndpoint({ called, server }: CallAddresses): boolean {
    return called === server && this.#rangesOf(called)?.isService(called) === true
  }

  of({ client, called, server }: CallAddresses): FlowParties {
    const caller = this.#clusterOf(client)
    const isService = this.#rangesOf(called)?.isService(called) === true
    if (caller !== undefined && !isService) {
      const service = this.#ownService(server)
      return { way: 'in', cluster: caller, ...(service === undefined ? {} : { service }) }
    }
    const namespace = this.podAt(client)?.namespace
    const place = this.#clusterOf(server)
    const service = isService
      ? this.#imports.at(called).at(-1)
      : place === undefined
        ? this.#ownService(server)
        : only(this.#remote.at(server))
    const cluster = place ?? this.#ownCluster(server)
    return {
      way: 'out',
      ...(namespace === undefined ? {} : { namespace }),
      ...(service === undefined ? {} : { service }),
      ...(cluster === undefined ? {} : { cluster }),
    }
  }

  /**
   * The names of a call as they are now. `before`: as they were when it began, which stays: what has an end by now may
   * have left its slice, and its address may have gone to others. Only what was not known yet is taken from now: a
   * container may call before the status of its pod has the address.
   */
  namesOf(call: CallAddresses, before?: CallNames): CallNames {
    const parties = this.of(call)
    if (before !== undefined && before.parties.way !== parties.way) return before
    const pod = before?.pod ?? this.podAt(call.client)?.pod
    return { parties: { ...parties, ...before?.parties }, ...(pod === undefined ? {} : { pod }) }
  }

  /** The ends of a call with these names, for a line. `to` has the address that was called. */
  ends(call: CallAddresses, names: CallNames): { readonly from: FlowEndpoint; readonly to: FlowEndpoint } {
    const { way, cluster, service, namespace } = names.parties
    const named = { ...(service === undefined ? {} : { service }) }
    const ofCluster = { ...(cluster === undefined ? {} : { cluster }) }
    if (way === 'in') return { from: { address: call.client, ...ofCluster }, to: { address: call.called, ...named } }
    const from = {
      address: call.client,
      ...(namespace === undefined ? {} : { namespace }),
      ...(names.pod === undefined ? {} : { pod: names.pod }),
    }
    return { from, to: { address: call.called, ...named, ...ofCluster } }
  }

  #rangesOf(address: string): Ranges | undefined {
    return this.#ranges.get(familyOf(address))
  }

  #clusterOf(address: string): string | undefined {
    return this.#rangesOf(address)?.clusterOf(address)
  }

  #ownCluster(address: string): string | undefined {
    const ranges = this.#rangesOf(address)
    return ranges?.isOwn(address) === true ? ranges.init.self : undefined
  }

  /** A pod may be of several services, of which those count that the clusterset has. */
  #ownService(address: string): string | undefined {
    const all = this.#own.at(address)
    const imported = all.filter((service) => {
      const [namespace = '', name = ''] = service.split('/')
      return this.#caches.imports.get(name, namespace) !== undefined
    })
    return only(imported.length > 0 ? imported : all)
  }
}

type Named = readonly [name: string, addresses: readonly string[]]

/** Most names of one address, however many objects claim it. */
const MOST_NAMES = 16

/** Finds objects by address. Takes up what changes object by object: slices change all the time. */
class NamesByAddress<T extends KubeObject> {
  readonly #read: (object: T) => Named | undefined
  /** Names by address, one for each object that has it. */
  readonly #names = new Map<string, readonly string[]>()
  readonly #objects = new Map<string, Named>()
  /** Undefined: it is up to date. */
  #unread: Pick<ObjectCache<T>, 'list'> | undefined

  /** `read` gives undefined for objects that do not count. */
  constructor(read: (object: T) => Named | undefined) {
    this.#read = read
  }

  follow(cache: Pick<ObjectCache<T>, 'list' | 'onChange'>): () => void {
    this.#unread = cache
    return cache.onChange((change) => {
      if (change === undefined) this.#unread = cache
      if (change === undefined || this.#unread !== undefined) return
      this.#set(change.object, change.type === 'set')
    })
  }

  /** The names of those that have the address. */
  at(address: string): readonly string[] {
    const cache = this.#unread
    this.#unread = undefined
    if (cache !== undefined) {
      this.#names.clear()
      this.#objects.clear()
      for (const object of cache.list()) this.#set(object, true)
    }
    return this.#names.get(address) ?? []
  }

  #set(object: T, isThere: boolean): void {
    const key = nameOf(object.metadata)
    const before = this.#objects.get(key)
    this.#objects.delete(key)
    for (const address of before?.[1] ?? []) {
      const names = this.#names.get(address) ?? []
      const at = names.indexOf(before?.[0] ?? '')
      if (names.length <= 1) this.#names.delete(address)
      else if (at >= 0) this.#names.set(address, names.toSpliced(at, 1))
    }
    const now = isThere ? this.#read(object) : undefined
    if (now === undefined) return
    const [name, texts] = now
    const addresses = [...new Set(texts.flatMap((text) => canonical(text) ?? []))].filter((address) => {
      const names = this.#names.get(address) ?? []
      if (names.length < MOST_NAMES) this.#names.set(address, [...names, name])
      return names.length < MOST_NAMES
    })
    if (addresses.length > 0) this.#objects.set(key, [name, addresses])
  }
}

function nameOf({ namespace = '', name }: KubeObject['metadata']): string {
  return `${namespace}/${name}`
}

/** Undefined for slices of Services without this label: those of other clusters have the other one. */
function serviceOf({ metadata, endpoints }: EndpointSlice, label: string): Named | undefined {
  const { namespace = '', labels = {} } = metadata
  const isRemote = labels[LABEL_SOURCE_CLUSTER] !== undefined
  const name = labels[label]
  if (name === undefined || isRemote !== (label === LABEL_SERVICE_NAME)) return undefined
  return [`${namespace}/${name}`, (endpoints ?? []).flatMap(({ addresses }) => addresses)]
}

/** Pods on the host network have the address of the node, and those that have ended may have lost theirs to others. */
function podAddresses({ spec, status }: Pod, node: string): readonly string[] {
  if ((spec?.nodeName ?? node) !== node || spec?.hostNetwork === true) return []
  if (status?.phase === 'Succeeded' || status?.phase === 'Failed') return []
  return [...(status?.podIPs?.map(({ ip }) => ip) ?? []), ...(status?.podIP === undefined ? [] : [status.podIP])]
}

/** The one name. Undefined if there is none, or if there are several. */
function only(names: readonly string[]): string | undefined {
  const [first] = names
  return names.every((name) => name === first) ? first : undefined
}

function canonical(text: string): string | undefined {
  return addressFamily(4).canonical(text) ?? addressFamily(6).canonical(text)
}

interface Owned {
  readonly id: string
  readonly prefix: Prefix
}

/** Finds whose an address is, by a search that takes as long as the logarithm of the number of prefixes. */
function ownersOf(owned: readonly Owned[]): (address: string) => string | undefined {
  const sorted = [...owned].sort((a, b) => comparePrefixes(a.prefix, b.prefix))
  // A prefix that another contains begins before the end of that one.
  const outer: { readonly id: string; readonly from: bigint; readonly end: bigint }[] = []
  for (const { id, prefix } of sorted) {
    const end = prefix.value + prefixSize(prefix)
    if (end > (outer.at(-1)?.end ?? -1n)) outer.push({ id, from: prefix.value, end })
  }
  return (text) => {
    const { value } = parseAddress(text)
    let [low, high] = [0, outer.length]
    while (low < high) {
      const middle = (low + high) >> 1
      if ((outer[middle]?.from ?? 0n) <= value) low = middle + 1
      else high = middle
    }
    const found = outer[low - 1]
    return found !== undefined && value < found.end ? found.id : undefined
  }
}
