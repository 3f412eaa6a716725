/** Plans for a CoreDNS that imports `*.server` from a ConfigMap of additions: k3s, AKS and others. */
import { APP_MANAGED_BY_SEALANE, LABEL_APP_MANAGED_BY } from '../../model/model.ts'
import { refOf, titleOf, type ObjectRef } from '../../kubeapi/kube/kube.ts'
import {
  type ClusterDnsChange,
  type ClusterDnsOptions,
  type ClusterDnsPlan,
  type ClusterDnsProblem,
  type DnsObject,
  type Effect,
  NO_CHANGE,
  configMapRef,
  findObject,
  problemPlan,
} from './dns-change.ts'
import {
  ADDITION_KEY,
  type ListenOptions,
  claimsOn,
  formatForwardBlock,
  placeOfText,
  topImports,
} from '../../model/cluster-dns/cluster-dns.ts'
import { type CorefileSource, effectOf, findClusterCorefile } from './corefile-source.ts'
import { findDnsCaches, importedMap, mountedMaps } from './dns-caches.ts'
import { claimProblem, isProblem, readable } from './plan-corefile.ts'

const USUAL_MAP = 'coredns-custom'

/** The top-level import of the Corefile that reads `*.server`. Undefined if there is none. */
export function customImport(corefile: string): string | undefined {
  return topImports(corefile).find((pattern) => pattern.endsWith('*.server'))
}

export function planCustomMap(present: readonly DnsObject[], options: ClusterDnsOptions): ClusterDnsPlan {
  const main = findClusterCorefile(present)
  if (isProblem(main)) return problemPlan(main)
  const pattern = readable(main, () => customImport(main.corefile))
  if (isProblem(pattern)) return problemPlan(pattern)
  if (pattern === undefined) return noImport(main)
  const name = importedMap(findObject(present, main.workload), pattern) ?? USUAL_MAP
  return planAddition(present, { main, ref: configMapRef(name, main.map.metadata.namespace) }, options)
}

/** Puts Sealane's block into the ConfigMap `ref`, whose keys the Corefile of `main` imports. */
export function planAddition(
  present: readonly DnsObject[],
  { main, ref }: Omit<Target, 'before'>,
  options: ClusterDnsOptions,
): ClusterDnsPlan {
  const place = readable(main, () => placeOfText(main.corefile))
  if (isProblem(place)) return problemPlan(place)
  const before = findObject(present, ref)
  const problems = [main, ...otherKeys(main, before)].flatMap((source) => {
    const claims = readable(source, () => claimsOn(source.corefile, options.domain))
    // An error in the additions of other owners is theirs to fix, and does not affect Sealane's own.
    if (isProblem(claims)) return source === main ? [claims] : []
    return claims.length > 0 ? [claimProblem(source, options.domain, claims)] : []
  })
  if (problems.length > 0) return problemPlan(...problems)
  return addKey({ main, ref, before }, options, place)
}

interface Target {
  readonly main: CorefileSource
  readonly ref: ObjectRef
  readonly before: DnsObject | undefined
}

function addKey({ main, ref, before }: Target, options: ClusterDnsOptions, place: ListenOptions): ClusterDnsPlan {
  const block = `${formatForwardBlock(options, place)}\n`
  if (before?.data?.[ADDITION_KEY] === block) return NO_CHANGE
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
    after: { ...base, data: { ...base.data, [ADDITION_KEY]: block } },
    edit: { field: `data.${ADDITION_KEY}`, before: before?.data?.[ADDITION_KEY], after: block },
    why: `names below ${options.domain} are forwarded to ${options.forwardTo}; the Corefile itself is not changed`,
    effect: effectOf(main.corefile, main.workload),
  }
  return { changes: [change], notes: [], problems: [] }
}

export function planCustomMapRemoval(present: readonly DnsObject[]): ClusterDnsPlan {
  const main = findClusterCorefile(present)
  const changes = present.flatMap((before) => {
    if (before.kind !== 'ConfigMap' || before.data?.[ADDITION_KEY] === undefined) return []
    return [removal(before, effectOnReader(present, main, before))]
  })
  return { changes, notes: [], problems: [] }
}

/** The additions of a cache take effect in the cache, all others in the cluster's own CoreDNS. */
function effectOnReader(
  present: readonly DnsObject[],
  main: CorefileSource | ClusterDnsProblem,
  map: DnsObject,
): Effect {
  const cache = findDnsCaches(present).find(({ workload }) =>
    mountedMaps(workload).some((ref) => findObject([map], ref) !== undefined),
  )
  if (cache !== undefined && (isProblem(main) || main.workload.name !== cache.workload.metadata.name)) {
    return { how: 'by itself', withinSeconds: 120 }
  }
  const workload: ObjectRef = { apiVersion: 'apps/v1', kind: 'Deployment', namespace: 'kube-system', name: 'coredns' }
  const effect = isProblem(main) ? main : readable(main, () => effectOf(main.corefile, main.workload))
  return isProblem(effect) ? { how: 'restart', workload } : effect
}

function removal(before: DnsObject, effect: Effect): ClusterDnsChange {
  const data = Object.fromEntries(Object.entries(before.data ?? {}).filter(([key]) => key !== ADDITION_KEY))
  const ours = before.metadata.labels?.[LABEL_APP_MANAGED_BY] === APP_MANAGED_BY_SEALANE
  const { data: _old, ...rest } = before
  return {
    object: refOf(before),
    before,
    after: Object.keys(data).length > 0 ? { ...before, data } : ours ? undefined : rest,
    edit: { field: `data.${ADDITION_KEY}`, before: before.data?.[ADDITION_KEY], after: undefined },
    why: 'the addition that Sealane made is removed',
    effect,
  }
}

/**
 * The additions of other owners, each as a Corefile of its own. An addition that belongs inside a block is wrapped into
 * one.
 */
function otherKeys(main: CorefileSource, map: DnsObject | undefined): CorefileSource[] {
  if (map === undefined) return []
  return Object.entries(map.data ?? {})
    .filter(([key]) => key !== ADDITION_KEY)
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
