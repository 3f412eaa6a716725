/** What the agent has noted of the topology for its cluster's gateways, and what follows for links and relays. Pure. */
import { FULL_TOPOLOGY, type LinkEnd, links, mayRelay } from '../lanes/lanes.ts'
import { ANNOTATION_TOPOLOGY, type Cluster, type Topology } from '../model.ts'
import { readTopology } from './topology.ts'

/** Clusters are named by their ids. */
export interface Transit {
  /** Whether a gateway of `relay` may forward packets between the two clusters. */
  mayRelay(relay: string, ends: readonly [string, string]): boolean
  /** Whether relays of some members alone may carry what the two send each other. */
  isTransit(ends: readonly [string, string]): boolean
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

/** By the topology that is noted. Without one, each may relay. With one that cannot be read, none may. */
export function transitOf({ own, clusters }: KnownClusters): Transit {
  const topology = ownTopology(own)
  const labels = new Map([...clusters, own].map(({ spec }) => [spec.id, spec.labels]))
  const end = (id: string): LinkEnd => ({ id, labels: labels.get(id) })
  return {
    mayRelay: (relay, [a, b]) =>
      topology !== 'unreadable' && mayRelay(topology ?? FULL_TOPOLOGY, end(relay), [end(a), end(b)]),
    isTransit: ([a, b]) => {
      if (topology === undefined || topology === 'unreadable') return false
      const answer = links(topology, end(a), end(b))
      return answer.linked && answer.via !== undefined
    },
  }
}

/** Read once each: objects are never changed in place, and a gateway looks several times in a second. */
const READ = new WeakMap<KnownCluster['metadata'], { readonly topology: Topology | 'unreadable' | undefined }>()

function ownTopology({ metadata }: Pick<KnownCluster, 'metadata'>): Topology | 'unreadable' | undefined {
  const known = READ.get(metadata) ?? { topology: parsed(metadata.annotations?.[ANNOTATION_TOPOLOGY]) }
  READ.set(metadata, known)
  return known.topology
}

function parsed(text: string | undefined): Topology | 'unreadable' | undefined {
  if (text === undefined) return undefined
  try {
    const read = readTopology(JSON.parse(text))
    return 'topology' in read ? read.topology : 'unreadable'
  } catch {
    return 'unreadable'
  }
}
