/**
 * Decides for each CRD: create, update or leave. Other products install the same CRDs, so a newer CRD is never
 * replaced, and a version that the server serves or stores is never removed: its objects could not be read any more.
 */
import { compareRevisions, crdRevision, describeRevision } from './all-crds.ts'
import type { CrdVersion, CustomResourceDefinition } from './custom-resource.ts'

export type CrdAction = 'create' | 'update' | 'leave'

export interface CrdDecision {
  readonly name: string
  readonly action: CrdAction
  /** One sentence, also for `leave`. */
  readonly reason: string
  /** The CRD to write. Undefined for `leave`. */
  readonly crd: CustomResourceDefinition | undefined
  /** Why Sealane cannot work with the server's CRD, and the remedy. */
  readonly problem: string | undefined
}

/** `present` holds the server's CRDs by name. A CRD that is missing there does not exist. Keeps the order of `ours`. */
export function planCrds(
  ours: readonly CustomResourceDefinition[],
  present: ReadonlyMap<string, CustomResourceDefinition>,
): readonly CrdDecision[] {
  return ours.map((crd) => planCrd(crd, present.get(crd.metadata.name)))
}

export function planCrd(ours: CustomResourceDefinition, present: CustomResourceDefinition | undefined): CrdDecision {
  if (present === undefined) return write('create', ours, 'it does not exist')
  const shape = shapeProblem(ours, present)
  if (shape !== undefined) return leave(ours, shape.reason, shape.problem)
  const missing = missingVersion(ours, present)
  const order = compareRevisions(crdRevision(present), crdRevision(ours))
  const theirs = describeRevision(present)
  if (order > 0) {
    const reason = `the server's is newer: ${theirs}, ours is ${describeRevision(ours)}`
    return leave(ours, reason, missing && `${missing}, and it is newer than this Sealane knows: use a newer Sealane`)
  }
  if (hasWebhook(present)) {
    const reason = 'another product converts its versions with a webhook'
    return leave(ours, reason, missing && `${missing}: update the product that installed it`)
  }
  if (order < 0) return write('update', merged(ours, present), `the server's is older: ${theirs}`)
  if (missing !== undefined) return write('update', merged(ours, present), missing)
  return leave(ours, crdRevision(ours) === undefined ? 'the server serves what is needed' : `it is ${theirs} already`)
}

/** Problems that an update cannot solve. */
function shapeProblem(
  ours: CustomResourceDefinition,
  present: CustomResourceDefinition,
): { readonly reason: string; readonly problem: string } | undefined {
  const name = ours.metadata.name
  if (present.metadata.deletionTimestamp !== undefined) {
    const problem = `CRD ${name} is being removed, with all its objects: try again when it has gone`
    return { reason: 'it is being removed', problem }
  }
  for (const field of ['scope', 'kind'] as const) {
    const [found, expected] = [present, ours].map(({ spec }) => (field === 'scope' ? spec.scope : spec.names.kind))
    if (found === expected) continue
    const problem = `CRD ${name} has ${field} ${found ?? ''}: expected ${expected ?? ''}; another product made it its own way`
    return { reason: `its ${field} is ${found ?? ''}`, problem }
  }
  return undefined
}

/**
 * Why the server's CRD is insufficient: it does not serve the version that Sealane uses, or lacks its status
 * subresource.
 */
function missingVersion(ours: CustomResourceDefinition, present: CustomResourceDefinition): string | undefined {
  const needed = ours.spec.versions.find(({ storage }) => storage)
  const found = present.spec.versions.find(({ name }) => name === needed?.name)
  const what = `CRD ${ours.metadata.name} ${describeRevision(present)} on the server`
  if (found?.served !== true) return `${what} does not serve ${needed?.name ?? ''}`
  const lacksStatus = needed?.subresources?.status !== undefined && found.subresources?.status === undefined
  return lacksStatus ? `${what} has no status subresource in ${found.name}` : undefined
}

function hasWebhook({ spec }: CustomResourceDefinition): boolean {
  return spec.conversion !== undefined && spec.conversion.strategy !== 'None'
}

/**
 * Our CRD, plus the versions that only the server's has. Those stay served as they were, and ours is the stored one. A
 * version that the server serves stays served, even if ours does not serve it.
 */
function merged(ours: CustomResourceDefinition, present: CustomResourceDefinition): CustomResourceDefinition {
  const theirs = new Map(present.spec.versions.map((version) => [version.name, version]))
  const own = ours.spec.versions.map((version): CrdVersion => ({
    ...version,
    served: version.served || theirs.get(version.name)?.served === true,
  }))
  const names = new Set(own.map(({ name }) => name))
  const kept = present.spec.versions
    .filter(({ name }) => !names.has(name))
    .map((version): CrdVersion => ({ ...version, storage: false }))
  return { ...ours, spec: { ...ours.spec, versions: [...own, ...kept] } }
}

function write(action: 'create' | 'update', crd: CustomResourceDefinition, reason: string): CrdDecision {
  return { name: crd.metadata.name, action, reason, crd, problem: undefined }
}

function leave(ours: CustomResourceDefinition, reason: string, problem?: string): CrdDecision {
  return { name: ours.metadata.name, action: 'leave', reason, crd: undefined, problem }
}
