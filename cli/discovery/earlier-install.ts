/** Detects how much of an earlier `sealane join` is in the cluster: nothing, a part, or all. Pure. */
import { APP_MANAGED_BY_SEALANE, LABEL_APP_MANAGED_BY, SYSTEM_NAMESPACE } from '../../model/model.ts'
import { EXPOSURES, type Exposure } from '../../model/access/access.ts'
import { type Evidence, networks } from './evidence.ts'
import { prefixesIn } from './prefix-texts.ts'
import { configText, findProduct } from './product.ts'
import { type World, at, documentIn, keysAt, labelOf, nameOf, pathOf, textAt, textsAt } from './snapshot.ts'

// The settings of an earlier join, so that the user is not asked for them again.

interface EarlierFacts {
  readonly spec: unknown
  /** The object that contains the settings, for messages. */
  readonly where: string
}

/** The site file. If it was deleted together with its namespace, this cluster's own Cluster object. */
function earlierFacts(world: World): EarlierFacts | undefined {
  const found = configText(world, findProduct(world, 'sealane'), 'site.yaml')
  if (found !== undefined) return { spec: at(documentIn(found.text), 'spec'), where: found.where }
  const own = textAt(world.list('Membership', 'sealane.io')[0], 'spec', 'clusterId')
  const cluster = world.list('Cluster', 'sealane.io').find((one) => own !== undefined && nameOf(one) === own)
  return cluster === undefined ? undefined : { spec: at(cluster, 'spec'), where: pathOf(cluster) }
}

/**
 * Precedes other certain answers: if the networks of a cluster have grown, that is reported, and a flag has to confirm
 * the new networks.
 */
export function earlierJoin(world: World): Evidence[] {
  const found = earlierFacts(world)
  if (found === undefined) return []
  return (['podCIDRs', 'serviceCIDRs'] as const).flatMap((field) =>
    networks(field, prefixesIn(textsAt(found.spec, field)), 'certain', `the earlier join (${found.where})`),
  )
}

/** The labels that the earlier join gave to this cluster. */
function earlierLabels(world: World): Readonly<Record<string, string>> {
  const labels = at(earlierFacts(world)?.spec, 'labels')
  return Object.fromEntries(
    keysAt(labels).flatMap((key): [string, string][] => {
      const value = textAt(labels, key)
      return value === undefined ? [] : [[key, value]]
    }),
  )
}

export interface EarlierInstall {
  /**
   * `member`: joined and installed. `leaving`: a leave is in progress. `partial`: a join or a leave did not complete.
   */
  readonly state: 'none' | 'partial' | 'leaving' | 'member'
  /** The id with which the cluster joined. Undefined if there is no Membership. */
  readonly clusterId: string | undefined
  /** The objects that exist: `Namespace sealane-system`. */
  readonly parts: readonly string[]
  /** The objects that are missing from a complete installation. */
  readonly missing: readonly string[]
  /** The labels that the cluster got. */
  readonly labels: Readonly<Record<string, string>>
  /** What the cluster exposes. Undefined if there is no Membership, or if it does not say. */
  readonly exposure: Exposure | undefined
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
  const stated = textAt(membership, 'spec', 'exposure')
  const exposure = EXPOSURES.find((one) => one === stated)
  const found = { clusterId, parts, labels: earlierLabels(world), exposure }
  if (parts.length === 0) return { ...found, state: 'none', missing: [] }
  if (phase === 'leaving') return { ...found, state: 'leaving', missing: [] }
  if (membership !== undefined && missing.length === 0) return { ...found, state: 'member', missing: [] }
  return { ...found, state: 'partial', missing: membership === undefined ? ['Membership', ...missing] : missing }
}
