/** Plans for a CoreDNS that imports `*.server` from a ConfigMap of additions: k3s, AKS and others. */
import { APP_MANAGED_BY_SEALANE, LABEL_APP_MANAGED_BY } from '../../model/model.ts'
import { refOf, titleOf, type ObjectRef } from '../../kubeapi/kube/kube.ts'
import {
  type ClusterDnsOptions,
  type ClusterDnsPlan,
  type DnsObject,
  NO_CHANGE,
  configMapRef,
  findObject,
  problemPlan,
} from './dns-change.ts'
import { type ListenOptions, claimsOn, formatForwardBlock, placeOfText, topImports } from './corefile-edit.ts'
import { type CorefileSource, customMapName, effectOf, findClusterCorefile } from './corefile-source.ts'
import { claimProblem, isProblem, readable } from './plan-corefile.ts'

/** The Corefile imports keys with this suffix. Only Sealane uses the name, so the removal needs no markers. */
const KEY = 'sealane.server'

/** The top-level import of the Corefile that reads `*.server`. Undefined if there is none. */
export function customImport(corefile: string): string | undefined {
  return topImports(corefile).find((pattern) => pattern.endsWith('*.server'))
}

export function planCustomMap(present: readonly DnsObject[], options: ClusterDnsOptions): ClusterDnsPlan {
  const main = findClusterCorefile(present)
  if (isProblem(main)) return problemPlan(main)
  const read = readable(main, () => ({ pattern: customImport(main.corefile), place: placeOfText(main.corefile) }))
  if (isProblem(read)) return problemPlan(read)
  if (read.pattern === undefined) return noImport(main)
  const ref = configMapRef(customMapName(present, main.workload, read.pattern), main.map.metadata.namespace)
  const before = findObject(present, ref)

  const problems = [main, ...otherKeys(main, before)].flatMap((source) => {
    const claims = readable(source, () => claimsOn(source.corefile, options.domain))
    // An error in the additions of other owners is theirs to fix, and does not affect Sealane's own.
    if (isProblem(claims)) return source === main ? [claims] : []
    return claims.length > 0 ? [claimProblem(source, options.domain, claims)] : []
  })
  if (problems.length > 0) return problemPlan(...problems)
  return addKey({ main, ref, before }, options, read.place)
}

interface Target {
  readonly main: CorefileSource
  readonly ref: ObjectRef
  readonly before: DnsObject | undefined
}

function addKey({ main, ref, before }: Target, options: ClusterDnsOptions, place: ListenOptions): ClusterDnsPlan {
  const block = `${formatForwardBlock(options, place)}\n`
  if (before?.data?.[KEY] === block) return NO_CHANGE
  const base: DnsObject = before ?? {
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: {
      name: ref.name,
      ...(ref.namespace === undefined ? {} : { namespace: ref.namespace }),
      labels: { [LABEL_APP_MANAGED_BY]: APP_MANAGED_BY_SEALANE },
    },
  }
  const change = {
    object: ref,
    before,
    after: { ...base, data: { ...base.data, [KEY]: block } },
    edit: { field: `data.${KEY}`, before: before?.data?.[KEY], after: block },
    why: `names below ${options.domain} are forwarded to ${options.forwardTo}; the Corefile itself is not changed`,
    effect: effectOf(main.corefile, main.workload),
  }
  return { changes: [change], notes: [], problems: [] }
}

export function planCustomMapRemoval(present: readonly DnsObject[]): ClusterDnsPlan {
  const main = findClusterCorefile(present)
  const before = present.find(({ kind, data }) => kind === 'ConfigMap' && data?.[KEY] !== undefined)
  if (before === undefined) return NO_CHANGE
  const workload: ObjectRef = { apiVersion: 'apps/v1', kind: 'Deployment', namespace: 'kube-system', name: 'coredns' }
  const effect = isProblem(main)
    ? { how: 'restart' as const, workload }
    : readable(main, () => effectOf(main.corefile, main.workload))
  const data = Object.fromEntries(Object.entries(before.data ?? {}).filter(([key]) => key !== KEY))
  const ours = before.metadata.labels?.[LABEL_APP_MANAGED_BY] === APP_MANAGED_BY_SEALANE
  const { data: _old, ...rest } = before
  const change = {
    object: refOf(before),
    before,
    after: Object.keys(data).length > 0 ? { ...before, data } : ours ? undefined : rest,
    edit: { field: `data.${KEY}`, before: before.data?.[KEY], after: undefined },
    why: 'the addition that Sealane made is removed',
    effect: isProblem(effect) ? { how: 'restart' as const, workload } : effect,
  }
  return { changes: [change], notes: [], problems: [] }
}

/**
 * The additions of other owners, each as a Corefile of its own. An addition that belongs inside a block is wrapped into
 * one.
 */
function otherKeys(main: CorefileSource, map: DnsObject | undefined): CorefileSource[] {
  if (map === undefined) return []
  return Object.entries(map.data ?? {})
    .filter(([key]) => key !== KEY)
    .map(([key, text]) => ({
      ...main,
      map,
      key,
      corefile: key.endsWith('.override') ? `. {\n${text}\n}\n` : text,
    }))
}

function noImport(main: CorefileSource): ClusterDnsPlan {
  return problemPlan({
    kind: 'absent',
    object: refOf(main.map),
    message: `${titleOf(refOf(main.map))}: its ${main.key} imports no *.server, so there is no place for additions`,
    advice: [
      'This cluster is older than that feature: upgrade it, or add the block by hand (docs/operations.md, "Cluster DNS").',
    ],
  })
}
