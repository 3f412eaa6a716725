/**
 * Carries out an installation: applies CRDs, token, objects and node labels in an order in which nothing starts before
 * what it depends on.
 */
import { ALL_CRDS, type CustomResourceDefinition, planCrds } from '../../install/crds/crds.ts'
import type { ManifestObject, Marks } from '../../install/values/values.ts'
import { ClusterApiError } from '../../kubeapi/kubeapi.ts'
import { type ObjectRef, refOf, titleOf } from '../../kubeapi/kube/kube.ts'
import { LABEL_VIRTUAL_NODE } from '../../model/model.ts'
import {
  ASK_FIRST_ANNOTATION,
  NO_PROBLEM,
  type SecretAccess,
  TOKEN_PART,
} from '../../protocol/membership/membership.ts'
import { UserError } from '../../runtime/runtime.ts'
import type { Applied, ClusterAdmin } from '../context/context.ts'
import { CRD, NO_MARKS, decideCrds } from './marks.ts'
import { conditionsOf } from './object-status.ts'
import type { Missing } from './wait-until.ts'

/** One change of an installation, for the report to the user. */
export interface Change {
  readonly ref: ObjectRef
  readonly what: Applied
  readonly why?: string
}

/** The labels and annotations to write to a node. One that is null is removed. */
export interface NodeChange {
  readonly node: string
  readonly labels: Readonly<Record<string, string | null>>
  readonly annotations: Readonly<Record<string, string | null>>
}

/** A label or an annotation as kubectl takes it: `key=value`, or `key-` to remove it. */
export function nodeMarkText([key, value]: readonly [key: string, value: string | null]): string {
  return value === null ? `${key}-` : `${key}=${value}`
}

export interface ApplyContext {
  readonly admin: ClusterAdmin
  readonly dryRun: boolean
  readonly signal: AbortSignal
  readonly report: (change: Change) => void
  /** The marks of the CRDs. Undefined if there are none. */
  readonly marks?: Marks
}

/** One line of the report. Empty if the object is unchanged. */
export function describeChange({ ref, what, why }: Change, dryRun: boolean): string {
  if (what === 'unchanged' && !dryRun) return ''
  return `  ${what.padEnd(9)} ${titleOf(ref)}${why === undefined ? '' : `  (${why})`}\n`
}

/** Throws UserError, which names every CRD that Sealane cannot work with. */
export async function applyCrds(context: ApplyContext): Promise<void> {
  const { admin, dryRun, signal, report, marks = NO_MARKS } = context
  const decisions = await decideCrds(admin, marks, signal)
  const problems = decisions.flatMap(({ problem }) => problem ?? [])
  if (problems.length > 0) throw new UserError(problems.join('\n'))
  for (const { name, crd, reason } of decisions) {
    const ref = { ...CRD, name }
    if (crd === undefined) report({ ref, what: 'unchanged', why: reason })
    else report({ ref, what: await admin.apply(crd as unknown as ManifestObject, { dryRun }, signal), why: reason })
  }
}

/**
 * Applies one CRD where it is missing or older. Who installed it before keeps its marks. Throws UserError if Sealane
 * cannot work with the one that is there.
 */
export async function applyCrd(crd: CustomResourceDefinition, context: Omit<ApplyContext, 'marks'>): Promise<void> {
  const { admin, dryRun, signal, report } = context
  const ref = { ...CRD, name: crd.metadata.name }
  const found = (await admin.get(ref, signal)) as unknown as CustomResourceDefinition | undefined
  for (const decision of planCrds([crd], new Map(found === undefined ? [] : [[ref.name, found]]))) {
    const { problem, reason, crd: wanted } = decision
    if (problem !== undefined) throw new UserError(problem)
    const what = wanted && (await admin.apply(wanted as unknown as ManifestObject, { dryRun }, signal))
    report({ ref, what: what ?? 'unchanged', why: reason })
  }
}

/** The CRDs that applyCrds() would apply, without those that it refuses. */
export async function wantedCrds(
  admin: Pick<ClusterAdmin, 'list'>,
  marks: Marks,
  signal: AbortSignal,
): Promise<readonly ManifestObject[]> {
  const decisions = await decideCrds(admin, marks, signal)
  return decisions.flatMap(({ crd }) => (crd === undefined ? [] : [crd as unknown as ManifestObject]))
}

/** A probe for waitUntil(): a kind can be used only some time after its CRD was applied. */
export async function crdsMissing(admin: ClusterAdmin, signal: AbortSignal): Promise<Missing | undefined> {
  const present = await admin.list(CRD.apiVersion, CRD.kind, {}, signal)
  const served = new Set(present.filter(isEstablished).map(({ metadata }) => metadata.name))
  const missing = ALL_CRDS.map(({ metadata }) => metadata.name).filter((name) => !served.has(name))
  return missing.length === 0 ? undefined : { what: missing.join(', ') }
}

function isEstablished(crd: ManifestObject): boolean {
  return conditionsOf(crd).some(({ type, status }) => type === 'Established' && status === 'True')
}

export async function applyObjects(
  objects: readonly ManifestObject[],
  { admin, dryRun, signal, report }: ApplyContext,
): Promise<void> {
  for (const object of objects) report({ ref: refOf(object), what: await admin.apply(object, { dryRun }, signal) })
}

export async function applyNodes(nodes: readonly NodeChange[], context: ApplyContext): Promise<void> {
  const { admin, dryRun, signal, report } = context
  for (const { node, labels, annotations } of nodes) {
    const ref = { apiVersion: 'v1', kind: 'Node', name: node }
    try {
      if (!dryRun) await admin.merge(ref, { metadata: { labels, annotations } }, signal)
    } catch (error) {
      // Virtual nodes come and go with their pods. A gateway that is gone is reported, since it has to be replaced.
      const isGone = error instanceof ClusterApiError && error.code === 'NotFound'
      if (!isGone || !Object.hasOwn(labels, LABEL_VIRTUAL_NODE)) throw error
      continue
    }
    const said = [...Object.entries(labels), ...Object.entries(annotations)].map(nodeMarkText)
    report({ ref, what: 'changed', why: said.join(' ') })
  }
}

/**
 * Stores the token before the parts that read it start. An identity that is already stored stays. Removes the note of
 * an earlier refusal, because its cause may be fixed. For `asksFirst` see ASK_FIRST_ANNOTATION.
 */
export async function leaveToken(secret: SecretAccess, token: string, asksFirst = false): Promise<void> {
  const annotations = { ...NO_PROBLEM, [ASK_FIRST_ANNOTATION]: asksFirst ? 'true' : null }
  await secret.change({ data: { [TOKEN_PART]: token.trim() }, annotations })
}

// Asks the cluster, before anything is changed, whether it accepts each object of the installation.

interface AskAdmissionInit {
  /** Installs although the cluster refuses some objects, and prints which. */
  readonly force: boolean
  readonly signal: AbortSignal
  readonly say: (text: string) => void
}

/**
 * Throws UserError (`AdmissionRefuses`), which names every object that the cluster's own rules refuse: admission
 * policies, webhooks and quotas. It detects rules about workloads, but not rules about the pods that these create.
 */
export async function requireAdmission(
  admin: Pick<ClusterAdmin, 'title' | 'refusal'>,
  objects: readonly ManifestObject[],
  { force, signal, say }: AskAdmissionInit,
): Promise<void> {
  const refusals = await Promise.all(objects.map((object) => admin.refusal(object, signal)))
  const lines = refusals.flatMap((refusal, i) => {
    const object = objects[i]
    return refusal === undefined || object === undefined ? [] : [`  ${titleOf(refOf(object))}: ${refusal}`]
  })
  if (lines.length === 0) return
  const text = [`${admin.title}: the API server refuses ${lines.length} of ${objects.length} objects:`, ...lines].join(
    '\n',
  )
  if (force) {
    say(`${text}\n`)
    return
  }
  throw new UserError(text, { reason: 'AdmissionRefuses', hint: HINT })
}

const HINT = 'fix the refused objects or add exceptions for them, or continue with --force; nothing was installed'
