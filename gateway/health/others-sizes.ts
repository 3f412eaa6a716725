/**
 * What the other gateways of this cluster say of the sizes of their links. A link that nothing flows over is seldom
 * asked, and what made another one narrower is often common to both. Pure.
 */
import type { Gateway } from '../../model/objects.ts'
import { remoteLaneOf } from '../../model/lanes/lane-number.ts'
import type { ObjectChange } from '../../kubeapi/cluster-api.ts'

export interface SizeHint {
  readonly cluster: string
  /** Than before, of some link to this cluster. */
  readonly what: 'less' | 'more'
}

/**
 * Of each cluster, what one change of a Gateway object tells the gateway of node `ownNode`. Empty for its own object,
 * and for links that were not reported before. Where one link got narrower and another wider, `less` goes first.
 */
export function sizeHints(change: ObjectChange<Gateway> | undefined, ownNode: string): readonly SizeHint[] {
  if (change?.type !== 'set' || change.object.metadata.name === ownNode) return []
  const before = mtusOf(change.previous)
  const hints = new Map<string, SizeHint>()
  for (const [key, { cluster, mtu }] of mtusOf(change.object)) {
    const was = before.get(key)?.mtu
    if (was === undefined || was === mtu) continue
    const what = mtu < was ? 'less' : 'more'
    hints.set(`${what} ${cluster}`, { cluster, what })
  }
  return [...hints.values()].sort((a, b) => a.what.localeCompare(b.what))
}

function mtusOf(gateway: Gateway | undefined): Map<string, { readonly cluster: string; readonly mtu: number }> {
  const connections = gateway?.status?.connections ?? []
  return new Map(
    connections.flatMap((one) => {
      const { cluster, lane, mtu, state } = one
      if (mtu === undefined || state !== 'up') return []
      return [[`${lane}/${remoteLaneOf(one)}/${cluster}`, { cluster, mtu }] as const]
    }),
  )
}
