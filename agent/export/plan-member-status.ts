/** What this cluster reports about itself to the others: which of their exports it does not import, and why. Pure. */
import { guardedNamespace, isDnsLabel, type ServiceKey } from '../../model/ids.ts'
import {
  MAX_NOT_IMPORTED,
  type MemberStatus,
  type NotImported,
  type NotImportedReason,
  findingProblem,
} from '../../model/member-status.ts'
import type { ClusterSpec } from '../../model/objects.ts'
import type { ClustersetView } from '../import/clusterset-view.ts'

export interface MemberStatusWorld {
  /** Id of this cluster. */
  readonly own: string
  readonly view: Pick<ClustersetView, 'services' | 'refusedExports'>
  /** Namespaces in which some cluster exports something, as the broker says. Undefined: the view has all of them. */
  readonly exported: ReadonlySet<string> | undefined
  /** That exist here and are not terminating. */
  readonly namespaces: ReadonlySet<string>
  readonly allowedNamespaces: readonly string[]
  /** Whose addresses can be used here. */
  readonly clusters: ReadonlyMap<string, ClusterSpec>
  /** Those of the broker's view, usable or not. */
  readonly members: ReadonlyMap<string, ClusterSpec>
  /** Services of namespaces that are here, and why they are not imported all the same. */
  readonly problems: ReadonlyMap<ServiceKey, NotImportedReason>
}

/** Bytes of all findings together, well below what the wire takes. */
const MAX_BYTES = 48 * 1024
/** What one finding needs beside its texts. */
const FRAME_BYTES = 16

/** Findings that hold for more come first: those that are left out, when there are too many, are of single services. */
export function planMemberStatus(world: MemberStatusWorld): MemberStatus {
  const findings = new Map<string, NotImported>()
  const add = (reason: NotImportedReason, where: Partial<Omit<NotImported, 'reason'>>): void => {
    const one = { reason, namespace: '', name: '', cluster: '', ...where }
    // What came from others may have names that cannot be sent.
    if (findingProblem(one) === undefined) findings.set(sortKey(one), one)
  }
  for (const [key, { exports }] of world.view.services) {
    const others = exports.filter((record) => record.key.cluster !== world.own)
    if (others.length === 0) continue
    const [namespace = '', name = ''] = key.split('/')
    if (!world.namespaces.has(namespace)) add('NamespaceMissing', { namespace })
    else {
      const reason = world.problems.get(key)
      if (reason !== undefined) add(reason, { namespace, name })
    }
    for (const { cluster } of others.map((record) => record.key)) {
      if (world.members.has(cluster) && !world.clusters.has(cluster)) add('ClusterNotUsable', { cluster })
    }
  }
  const isForbidden = (namespace: string): boolean =>
    isDnsLabel(namespace) && guardedNamespace(namespace) !== undefined && !world.allowedNamespaces.includes(namespace)
  for (const namespace of world.exported ?? []) {
    if (!world.namespaces.has(namespace))
      add(isForbidden(namespace) ? 'NamespaceNotAllowed' : 'NamespaceMissing', { namespace })
  }
  for (const { namespace, name, cluster } of world.view.refusedExports) {
    if (cluster === world.own) continue
    if (isForbidden(namespace)) add('NamespaceNotAllowed', { namespace })
    else add('ExportRefused', { namespace, name, cluster })
  }
  const sorted = [...findings].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, one]) => one)
  const kept = withinBounds(sorted)
  return { notImported: kept, leftOut: sorted.length - kept.length }
}

function withinBounds(findings: readonly NotImported[]): NotImported[] {
  let bytes = 0
  return findings.slice(0, MAX_NOT_IMPORTED).filter(({ reason, namespace, name, cluster }) => {
    bytes += FRAME_BYTES + reason.length + namespace.length + name.length + cluster.length
    return bytes <= MAX_BYTES
  })
}

function sortKey({ reason, namespace, name, cluster }: NotImported): string {
  return `${name === '' ? 0 : 1} ${namespace}/${name} ${cluster} ${reason}`
}
