/** Plans for a CoreDNS whose Corefile Sealane may edit. */
import { refOf, titleOf } from '../../kubeapi/kube/kube.ts'
import {
  type ClusterDnsChange,
  type ClusterDnsOptions,
  type ClusterDnsPlan,
  type ClusterDnsProblem,
  type DnsObject,
  NO_CHANGE,
  problemPlan,
} from './dns-change.ts'
import {
  CorefileError,
  type ExistingServer,
  addForwardBlock,
  claimsOn,
  removeForwardBlock,
} from '../../model/cluster-dns/cluster-dns.ts'
import { type CorefileSource, effectOf, findClusterCorefile, otherOwnerNotes } from './corefile-source.ts'

export function planCorefile(present: readonly DnsObject[], options: ClusterDnsOptions): ClusterDnsPlan {
  const source = findClusterCorefile(present)
  return isProblem(source) ? problemPlan(source) : planBlock(source, options)
}

/** Adds the block to one Corefile, or updates it. */
export function planBlock(source: CorefileSource, options: ClusterDnsOptions): ClusterDnsPlan {
  const claims = readable(source, () => claimsOn(source.corefile, options.domain))
  if (isProblem(claims)) return problemPlan(claims)
  if (claims.length > 0) return problemPlan(claimProblem(source, options.domain, claims))
  const why = `names below ${options.domain} are forwarded to ${options.forwardTo}; other names are not affected`
  return planText(
    source,
    readable(source, () => addForwardBlock(source.corefile, options)),
    why,
  )
}

/** Removes the block from one Corefile. */
export function planBlockRemoval(source: CorefileSource): ClusterDnsPlan {
  const after = readable(source, () => removeForwardBlock(source.corefile))
  return planText(source, after, 'the block that Sealane added is removed')
}

function planText(source: CorefileSource, after: string | ClusterDnsProblem, why: string): ClusterDnsPlan {
  if (isProblem(after)) return problemPlan(after)
  if (after === source.corefile) return NO_CHANGE
  return { changes: [corefileChange(source, after, why)], notes: otherOwnerNotes(source.map), problems: [] }
}

/** The problem that another server already answers the zone. */
export function claimProblem(
  source: CorefileSource,
  domain: string,
  claims: readonly ExistingServer[],
): ClusterDnsProblem {
  const where = claims.map(({ line, what }) => `line ${line}, ${what}`).join('; ')
  const submariner = /lighthouse/i.test(source.corefile)
  return {
    kind: 'conflict',
    object: refOf(source.map),
    message: `${describe(source)}: something else already answers ${domain} (${where})`,
    advice: [
      submariner
        ? 'This looks like Submariner: remove it from this cluster first (subctl uninstall), or leave cluster DNS to it.'
        : `Remove that first if nothing needs it. Sealane does not overwrite what it did not write.`,
    ],
  }
}

/** Converts a CorefileError into a problem that names the object and the line. Other errors are thrown. */
export function readable<T>(source: CorefileSource, read: () => T): T | ClusterDnsProblem {
  try {
    return read()
  } catch (error) {
    if (!(error instanceof CorefileError)) throw error
    return {
      kind: 'unreadable',
      object: refOf(source.map),
      message: `${describe(source)}, ${error.message}`,
      advice: ['Fix it, or add the block by hand (docs/operations.md, "Cluster DNS"). It was not changed.'],
    }
  }
}

function describe({ map, key }: CorefileSource): string {
  return `${titleOf(refOf(map))}, ${key}`
}

export function isProblem(value: unknown): value is ClusterDnsProblem {
  return typeof value === 'object' && value !== null && 'advice' in value
}

function corefileChange(source: CorefileSource, after: string, why: string): ClusterDnsChange {
  const { map, key, corefile, workload } = source
  return {
    object: refOf(map),
    before: map,
    after: { ...map, data: { ...map.data, [key]: after } },
    edit: { field: `data.${key}`, before: corefile, after },
    why,
    effect: effectOf(corefile, workload),
  }
}
