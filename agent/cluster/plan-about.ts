/**
 * Plans the two ClusterProperties that name this member and its clusterset (About API, KEP-2149). The agent never
 * claims membership under an id that the cluster's own properties contradict. Pure.
 */
import {
  APP_MANAGED_BY_SEALANE,
  type ClusterProperty,
  LABEL_APP_MANAGED_BY,
  PROPERTY_CLUSTERSET,
  PROPERTY_CLUSTER_ID,
} from '../../model/model.ts'

export interface AboutWorld {
  /** The cluster id that this cluster joined with. */
  readonly clusterId: string
  readonly clusterset: string
  readonly properties: readonly ClusterProperty[]
}

export interface AboutPlan {
  /** Properties to apply as they are here: missing ones and the agent's own, which overrides edits by other clients. */
  readonly apply: readonly ClusterProperty[]
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
      return { apply: [], changed: [], problem: { property: name, text: contradiction(world, name, found ?? '') } }
    }
    if (found !== undefined && found !== value) changed.push({ name, found, wanted: value })
    apply.push(propertyObject(name, value))
  }
  return { apply, changed, problem: undefined }
}

/** The properties to remove when this cluster leaves. Properties that the user wrote stay. */
export function ownProperties(properties: readonly ClusterProperty[]): ClusterProperty[] {
  const names: readonly string[] = [PROPERTY_CLUSTERSET, PROPERTY_CLUSTER_ID]
  return properties.filter((property) => names.includes(property.metadata.name) && isOurs(property))
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

function propertyObject(name: string, value: string): ClusterProperty {
  return {
    apiVersion: 'about.k8s.io/v1beta1',
    kind: 'ClusterProperty',
    metadata: { name, labels: { [LABEL_APP_MANAGED_BY]: APP_MANAGED_BY_SEALANE } },
    spec: { value },
  }
}

function isOurs({ metadata }: ClusterProperty): boolean {
  return metadata.labels?.[LABEL_APP_MANAGED_BY] === APP_MANAGED_BY_SEALANE
}
