/** Gathers what `sealane explain` says one call by: the facts of `status`, and the whole objects that the call concerns. */
import type { Fact, FactSet } from '../../../explain/facts/facts.ts'
import type { PathFrom, PathObjects, PathSide, PathTo } from '../../../explain/path/path.ts'
import type { ClusterApi } from '../../../kubeapi/kubeapi.ts'
import { KIND_PLACES } from '../../../kubeapi/kube/kube.ts'
import { LABEL_K8S_SERVICE_NAME, LABEL_SERVICE_NAME } from '../../../model/model.ts'
import { type RawObject, slimObject } from '../../../model/schemas/schemas.ts'
import { askFor } from '../ask.ts'
import type { OpenedMember } from '../open-member.ts'

type PathKind = keyof PathObjects
const POLICIES = ['AccessPolicy', 'ClusterAccessPolicy', 'TrafficPolicy', 'ClusterTrafficPolicy'] as const

export interface PathScope {
  /** Undefined at the member of the called end, which knows no caller. */
  readonly from: PathFrom | undefined
  readonly to: PathTo
  readonly timeoutMs: number
  readonly signal: AbortSignal
}

/** Of a kind that cannot be listed, the facts say why. */
export async function gatherPath(
  gather: () => Promise<FactSet>,
  opened: OpenedMember,
  scope: PathScope,
): Promise<PathSide> {
  if (opened.t === 'site') {
    const facts = await gather()
    return { facts, objects: objectsOfSite(opened.api) }
  }
  const set = gather()
  const lists = listsOf(scope)
  const [facts, ...found] = await Promise.all([set, ...lists.map((list) => listed(opened, list, scope))])
  const later = await Promise.all(laterLists(facts, scope).map((list) => listed(opened, list, scope)))
  // A kind of which one of several lists is missing is not known.
  const silent = [...found, ...later].flatMap(({ unanswered }) => unanswered)
  const isMissing = new Set([...found, ...later].flatMap(({ kind, items }) => (items === undefined ? [kind] : [])))
  const known = Map.groupBy([...found, ...later], ({ kind }) => kind)
  const objects = Object.fromEntries(
    [...known].flatMap(([kind, all]) => (isMissing.has(kind) ? [] : [[kind, all.flatMap(({ items = [] }) => items)]])),
  )
  return { facts: { ...facts, facts: [...facts.facts, ...silent] }, objects }
}

/** The folder of a site is small, and read already. */
function objectsOfSite(api: ClusterApi): PathObjects {
  return {
    EndpointSlice: api.cache('EndpointSlice').list(),
    Service: api.cache('Service').list(),
    AccessPolicy: api.cache('AccessPolicy').list(),
    ClusterAccessPolicy: api.cache('ClusterAccessPolicy').list(),
    TrafficPolicy: api.cache('TrafficPolicy').list(),
    ClusterTrafficPolicy: api.cache('ClusterTrafficPolicy').list(),
  }
}

interface PathList {
  readonly kind: PathKind
  readonly namespace?: string
  readonly labelSelector?: string
  readonly fieldSelector?: string
}

function listsOf({ from, to }: PathScope): readonly PathList[] {
  return [
    ...POLICIES.map((kind) => ({ kind })),
    { kind: 'Namespace' },
    ...(from === undefined ? [] : callerLists(from)),
    ...(to.what === 'service' ? slicesFor(to.namespace, to.name) : []),
  ]
}

/** Only the calling pod: a cluster has too many to list them. */
function callerLists(from: PathFrom): readonly PathList[] {
  if (from.what === 'pod') {
    return [{ kind: 'Pod', namespace: from.namespace, fieldSelector: `metadata.name=${from.name}` }]
  }
  return from.what === 'address' ? [{ kind: 'Pod', fieldSelector: `status.podIP=${from.address}` }] : []
}

/** The slices of one service: imported ones, and those of the Service itself. */
function slicesFor(namespace: string, name: string): readonly PathList[] {
  return [LABEL_SERVICE_NAME, LABEL_K8S_SERVICE_NAME].map((label) => ({
    ...{ kind: 'EndpointSlice' as const, namespace, labelSelector: `${label}=${name}` },
  }))
}

/** An address is that of a service, whose slices are then known by name; otherwise any slice may have it. */
function laterLists({ facts }: FactSet, { to }: PathScope): readonly PathList[] {
  if (to.what === 'service') return []
  for (const fact of facts) {
    if (fact.t !== 'objects' || fact.kind !== 'ServiceImport') continue
    for (const item of fact.items as readonly ImportLike[]) {
      const { namespace = '', name } = item.metadata
      if (item.spec?.ips?.includes(to.address) === true) return slicesFor(namespace, name)
    }
  }
  return [{ kind: 'EndpointSlice' }]
}

interface ImportLike {
  readonly metadata: { readonly namespace?: string; readonly name: string }
  readonly spec?: { readonly ips?: readonly string[] }
}

interface Listed {
  readonly kind: PathKind
  /** Undefined if there was no answer. */
  readonly items: readonly object[] | undefined
  readonly unanswered: readonly Fact[]
}

async function listed(
  { dynamic, title }: Extract<OpenedMember, { t: 'kube' }>,
  { kind, ...scope }: PathList,
  { timeoutMs: ms, signal }: PathScope,
): Promise<Listed> {
  const { apiVersion, plural } = KIND_PLACES[kind]
  let items: readonly object[] | undefined
  const [group = ''] = apiVersion.includes('/') ? apiVersion.split('/') : []
  const right = `list ${plural}${group === '' ? '' : `.${group}`}`
  const unanswered = await askFor(
    {
      ...{ what: kind, source: `API server of ${title}`, needed: false, ms, right },
      ask: async (limited) => {
        const pick = (raw: object): object => slimObject(kind, apiVersion, raw as RawObject)
        items = await dynamic.listPicked({ apiVersion, kind, ...scope }, pick, limited)
        return []
      },
    },
    signal,
  )
  return { kind, items, unanswered }
}
