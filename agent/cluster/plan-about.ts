/**
 * The two properties by which a cluster says which member of which clusterset it is (About API, KEP-2149). This agent
 * is their gatekeeper: it never claims membership under an id that the cluster itself contradicts. Pure.
 */
import {
  APP_MANAGED_BY_SEALANE,
  type ClusterProperty,
  LABEL_APP_MANAGED_BY,
  PROPERTY_CLUSTERSET,
  PROPERTY_CLUSTER_ID,
} from '../../model/model.ts'

export interface AboutWorld {
  /** As joined. */
  readonly clusterId: string
  readonly clusterset: string
  readonly properties: readonly ClusterProperty[]
}

export interface AboutPlan {
  /** To apply as they are here: absent ones, and our own, whatever somebody has changed of them. */
  readonly apply: readonly ClusterProperty[]
  /** Our own that said something else. */
  readonly changed: readonly { readonly name: string; readonly found: string; readonly wanted: string }[]
  /** Which property keeps membership from being claimed, why, and what to do; undefined when all is well. */
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
      // Without a right id the clusterset is not claimed either.
      return { apply: [], changed: [], problem: { property: name, text: contradiction(world, name, found ?? '') } }
    }
    if (found !== undefined && found !== value) changed.push({ name, found, wanted: value })
    apply.push(propertyObject(name, value))
  }
  return { apply, changed, problem: undefined }
}

/** Those that go when this cluster leaves: what the user wrote is the user's. */
export function ownProperties(properties: readonly ClusterProperty[]): ClusterProperty[] {
  const names: readonly string[] = [PROPERTY_CLUSTERSET, PROPERTY_CLUSTER_ID]
  return properties.filter((property) => names.includes(property.metadata.name) && isOurs(property))
}

function contradiction({ clusterId, clusterset }: AboutWorld, name: string, found: string): string {
  const is = `ClusterProperty ${name} is ${JSON.stringify(found.slice(0, 300))}`
  if (name === PROPERTY_CLUSTERSET) {
    return (
      `${is}, but this cluster has joined clusterset ${JSON.stringify(clusterset)}: leave the other clusterset ` +
      `(with the product that wrote the property), or delete the property if no product uses it any more`
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
