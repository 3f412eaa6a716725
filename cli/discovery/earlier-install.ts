/** What an earlier `sealane join` left in the cluster: nothing, a part, or all. Pure. */
import { labelOf, textAt } from './raw.ts'
import { type World, pathOf } from './snapshot.ts'

export interface EarlierInstall {
  /** `member`: joined and installed. `leaving`: taking itself out. `partial`: a join or a leave that did not end. */
  readonly state: 'none' | 'partial' | 'leaving' | 'member'
  /** The id it joined with, where it got so far. */
  readonly clusterId: string | undefined
  /** What is there: `Namespace sealane-system`. */
  readonly parts: readonly string[]
  /** What is missing of a whole install. */
  readonly missing: readonly string[]
}

const NAMESPACE = 'sealane-system'

const WHOLE: readonly (readonly [kind: string, name: string, namespaced: boolean])[] = [
  ['Namespace', NAMESPACE, false],
  ['ConfigMap', 'sealane-site', true],
  ['DaemonSet', 'sealane-gateway', true],
  ['DaemonSet', 'sealane-routeagent', true],
  ['Deployment', 'sealane-agent', true],
  ['Deployment', 'sealane-dns', true],
]

export function earlierInstall(world: World): EarlierInstall {
  const membership = world.list('Membership', 'sealane.io')[0]
  const rows = WHOLE.map(([kind, name, namespaced]) => ({
    text: `${kind} ${namespaced ? `${NAMESPACE}/` : ''}${name}`,
    object: world.get(kind, name, namespaced ? NAMESPACE : undefined),
  }))
  const strays = world
    .list('ClusterRole')
    .filter((role) => labelOf(role, 'app.kubernetes.io/managed-by') === 'sealane')
    .map(pathOf)
  const there = rows.filter((row) => row.object !== undefined).map((row) => row.text)
  const missing = rows.filter((row) => row.object === undefined).map((row) => row.text)
  const parts = [...(membership === undefined ? [] : [pathOf(membership)]), ...there, ...strays]
  const clusterId = textAt(membership, 'spec', 'clusterId')
  const phase = textAt(membership, 'spec', 'phase')
  if (parts.length === 0) return { state: 'none', clusterId, parts, missing: [] }
  if (phase === 'leaving') return { state: 'leaving', clusterId, parts, missing: [] }
  if (membership !== undefined && missing.length === 0) return { state: 'member', clusterId, parts, missing: [] }
  return {
    state: 'partial',
    clusterId,
    parts,
    missing: membership === undefined ? ['Membership', ...missing] : missing,
  }
}
