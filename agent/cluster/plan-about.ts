/**
 * Plans the ClusterProperties that name this member, its clusterset, its region and its zone (About API, KEP-2149). The
 * agent never claims membership under an id that the cluster's own properties contradict. Pure.
 */
import {
  APP_MANAGED_BY_SEALANE,
  type ClusterProperty,
  LABEL_APP_MANAGED_BY,
  type Node,
  PROPERTY_CLUSTERSET,
  PROPERTY_CLUSTER_ID,
  PROPERTY_REGION,
  PROPERTY_ZONE,
} from '../../model/model.ts'
import { ANNOTATION_FROM_NODES, isFromNodes, topologyProperties } from '../../model/services/services.ts'

const TOPOLOGY = [PROPERTY_REGION, PROPERTY_ZONE] as const

export interface AboutWorld {
  /** The cluster id that this cluster joined with. */
  readonly clusterId: string
  readonly clusterset: string
  readonly properties: readonly ClusterProperty[]
  /** Undefined until they are read; region and zone stay as they are then. */
  readonly nodes: readonly Node[] | undefined
}

export interface AboutPlan {
  /** Properties to apply as they are here: missing ones and the agent's own, which overrides edits by other clients. */
  readonly apply: readonly ClusterProperty[]
  /** The agent's own region and zone, if a machine has another one and the machines do not agree on it. */
  readonly remove: readonly ClusterProperty[]
  /** The agent's own properties that had another value. */
  readonly changed: readonly { readonly name: string; readonly found: string; readonly wanted: string }[]
  /** The property that contradicts the membership, with the reason and the remedy. Undefined if there is none. */
  readonly problem: { readonly property: string; readonly text: string } | undefined
}

export function planAbout(world: AboutWorld): AboutPlan {
  const present = new Map(world.properties.map((property) => [property.metadata.name, property]))
  const apply: ClusterProperty[] = []
  const changed: { name: string; found: string; wanted: string }[] = []
  const wanted = [
    [PROPERTY_CLUSTER_ID, world.clusterId],
    [PROPERTY_CLUSTERSET, world.clusterset],
  ] as const
  for (const [name, value] of wanted) {
    const property = present.get(name)
    const found = property?.spec.value
    if (property !== undefined && !isOurs(property)) {
      if (found === value) continue
      // Without a correct id, the clusterset is not claimed either.
      return {
        apply: [],
        remove: [],
        changed: [],
        problem: { property: name, text: contradiction(world, name, found ?? '') },
      }
    }
    if (found !== undefined && found !== value) changed.push({ name, found, wanted: value })
    apply.push(propertyObject(name, value))
  }
  const topology = planTopology(world, present)
  return { apply: [...apply, ...topology.apply], remove: topology.remove, changed, problem: undefined }
}

/** Properties that the user wrote or edited stay. */
function planTopology(
  { nodes }: AboutWorld,
  present: ReadonlyMap<string, ClusterProperty>,
): Pick<AboutPlan, 'apply' | 'remove'> {
  if (nodes === undefined) return { apply: [], remove: [] }
  const mine = TOPOLOGY.filter((name) => {
    const property = present.get(name)
    return property === undefined || isFromNodes(property)
  })
  const before = mine.flatMap((name) => {
    const property = present.get(name)
    return property === undefined ? [] : [[name, property.spec.value] as const]
  })
  const found = topologyProperties(nodes, Object.fromEntries(before))
  return {
    apply: mine.flatMap((name) => {
      const value = found[name]
      return value === undefined ? [] : [propertyObject(name, value, { [ANNOTATION_FROM_NODES]: value })]
    }),
    remove: mine.flatMap((name) => (found[name] === undefined ? (present.get(name) ?? []) : [])),
  }
}

function contradiction({ clusterId, clusterset }: AboutWorld, name: string, found: string): string {
  const is = `ClusterProperty ${name} is ${JSON.stringify(found.slice(0, 300))}`
  if (name === PROPERTY_CLUSTERSET) {
    return (
      `${is}, but this cluster has joined clusterset ${JSON.stringify(clusterset)}: leave the other clusterset ` +
      `(with the product that wrote the property), or delete the property if no product uses it`
    )
  }
  return (
    `${is}, but this cluster has joined as ${JSON.stringify(clusterId)}: set the property to ${clusterId}, delete it, ` +
    `or run "sealane leave" and join under the id that it names`
  )
}

function propertyObject(name: string, value: string, annotations?: Readonly<Record<string, string>>): ClusterProperty {
  return {
    apiVersion: 'about.k8s.io/v1beta1',
    kind: 'ClusterProperty',
    metadata: {
      name,
      labels: { [LABEL_APP_MANAGED_BY]: APP_MANAGED_BY_SEALANE },
      ...(annotations === undefined ? {} : { annotations }),
    },
    spec: { value },
  }
}

function isOurs({ metadata }: ClusterProperty): boolean {
  return metadata.labels?.[LABEL_APP_MANAGED_BY] === APP_MANAGED_BY_SEALANE
}
