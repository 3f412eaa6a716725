/** Tells once that packets of some sizes do not get through a link, and once that they do again. */
import type { ObjectEvent } from '../../kubeapi/cluster-api.ts'
import type { MeasuredPeer } from '../../kernel/probing/prober.ts'
import type { Gateway } from '../../model/objects.ts'
import { type Problem, problem } from '../../model/reasons/problem.ts'
import { linkMtu } from '../cable/link-sizes.ts'
import type { LanePlan } from '../cable/plan-lanes.ts'
import { healthKey } from '../world.ts'

/** Octets of packets, that get there and that the device takes. */
export function narrowProblem(mtu: number, deviceMtu: number): Problem {
  const message = `packets of more than ${mtu} octets do not get there, and nobody on the way says so; the device takes ${deviceMtu}`
  return problem('PathMtuReduced', message)
}

/** By healthKey(): the size that was reported last of each link that does not carry what its device takes. */
export type ReportedSizes = ReadonlyMap<string, number>

export interface SizeEvents {
  readonly events: readonly ObjectEvent[]
  readonly reported: ReportedSizes
}

/** What changed since `reported`. While sizes are being tried nothing is reported: the size is not known yet. */
export function sizeEvents(
  reported: ReportedSizes,
  gateway: Gateway,
  lanes: readonly LanePlan[],
  health: ReadonlyMap<string, MeasuredPeer>,
): SizeEvents {
  const { name, uid } = gateway.metadata
  const regarding = { kind: 'Gateway' as const, name, uid }
  const events: ObjectEvent[] = []
  const now = new Map<string, number>()
  for (const lane of lanes) {
    for (const { cluster } of lane.links) {
      const key = healthKey(lane.remoteLane, cluster)
      const [before, view] = [reported.get(key), health.get(key)]
      const size = linkMtu(lane.mtu, view)
      const isNarrow = size < lane.mtu
      if (view?.state !== 'up' || view.isTryingSizes) {
        if (before !== undefined) now.set(key, before)
        continue
      }
      if (isNarrow) now.set(key, size)
      const link = `lane ${lane.ownLane} to lane ${lane.remoteLane} of ${cluster}`
      if (isNarrow && size !== before) {
        const { reason, message } = narrowProblem(size, lane.mtu)
        events.push({ regarding, type: 'Warning', reason, note: `${link}: ${message}` })
      } else if (!isNarrow && before !== undefined) {
        const note = `${link}: packets of ${lane.mtu} octets get there again`
        events.push({ regarding, type: 'Normal', reason: 'PathMtuRestored', note })
      }
    }
  }
  return { events, reported: now }
}
