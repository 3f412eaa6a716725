/** What the agent has noted of the topology at its cluster's own Cluster, and what follows for links. Pure. */
import { FULL_TOPOLOGY, type LinkEnd, links, mayRelay } from '../lanes/lanes.ts'
import { ANNOTATION_TOPOLOGY, type Cluster, type Topology } from '../model.ts'
import { readTopology } from './topology.ts'

/** Clusters are named by their ids. */
export interface Transit {
  /** Members whose relays alone may carry the link with this cluster. Undefined: it may have any way, or there is none. */
  via(cluster: string): readonly string[] | undefined
  /** Whether a gateway of `relay` may forward packets between the two clusters. */
  mayRelay(relay: string, ends: readonly [string, string]): boolean
}

export interface KnownClusters {
  /** This cluster, with what the agent has noted. */
  readonly own: KnownCluster
  readonly clusters: readonly KnownCluster[]
}

interface KnownCluster {
  readonly metadata: Pick<Cluster['metadata'], 'annotations'>
  readonly spec: Pick<Cluster['spec'], 'id' | 'labels'>
}

/** By the topology that is noted. Without one, or with one that cannot be read, all clusters link, and each may relay. */
export function transitOf({ own, clusters }: KnownClusters): Transit {
  const topology = ownTopology(own) ?? FULL_TOPOLOGY
  const labels = new Map([...clusters, own].map(({ spec }) => [spec.id, spec.labels]))
  const end = (id: string): LinkEnd => ({ id, labels: labels.get(id) })
  return {
    via: (cluster) => {
      const answer = links(topology, end(own.spec.id), end(cluster))
      return answer.linked ? answer.via : undefined
    },
    mayRelay: (relay, [a, b]) => mayRelay(topology, end(relay), [end(a), end(b)]),
  }
}

/** Read once each: objects are never changed in place, and a gateway looks several times in a second. */
const READ = new WeakMap<KnownCluster['metadata'], { readonly topology: Topology | undefined }>()

function ownTopology({ metadata }: Pick<KnownCluster, 'metadata'>): Topology | undefined {
  const known = READ.get(metadata) ?? { topology: parsed(metadata.annotations?.[ANNOTATION_TOPOLOGY]) }
  READ.set(metadata, known)
  return known.topology
}

function parsed(text: string | undefined): Topology | undefined {
  if (text === undefined) return undefined
  try {
    const read = readTopology(JSON.parse(text))
    return 'topology' in read ? read.topology : undefined
  } catch {
    return undefined
  }
}
