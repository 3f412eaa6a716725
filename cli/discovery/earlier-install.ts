/** What an earlier `sealane join` left in the cluster: nothing, a part, or all. Pure. */
import { earlierLabels } from './detect/earlier-join.ts'
import { labelOf, textAt } from './snapshot/raw.ts'
import { type World, pathOf } from './snapshot/snapshot.ts'
import { APP_MANAGED_BY_SEALANE, LABEL_APP_MANAGED_BY, SYSTEM_NAMESPACE } from '../../model/spec-constants.ts'

export interface EarlierInstall {
  /** `member`: joined and installed. `leaving`: taking itself out. `partial`: a join or a leave that did not end. */
  readonly state: 'none' | 'partial' | 'leaving' | 'member'
  /** The id it joined with, where it got so far. */
  readonly clusterId: string | undefined
  /** What is there: `Namespace sealane-system`. */
  readonly parts: readonly string[]
  /** What is missing of a whole install. */
  readonly missing: readonly string[]
  /** That the cluster was given. */
  readonly labels: Readonly<Record<string, string>>
}

const WHOLE: readonly (readonly [kind: string, name: string, namespaced: boolean])[] = [
  ['Namespace', SYSTEM_NAMESPACE, false],
  ['ConfigMap', 'sealane-site', true],
  ['DaemonSet', 'sealane-gateway', true],
  ['DaemonSet', 'sealane-routeagent', true],
  ['Deployment', 'sealane-agent', true],
  ['Deployment', 'sealane-dns', true],
]

export function earlierInstall(world: World): EarlierInstall {
  const membership = world.list('Membership', 'sealane.io')[0]
  const rows = WHOLE.map(([kind, name, namespaced]) => ({
    text: `${kind} ${namespaced ? `${SYSTEM_NAMESPACE}/` : ''}${name}`,
    object: world.get(kind, name, namespaced ? SYSTEM_NAMESPACE : undefined),
  }))
  const strays = world
    .list('ClusterRole')
    .filter((role) => labelOf(role, LABEL_APP_MANAGED_BY) === APP_MANAGED_BY_SEALANE)
    .map(pathOf)
  const there = rows.filter((row) => row.object !== undefined).map((row) => row.text)
  const missing = rows.filter((row) => row.object === undefined).map((row) => row.text)
  const parts = [...(membership === undefined ? [] : [pathOf(membership)]), ...there, ...strays]
  const clusterId = textAt(membership, 'spec', 'clusterId')
  const phase = textAt(membership, 'spec', 'phase')
  const found = { clusterId, parts, labels: earlierLabels(world) }
  if (parts.length === 0) return { ...found, state: 'none', missing: [] }
  if (phase === 'leaving') return { ...found, state: 'leaving', missing: [] }
  if (membership !== undefined && missing.length === 0) return { ...found, state: 'member', missing: [] }
  return { ...found, state: 'partial', missing: membership === undefined ? ['Membership', ...missing] : missing }
}
