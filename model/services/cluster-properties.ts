/** The ClusterProperties of a member: what it reads from its nodes, what it sends, and what others believe. Pure. */
import {
  APP_MANAGED_BY_SEALANE,
  type ClusterProperty,
  LABEL_APP_MANAGED_BY,
  LABEL_REGION,
  LABEL_ZONE,
  type Node,
  PROPERTY_CLUSTERSET,
  PROPERTY_CLUSTER_ID,
  PROPERTY_REGION,
  PROPERTY_ZONE,
  isMachine,
  isObjectName,
} from '../model.ts'
import { MAX_CLUSTER_PROPERTIES, MAX_PROPERTY_VALUE } from '../values/values.ts'

type Values = Readonly<Record<string, string>>

/** The property that a label of all nodes becomes. */
const FROM_NODES = [
  [PROPERTY_REGION, LABEL_REGION],
  [PROPERTY_ZONE, LABEL_ZONE],
] as const

/** On region and zone: the value that the agent read from the nodes. If it differs, a user has edited the property. */
export const ANNOTATION_FROM_NODES = 'sealane.io/from-nodes'

/**
 * Takes the nodes of a cluster, and the region and zone that were read from them before. Gives its region and zone as
 * ClusterProperties. A new value needs the same label on all machines. A value that is there stays until a machine has
 * another one: a cloud provider adds the labels seconds after a machine has registered. A node that stands for capacity
 * elsewhere does not count.
 */
export function topologyProperties(nodes: readonly Node[], present: Values): Values {
  const machines = nodes.filter(isMachine)
  const found = FROM_NODES.flatMap(([property, label]) => {
    const labels = machines.map(({ metadata }) => metadata.labels?.[label] ?? '')
    const stated = new Set(labels.filter((value) => value !== ''))
    const before = present[property]
    if (before !== undefined && [...stated].every((value) => value === before)) return [[property, before] as const]
    const [value] = stated
    return value !== undefined && labels.every((one) => one === value) ? [[property, value] as const] : []
  })
  return Object.fromEntries(found)
}

/** Whether the agent wrote this region or zone, and no user has edited it since. */
export function isFromNodes(property: ClusterProperty): boolean {
  return isOurs(property) && property.metadata.annotations?.[ANNOTATION_FROM_NODES] === property.spec.value
}

/** The properties to remove when a cluster leaves. Properties that the user wrote or edited stay. */
export function ownProperties(properties: readonly ClusterProperty[]): ClusterProperty[] {
  return properties.filter((property) => {
    const { name } = property.metadata
    return isProven(name) ? isOurs(property) : isTopology(name) && isFromNodes(property)
  })
}

export interface StatedProperties {
  /** By name, sorted. */
  readonly properties: Values
  /** Names of those that are too many or too long, sorted. */
  readonly leftOut: readonly string[]
}

/**
 * Takes the ClusterProperty objects of a member. Gives what it sends with its Cluster record: region and zone before all
 * others, at most MAX_CLUSTER_PROPERTIES. The id and the clusterset are left to the broker, which has proven them.
 */
export function statedProperties(objects: readonly ClusterProperty[]): StatedProperties {
  const ranked = objects
    .map(({ metadata: { name }, spec: { value } }) => ({ name, value }))
    .filter(({ name }) => !isProven(name))
    .sort((a, b) => Number(isTopology(b.name)) - Number(isTopology(a.name)) || (a.name < b.name ? -1 : 1))
  const usable = ranked.filter(({ name, value }) => isProperty(name, value)).slice(0, MAX_CLUSTER_PROPERTIES)
  const names = new Set(usable.map(({ name }) => name))
  return {
    properties: sorted(usable.map(({ name, value }) => [name, value])),
    leftOut: ranked.flatMap(({ name }) => (names.has(name) ? [] : [name])).sort(),
  }
}

/**
 * Takes what a member states, its proven id and its clusterset. Gives the properties that selectors see: a member cannot
 * pass for another one, and malformed properties are left out.
 */
export function believedProperties(stated: Values | undefined, id: string, clusterset: string | undefined): Values {
  const proven: [string, string][] = [[PROPERTY_CLUSTER_ID, id]]
  if (clusterset !== undefined) proven.push([PROPERTY_CLUSTERSET, clusterset])
  const others = Object.entries(stated ?? {}).filter(([name, value]) => !isProven(name) && isProperty(name, value))
  return sorted([...others.slice(0, MAX_CLUSTER_PROPERTIES), ...proven])
}

function isOurs({ metadata }: ClusterProperty): boolean {
  return metadata.labels?.[LABEL_APP_MANAGED_BY] === APP_MANAGED_BY_SEALANE
}

function isProven(name: string): boolean {
  return name === PROPERTY_CLUSTER_ID || name === PROPERTY_CLUSTERSET
}

function isTopology(name: string): boolean {
  return name === PROPERTY_REGION || name === PROPERTY_ZONE
}

function isProperty(name: string, value: string): boolean {
  return isObjectName(name) && value.length > 0 && value.length <= MAX_PROPERTY_VALUE
}

function sorted(pairs: readonly (readonly [string, string])[]): Values {
  return Object.fromEntries([...pairs].sort(([a], [b]) => (a < b ? -1 : 1)))
}
