/** Plans the conditions of a ServiceExport from the state of its records. Pure. */
import type { ObjectEvent } from '../../kubeapi/kubeapi.ts'
import {
  CONDITION_COMPLETE,
  CONDITION_IMPORTED,
  type Condition,
  type ConditionFinding,
  type ServiceExport,
  findCondition,
  guardedNamespace,
  isConditionTrue,
  isQuotaReason,
} from '../../model/model.ts'
import { type ReasonCode, firstReason, joinReasons } from '../../model/reasons/reasons.ts'
import { MAX_OFFERED_CLUSTERS } from '../../model/values/values.ts'
import type { ConflictFinding } from '../../model/services/services.ts'
import type { LeftOutNote, PlannedExport } from '../export/export.ts'
import type { PublishState } from '../link/link.ts'

export interface PublishedView {
  /** Whether the broker has answered in the life of this process. Until then, earlier findings stay. */
  readonly answered: boolean
  state(key: string): PublishState
}

/** The number of omissions and refusals that a message names. The rest is counted. */
const MAX_NOTES = 3

export interface FoundElsewhere {
  /** The result of the merge. Undefined while the broker does not show this export yet. */
  readonly finding?: ConflictFinding | undefined
  /** Undefined while the other members may not have had time to report. */
  readonly imported?: ConditionFinding | undefined
}

/**
 * The findings to set on one export, in order: Valid, Ready, Conflict, Imported. A condition whose state is unknown is
 * left out, so that a restart without the broker changes nothing.
 */
export function planConditions(
  planned: PlannedExport,
  published: PublishedView,
  { finding, imported }: FoundElsewhere = {},
): readonly ConditionFinding[] {
  const { generation } = planned.object.metadata
  const findings = [...validate(planned, published, finding), ...validateImported(planned, published, imported)]
  return generation === undefined ? findings : findings.map((one) => ({ ...one, observedGeneration: generation }))
}

function validate(
  planned: PlannedExport,
  published: PublishedView,
  finding: ConflictFinding | undefined,
): readonly ConditionFinding[] {
  const conditions = planned.object.status?.conditions
  if (planned.valid.status !== 'True') {
    const waiting = ready('False', 'Pending', 'waiting until the export is valid')
    return [planned.valid, waiting, conflict({ reasons: [], message: '' }), ...unknownComplete(planned)]
  }
  const findings: ConditionFinding[] = [planned.valid]
  const unsure = !published.answered && isConditionTrue(conditions, 'Ready')
  if (!unsure) findings.push(planReady(planned, published), ...planComplete(planned))
  if (finding !== undefined) findings.push(conflict(finding))
  else if (findCondition(conditions, 'Conflict') === undefined) findings.push(conflict({ reasons: [], message: '' }))
  return findings
}

/** An export that is invalid or refused cannot be imported, which says nothing about the other members. */
function validateImported(
  planned: PlannedExport,
  published: PublishedView,
  imported: ConditionFinding | undefined,
): readonly ConditionFinding[] {
  const [exportKey = ''] = planned.recordKeys
  const state = published.state(exportKey)
  const isRefused = state.t === 'refused'
  const isValid = planned.valid.status === 'True'
  // The broker keeps an earlier version of what is over quota, and others go on importing that.
  if (isValid && isRefused && isQuotaReason(state.reason)) return []
  if (isValid && !isRefused) return imported === undefined ? firstImported(planned, published) : [imported]
  if (findCondition(planned.object.status?.conditions, CONDITION_IMPORTED) === undefined) return []
  const message = isRefused ? 'waiting for the broker to accept the export' : 'waiting until the export is valid'
  return [{ type: CONDITION_IMPORTED, status: 'Unknown', reason: 'Pending', message }]
}

/**
 * Says of an export of a guarded namespace that the broker has it, where Ready does not: nodes let in calls by that. It
 * is said before the members had time to report, since they may call at once.
 */
function firstImported({ object, recordKeys }: PlannedExport, published: PublishedView): readonly ConditionFinding[] {
  const { metadata, status } = object
  const known = findCondition(status?.conditions, CONDITION_IMPORTED)
  if (guardedNamespace(metadata.namespace ?? '') === undefined || !published.answered) return []
  if (known !== undefined && known.reason !== 'Pending') return []
  const [own, ...parts] = recordKeys.map((key) => published.state(key).t)
  const isLeftOutInPart = own === 'stored' && parts.includes('refused')
  const isChanged = own === 'pending' && isConditionTrue(status?.conditions, 'Ready')
  if (!isLeftOutInPart && !isChanged) return []
  return [{ type: CONDITION_IMPORTED, status: 'Unknown', reason: 'NotTold', message: 'no member has reported yet' }]
}

/** Earlier omissions say nothing about an export that is now invalid. */
function unknownComplete({ object }: PlannedExport): readonly ConditionFinding[] {
  if (findCondition(object.status?.conditions, CONDITION_COMPLETE) === undefined) return []
  return [
    { type: CONDITION_COMPLETE, status: 'Unknown', reason: 'Pending', message: 'waiting until the export is valid' },
  ]
}

function planReady(planned: PlannedExport, published: PublishedView): ConditionFinding {
  const states = planned.recordKeys.map((key) => ({ key, state: published.state(key) }))
  const leftOut = planLeftOut(states)
  if (leftOut !== undefined) return leftOut
  const refusals = states.flatMap(({ key, state }) =>
    state.t === 'refused' ? [`${key}: ${state.field}: ${state.message} (${state.reason})`] : [],
  )
  if (refusals.length > 0) {
    const more = refusals.length > MAX_NOTES ? `; and ${refusals.length - MAX_NOTES} more` : ''
    // A refusal that an administrator can lift has a reason of its own.
    const isForbidden = states[0]?.state.t === 'refused' && states[0].state.reason === 'NamespaceNotAllowed'
    return ready(
      'False',
      isForbidden ? 'NamespaceNotAllowed' : 'Failed',
      `the broker refuses ${refusals.slice(0, MAX_NOTES).join('; ')}${more}`,
    )
  }
  // Only the export's own record counts: endpoints change all the time.
  if (states[0]?.state.t !== 'stored') return ready('False', 'Pending', 'not confirmed by the broker yet')
  const { notes } = planned
  return ready('True', 'Exported', notes.length === 0 ? 'exported' : `exported; ${notesText(notes)}`)
}

function notesText(notes: readonly LeftOutNote[]): string {
  const more = notes.length > MAX_NOTES ? `; and ${notes.length - MAX_NOTES} more` : ''
  const named = notes.slice(0, MAX_NOTES).map(({ message }) => message)
  return `${named.join('; ')}${more}`
}

/** The condition Complete of a ready export: False if parts with a reason code are left out. */
function planComplete(planned: PlannedExport): readonly ConditionFinding[] {
  const named = planned.notes.flatMap((note) => (note.reason === undefined ? [] : [{ ...note, reason: note.reason }]))
  const [first, ...others] = new Set(named.map(({ reason }) => reason))
  if (first !== undefined)
    return [
      { type: CONDITION_COMPLETE, status: 'False', reason: joinReasons([first, ...others]), message: notesText(named) },
    ]
  const was = findCondition(planned.object.status?.conditions, CONDITION_COMPLETE)
  return was === undefined ? [] : [{ type: CONDITION_COMPLETE, status: 'True', reason: 'Exported', message: '' }]
}

/**
 * The finding if all refusals are about quotas, which have reasons of their own. Refusals of another kind take
 * precedence.
 */
function planLeftOut(
  states: readonly { readonly key: string; readonly state: PublishState }[],
): ConditionFinding | undefined {
  const refused = states.flatMap(({ key, state }) => (state.t === 'refused' ? [{ key, ...state }] : []))
  const [first] = refused
  if (first === undefined || refused.some(({ reason }) => !isQuotaReason(reason))) return undefined
  const part = `${refused.length} of ${states.length} records of this export`
  const all = states[0]?.state.t === 'refused' ? 'left out' : `left out in part (${part})`
  return ready('False', first.reason, `${all}: ${first.message}; the broker accepts it as soon as the quota allows`)
}

type OfferedClusters = NonNullable<ServiceExport['status']>['clusters']

/**
 * `status.clusters` of an export: the other clusters that it is offered to (enhancements#6329). Undefined if it is offered
 * to all members, is not exported, or the clusters are too many: a part of them would read as the whole.
 */
export function offeredClusters({ offered }: PlannedExport): OfferedClusters {
  const { clusters } = offered ?? {}
  return clusters === undefined || clusters.length > MAX_OFFERED_CLUSTERS
    ? undefined
    : clusters.map((cluster) => ({ cluster }))
}

function ready(status: 'True' | 'False', reason: ReasonCode, message: string): ConditionFinding {
  return { type: 'Ready', status, reason, message }
}

function conflict(finding: ConflictFinding): ConditionFinding {
  const { reasons, message } = finding
  const [first, ...more] = reasons
  if (first === undefined) return { type: 'Conflict', status: 'False', reason: 'NoConflicts', message }
  return { type: 'Conflict', status: 'True', reason: joinReasons([first, ...more]), message }
}

// Plans Events about a ServiceExport when its conditions change (KEP-1645 "Headless": conditions and events). Pure.

/** Takes the conditions before and after. A restart changes none, so it reports nothing again. */
export function exportEvents(
  object: ServiceExport,
  before: readonly Condition[],
  after: readonly Condition[],
): ObjectEvent[] {
  const { name, namespace, uid } = object.metadata
  const regarding = { kind: 'ServiceExport' as const, name, namespace, uid }
  return TYPES.flatMap((type) => {
    const was = findCondition(before, type)
    const is = findCondition(after, type)
    const words = is === undefined || sameFinding(was, is) ? undefined : wordsFor(was, is)
    return words === undefined ? [] : [{ regarding, ...words }]
  })
}

const TYPES = ['Valid', 'Ready', 'Conflict', CONDITION_IMPORTED] as const

type Words = Pick<ObjectEvent, 'type' | 'reason' | 'note'>

function wordsFor(was: Condition | undefined, is: Condition): Words | undefined {
  if (is.type === 'Valid') {
    return is.status === 'False' ? { type: 'Warning', reason: firstReason(is.reason), note: is.message } : undefined
  }
  if (is.type === 'Ready') {
    if (is.status === 'True' && was?.status !== 'True') return { type: 'Normal', reason: 'Exported', note: is.message }
    if (isQuotaReason(is.reason)) return { type: 'Warning', reason: is.reason, note: is.message }
    return isRefusal(is.reason) ? { type: 'Warning', reason: 'Refused', note: is.message } : undefined
  }
  if (is.type === CONDITION_IMPORTED) {
    // The importing members change whenever a cluster joins or leaves, so only the status is worth an Event.
    if (is.status === 'False' && was?.status !== 'False')
      return { type: 'Warning', reason: firstReason(is.reason), note: is.message }
    if (is.status !== 'True' || was?.status !== 'False') return undefined
    return { type: 'Normal', reason: firstReason(is.reason), note: is.message }
  }
  if (is.status === 'True') return { type: 'Warning', reason: 'Conflict', note: `${is.reason}: ${is.message}` }
  if (was?.status !== 'True') return undefined
  return { type: 'Normal', reason: 'ConflictCleared', note: 'all exports of this service agree' }
}

/** Whether the reason of condition Ready means that the broker refuses the export. */
export function isRefusal(reason: string): boolean {
  return reason === 'Failed' || reason === 'NamespaceNotAllowed' || isQuotaReason(reason)
}

function sameFinding(was: Condition | undefined, is: Condition): boolean {
  return was?.status === is.status && was.reason === is.reason && was.message === is.message
}
