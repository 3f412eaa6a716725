/** Which machines follow the packets of a probe, and which are named as not asked. Pure. */
import type { CallPackets, PathStep, ProbePlace } from '../../../explain/path/path.ts'
import { printable } from '../../../model/model.ts'
import type { NodePod } from '../probes/pod-probes.ts'

/** Machines of one cluster that follow packets. */
export const MOST_FOLLOWED = 8
const MOST_NAMED = 3

/** A machine that is not asked, or a cluster. */
export interface NotAsked {
  readonly place: Omit<ProbePlace, 'report' | 'notAsked'>
  readonly why: string
}

/** The clusters to which the packets may go, and that no option has named. `asked` are the ids of those named. */
export function unnamedSides(
  { clusterOf }: Pick<CallPackets, 'clusterOf'>,
  self: string,
  asked: readonly string[],
): readonly NotAsked[] {
  const called = [...new Set(clusterOf.values())].filter((cluster) => cluster !== self && !asked.includes(cluster))
  const why = 'the called side was not named: --to-context or --to-site'
  const named = called.slice(0, MOST_FOLLOWED).map((cluster) => notAsked({ cluster, isFar: true }, cluster, why))
  const more = called.length - named.length
  const rest = `${more} more clusters`
  return more === 0 ? named : [...named, notAsked({ cluster: '-', isFar: true }, rest, why)]
}

export interface FollowedInit {
  readonly cluster: string
  readonly isFar: boolean
  /** Those with gateways come first. */
  readonly pods: readonly NodePod[]
  /** All nodes of the cluster, or why they are not known. */
  readonly nodes: readonly string[] | string
  /** The node that sends, if it is one of them: it is asked otherwise. */
  readonly sender: string | undefined
  readonly steps: readonly PathStep[]
}

/** Gateways on the way come first, then its other nodes: without gateways, nothing is known of a lane. */
export function planFollowed(init: FollowedInit): {
  readonly followed: readonly NodePod[]
  readonly notAsked: readonly NotAsked[]
} {
  const { cluster, isFar, pods, nodes, sender, steps } = init
  const own = steps.filter((step) => step.cluster === cluster)
  const namedAt = (isGateway: boolean): ReadonlySet<string> =>
    new Set(
      own.flatMap(({ station, node = '' }) =>
        (station === 'gateway' || station === 'far-gateway') === isGateway ? node.split(/[, ]+/) : [],
      ),
    )
  const [gateways, others] = [namedAt(true), namedAt(false)]
  const rank = ({ node }: NodePod): number => (gateways.has(node) ? 0 : others.has(node) ? 1 : 2)
  const all = pods.filter(({ node }) => node !== sender).sort((a, b) => rank(a) - rank(b))
  const left = all.slice(MOST_FOLLOWED).map(({ node }) => node)
  const isRunning = new Set(pods.map(({ node }) => node))
  const without = typeof nodes === 'string' ? [] : nodes.filter((node) => node !== sender && !isRunning.has(node))
  const at = { cluster, isFar }
  return {
    followed: all.slice(0, MOST_FOLLOWED),
    notAsked: [
      ...(left.length === 0 ? [] : [notAsked(at, listed(left, ' more'), `the limit is ${MOST_FOLLOWED} of a cluster`)]),
      ...(without.length === 0 ? [] : [notAsked(at, listed(without), 'no route agent runs there')]),
      ...(typeof nodes === 'string' ? [notAsked(at, 'nodes without a route agent', nodes)] : []),
    ],
  }
}

function notAsked(at: Pick<ProbePlace, 'cluster' | 'isFar'>, source: string, why: string): NotAsked {
  return { place: { ...at, isCaller: false, source }, why }
}

/** `12 more nodes: a, b, c and others` */
function listed(nodes: readonly string[], more = ''): string {
  const shown = nodes.slice(0, MOST_NAMED).map((node) => printable(node))
  const others = nodes.length > shown.length ? ' and others' : ''
  return `${nodes.length}${more} node${nodes.length === 1 ? '' : 's'}: ${shown.join(', ')}${others}`
}
