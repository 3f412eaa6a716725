/** Says who the ends of a call are: pods of this node, services, clusters. */
import {
  type EndpointSlice,
  type FlowEndpoint,
  type FlowParties,
  LABEL_K8S_SERVICE_NAME,
  LABEL_SERVICE_NAME,
  LABEL_SOURCE_CLUSTER,
  type Pod,
} from '../../model/model.ts'
import { type Prefix, familyOf, parsePrefix } from '../../model/addresses/addresses.ts'
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

interface NamedPod {
  readonly namespace: string
  readonly pod: string
}

/** Services by address. Undefined: several services have an endpoint there. */
type Services = ReadonlyMap<string, string | undefined>

interface Ranges {
  readonly init: CallRanges
  readonly isService: (address: string) => boolean
  readonly isOwn: (address: string) => boolean
  readonly clusters: readonly (readonly [id: string, has: (address: string) => boolean])[]
}

export type PartyCaches = Pick<RouteAgentCaches, 'imports' | 'slices' | 'callers'>

export class CallParties {
  readonly #caches: PartyCaches
  readonly #node: string
  readonly #ranges = new Map<4 | 6, Ranges>()
  #pods: ReadonlyMap<string, NamedPod> | undefined
  #imports: ReadonlyMap<string, string> | undefined
  #services: { readonly own: Services; readonly remote: Services } | undefined

  /** Reads pods of this node only. */
  constructor(caches: PartyCaches, node: string) {
    this.#caches = caches
    this.#node = node
  }

  /** Watches the caches, and starts that of pods. Returns the function that ends this. */
  follow(): () => void {
    const { imports, slices, callers } = this.#caches
    const stops = [
      imports.onChange(() => {
        this.#imports = undefined
        this.#services = undefined
      }),
      slices.onChange(() => (this.#services = undefined)),
      callers.pods.onChange(() => (this.#pods = undefined)),
    ]
    callers.pods.open()
    return () => stops.forEach((stop) => stop())
  }

  setRanges(init: CallRanges): void {
    const { family, clustersetIpRange, podCidrs, clusters } = init
    this.#ranges.set(family.family, {
      init,
      isService: family.within([clustersetIpRange]),
      isOwn: family.within(podCidrs),
      clusters: [...clusters].map(([id, prefixes]) => [id, family.within(prefixes.map((text) => parsePrefix(text)))]),
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
      const service = this.#servicesNow().own.get(server)
      return { way: 'in', cluster: caller, ...(service === undefined ? {} : { service }) }
    }
    const namespace = this.#podsNow().get(client)?.namespace
    const { own, remote } = this.#servicesNow()
    const place = this.#clusterOf(server)
    const service = isService ? this.#importsNow().get(called) : (place === undefined ? own : remote).get(server)
    const cluster = place ?? this.#ownCluster(server)
    return {
      way: 'out',
      ...(namespace === undefined ? {} : { namespace }),
      ...(service === undefined ? {} : { service }),
      ...(cluster === undefined ? {} : { cluster }),
    }
  }

  /** The ends of a call, for a line. `to` has the address that was called. */
  ends(call: CallAddresses): { readonly from: FlowEndpoint; readonly to: FlowEndpoint } {
    const { way, cluster, service, namespace } = this.of(call)
    const pod = this.#podsNow().get(call.client)
    const named = { ...(service === undefined ? {} : { service }) }
    const ofCluster = { ...(cluster === undefined ? {} : { cluster }) }
    if (way === 'in') return { from: { address: call.client, ...ofCluster }, to: { address: call.called, ...named } }
    const from = {
      address: call.client,
      ...(namespace === undefined ? {} : { namespace }),
      ...(pod === undefined ? {} : { pod: pod.pod }),
    }
    return { from, to: { address: call.called, ...named, ...ofCluster } }
  }

  #rangesOf(address: string): Ranges | undefined {
    return this.#ranges.get(familyOf(address))
  }

  #clusterOf(address: string): string | undefined {
    return this.#rangesOf(address)?.clusters.find(([, has]) => has(address))?.[0]
  }

  #ownCluster(address: string): string | undefined {
    const ranges = this.#rangesOf(address)
    return ranges?.isOwn(address) === true ? ranges.init.self : undefined
  }

  #podsNow(): ReadonlyMap<string, NamedPod> {
    this.#pods ??= podsByAddress(this.#caches.callers.pods.open().list(), this.#node)
    return this.#pods
  }

  #importsNow(): ReadonlyMap<string, string> {
    this.#imports ??= new Map(
      this.#caches.imports.list().flatMap(({ metadata: { namespace = '', name }, spec }) =>
        (spec.ips ?? []).flatMap((text) => {
          const address = canonical(text)
          return address === undefined ? [] : [[address, `${namespace}/${name}`] as const]
        }),
      ),
    )
    return this.#imports
  }

  #servicesNow(): { readonly own: Services; readonly remote: Services } {
    const { slices, imports } = this.#caches
    this.#services ??= servicesByAddress(slices.list(), (name, namespace) => imports.get(name, namespace) !== undefined)
    return this.#services
  }
}

function canonical(text: string): string | undefined {
  return addressFamily(4).canonical(text) ?? addressFamily(6).canonical(text)
}

/** Pods on the host network have the address of the node, and those that have ended may have lost theirs to others. */
function podsByAddress(pods: readonly Pod[], node: string): ReadonlyMap<string, NamedPod> {
  const found = new Map<string, NamedPod>()
  for (const { metadata, spec, status } of pods) {
    if ((spec?.nodeName ?? node) !== node || spec?.hostNetwork === true) continue
    if (status?.phase === 'Succeeded' || status?.phase === 'Failed') continue
    for (const text of [...(status?.podIPs?.map(({ ip }) => ip) ?? []), status?.podIP ?? '']) {
      const address = canonical(text)
      if (address !== undefined) found.set(address, { namespace: metadata.namespace ?? '', pod: metadata.name })
    }
  }
  return found
}

/** A pod may be of several services, of which those count that the clusterset has. */
function servicesByAddress(
  slices: readonly EndpointSlice[],
  isImported: (name: string, namespace: string) => boolean,
): { readonly own: Services; readonly remote: Services } {
  const [own, ownOthers, remote] = [1, 2, 3].map(() => new Map<string, string | undefined>()) as [Known, Known, Known]
  for (const { metadata, endpoints } of slices) {
    const { namespace = '', labels = {} } = metadata
    const isRemote = labels[LABEL_SOURCE_CLUSTER] !== undefined
    const name = labels[isRemote ? LABEL_SERVICE_NAME : LABEL_K8S_SERVICE_NAME]
    if (name === undefined) continue
    const service = `${namespace}/${name}`
    const places = isRemote ? remote : isImported(name, namespace) ? own : ownOthers
    for (const text of (endpoints ?? []).flatMap(({ addresses }) => addresses)) {
      const address = canonical(text)
      if (address === undefined) continue
      const isOther = places.has(address) && places.get(address) !== service
      places.set(address, isOther ? undefined : service)
    }
  }
  return { own: new Map([...ownOthers, ...own]), remote }
}

type Known = Map<string, string | undefined>
