/**
 * Where the calls of this cluster go, for `sealane show traffic`: by the functions that balancing uses, from the same
 * objects. Pure.
 */
import { type SharesObjects, ofOneFamily, sharesWorld } from '../../../explain/path/path.ts'
import {
  type EndpointSlice,
  LABEL_SERVICE_NAME,
  type ServiceImport,
  type ServiceKey,
  serviceKey,
} from '../../../model/model.ts'
import {
  type AnyTrafficPolicy,
  type ClusterShare,
  importPortText,
  policyInForce,
  statedShares,
  trafficPolicyProblem,
} from '../../../model/services/services.ts'

/** The objects of this cluster that decide. */
export interface TrafficObjects extends SharesObjects {
  readonly imports: readonly ServiceImport[]
  readonly slices: readonly EndpointSlice[]
}

/** The share of one cluster in the calls to one service, as programs get it. `share` is in 1/10,000. */
export interface TrafficRow extends ClusterShare {
  readonly namespace: string
  readonly name: string
  /** The ports that the row is about, where their shares are others than those of the service. Absent: all others. */
  readonly ports?: readonly string[]
  /** The policy that counts. Absent: none does. */
  readonly policy?: { readonly kind: AnyTrafficPolicy['kind']; readonly name: string }
}

/**
 * One row for each cluster of each service, or of those that `isWanted` chooses, by namespace, name and cluster.
 * Ports with
 * other shares follow, with rows of their own.
 */
export function trafficRows(
  objects: TrafficObjects,
  isWanted: (namespace: string, name: string) => boolean,
): readonly TrafficRow[] {
  const world = sharesWorld(objects)
  const slices = slicesByService(objects.slices)
  const key = ({ metadata: { namespace = '', name } }: ServiceImport): ServiceKey => serviceKey(namespace, name)
  const wanted = objects.imports.filter(({ metadata: { namespace = '', name } }) => isWanted(namespace, name))
  return wanted
    .sort((a, b) => (key(a) < key(b) ? -1 : 1))
    .flatMap((service) => {
      const { namespace = '', name } = service.metadata
      const { shares, ports, policy } = statedShares(service, slices.get(key(service)) ?? [], world)
      const by = policy === undefined ? {} : { policy: { kind: policy.kind, name: policy.metadata.name } }
      return [
        ...shares.map((share) => ({ namespace, name, ...share, ...by })),
        ...ports.flatMap((plan) => {
          const of = plan.of.map(importPortText)
          return plan.shares.map((share) => ({ namespace, name, ports: of, ...share, ...by }))
        }),
      ]
    })
}

const MOST_PORTS = 3

/** `shop/web`, or `shop/web:grpc` for rows of single ports. */
export function serviceText({ namespace, name, ports }: TrafficRow): string {
  if (ports === undefined) return `${namespace}/${name}`
  const more = ports.length > MOST_PORTS ? ` and ${ports.length - MOST_PORTS} more` : ''
  return `${namespace}/${name}:${ports.slice(0, MOST_PORTS).join(',')}${more}`
}

function slicesByService(slices: readonly EndpointSlice[]): ReadonlyMap<ServiceKey, readonly EndpointSlice[]> {
  const all = new Map<ServiceKey, EndpointSlice[]>()
  for (const slice of slices) {
    const { namespace = '', labels = {} } = slice.metadata
    const name = labels[LABEL_SERVICE_NAME]
    if (name === undefined) continue
    const key = serviceKey(namespace, name)
    const known = all.get(key)
    if (known === undefined) all.set(key, [slice])
    else known.push(slice)
  }
  return new Map([...all].map(([key, both]) => [key, ofOneFamily(both)]))
}

/** `12.5 %`: percent with at most two decimals, as shares are in 1/10,000. */
export function shareText(share: number): string {
  return `${share / 100} %`
}

/** `TrafficPolicy web`, or `-`. */
export function policyText({ policy }: TrafficRow): string {
  return policy === undefined ? '-' : `${policy.kind} ${policy.name}`
}

/** What the rows do not say: the policies that are not valid, and what counts of them. */
export function invalidPolicies({ policies, clusterPolicies }: TrafficObjects): readonly string[] {
  return [...policies, ...clusterPolicies].flatMap((policy) => {
    const problem = trafficPolicyProblem(policy)
    if (problem === undefined) return []
    const { namespace, name } = policy.metadata
    const title = [...(namespace === undefined ? [] : [namespace]), name].join('/')
    const { generation } = policyInForce(policy)?.metadata ?? {}
    const counts = generation === undefined ? 'and not counted here' : `and its generation ${generation} counts`
    return [`${policy.kind} ${title} is not valid, ${counts}: ${problem}`]
  })
}
