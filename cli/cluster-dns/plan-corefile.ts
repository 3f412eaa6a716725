/** Plans for a CoreDNS whose Corefile Sealane may edit, including NodeLocal DNSCache. */
import { refOf, titleOf } from '../../kubeapi/kube/kube.ts'
import {
  type ClusterDnsChange,
  type ClusterDnsOptions,
  type ClusterDnsPlan,
  type ClusterDnsProblem,
  type DnsObject,
  problemPlan,
} from './dns-change.ts'
import { type ExistingServer, addForwardBlock, claimsOn, removeForwardBlock } from './corefile-edit.ts'
import {
  type CorefileSource,
  effectOf,
  findClusterCorefile,
  findNodeLocalCorefile,
  otherOwnerNotes,
} from './corefile-source.ts'
import { CorefileError } from './corefile.ts'

export function planCorefile(present: readonly DnsObject[], options: ClusterDnsOptions): ClusterDnsPlan {
  return planSources(
    present,
    (source) => {
      const claims = claimsOn(source.corefile, options.domain)
      if (claims.length > 0) return claimProblem(source, options.domain, claims)
      return addForwardBlock(source.corefile, options)
    },
    `names below ${options.domain} are forwarded to ${options.forwardTo}; other names are not affected`,
  )
}

export function planCorefileRemoval(present: readonly DnsObject[]): ClusterDnsPlan {
  return planSources(
    present,
    (source) => removeForwardBlock(source.corefile),
    'the block that Sealane added is removed',
  )
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

function planSources(
  present: readonly DnsObject[],
  edit: (source: CorefileSource) => string | ClusterDnsProblem,
  why: string,
): ClusterDnsPlan {
  const changes: ClusterDnsChange[] = []
  const notes: string[] = []
  const problems: ClusterDnsProblem[] = []
  for (const source of [findClusterCorefile(present), findNodeLocalCorefile(present)]) {
    if (source === undefined) continue
    if (isProblem(source)) {
      problems.push(source)
      continue
    }
    const after = readable(source, () => edit(source))
    if (isProblem(after)) problems.push(after)
    else if (after !== source.corefile) {
      changes.push(corefileChange(source, after, why))
      notes.push(...otherOwnerNotes(source.map))
    }
  }
  return problems.length > 0 ? problemPlan(...problems) : { changes, notes, problems }
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
