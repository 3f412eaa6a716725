/** metav1.Condition lists, keyed by type. Pure. */
import type { Condition } from './objects.ts'
import type { ReasonCode } from './reasons/reasons.ts'

/** What a controller finds; when it became so is remembered by setCondition. */
export type ConditionFinding = Omit<Condition, 'lastTransitionTime'>

/** On a Cluster: whether it has a connection to the broker. */
export const CONDITION_IN_CONTACT = 'InContact'
/** On a Cluster: whether some lane of this cluster's own gateways leads there. */
export const CONDITION_CONNECTED = 'Connected'
/** On a Cluster: whether more than one gateway of this cluster has a link there, so that any of them may go. */
export const CONDITION_GATEWAYS_REDUNDANT = 'GatewaysRedundant'
/** On a Gateway: whether all its connections are up. Unknown while the gateway does not report. */
export const CONDITION_READY = 'Ready'
/**
 * On a RouteAgent: whether the nodes that it probes over the overlay answer: the gateway nodes, and on a gateway node all
 * nodes. Unknown while some gateway node has never answered.
 */
export const CONDITION_NODES_ANSWER = 'NodesAnswer'
/** On a Gateway that is about to go: whether nothing flows over it any more. */
export const CONDITION_DRAINED = 'Drained'
/** On a Gateway whose key is being made anew, or was since its start: whether it has been. */
export const CONDITION_KEYS_ROTATED = 'KeysRotated'
/** Reason of the condition Ready. */
export const REASON_STATUS_STALE = 'GatewayStatusStale' satisfies ReasonCode
/** On a cluster's own Cluster: whether the DNS that its pods ask hands clusterset.local to Sealane. */
export const CONDITION_CLUSTER_DNS = 'ClusterDNS'

/** On a ServiceExport: whether other members import it. The standard has no such type, hence a domain of our own. */
export const CONDITION_IMPORTED = 'sealane.io/Imported'
/** On a ServiceExport of which a part is left out, or was: whether all of it is exported. A domain of our own, as above. */
export const CONDITION_COMPLETE = 'sealane.io/Complete'

/** The API's limit for a condition's message, characters. */
const MAX_MESSAGE_LENGTH = 32_768

/**
 * The list with this condition in it, in the place of its predecessor of the same type, else at the end.
 * lastTransitionTime is `nowMs` (milliseconds since 1970) only when the status changes. Gives the very same list
 * back when nothing changes.
 */
export function setCondition(
  list: readonly Condition[],
  finding: ConditionFinding,
  nowMs: number,
): readonly Condition[] {
  const previous = list.find(({ type }) => type === finding.type)
  const wanted = { ...finding, message: finding.message.slice(0, MAX_MESSAGE_LENGTH) }
  if (previous !== undefined && sameFinding(previous, wanted)) return list
  const since = previous?.status === finding.status ? previous.lastTransitionTime : formatSeconds(nowMs)
  const next: Condition = { ...wanted, lastTransitionTime: since }
  return previous === undefined ? [...list, next] : list.map((item) => (item === previous ? next : item))
}

/** Sets several, in order. */
export function setConditions(
  list: readonly Condition[],
  findings: readonly ConditionFinding[],
  nowMs: number,
): readonly Condition[] {
  return findings.reduce((current, finding) => setCondition(current, finding, nowMs), list)
}

export function findCondition(list: readonly Condition[] | undefined, type: string): Condition | undefined {
  return list?.find((condition) => condition.type === type)
}

/** Absent counts as not true. */
export function isConditionTrue(list: readonly Condition[] | undefined, type: string): boolean {
  return findCondition(list, type)?.status === 'True'
}

function sameFinding(a: ConditionFinding, b: ConditionFinding): boolean {
  return (
    a.status === b.status &&
    a.reason === b.reason &&
    a.message === b.message &&
    a.observedGeneration === b.observedGeneration
  )
}

/** metav1.Time: RFC 3339 in UTC, whole seconds. */
function formatSeconds(ms: number): string {
  return new Date(ms).toISOString().replace(/\.\d{3}Z$/, 'Z')
}

// Texts of a status as long as the API takes them: for one that is too long it refuses the whole status. Pure.

/** Of `status.failure`, of Gateway and RouteAgent. */
export const MAX_FAILURE_LENGTH = 4096
/** Entries of `status.silentNodes` of a RouteAgent. */
export const MAX_SILENT_NODES = 256
/** Of `status.connections[].message` of a Gateway. */
export const MAX_CONNECTION_MESSAGE_LENGTH = 1024

/** The text, or its beginning and `…`: never longer than `max` (at least 1), and never half a character. */
export function fitText(text: string, max: number): string {
  return text.length <= max ? text : `${text.slice(0, max - 1).replace(/[\uD800-\uDBFF]$/, '')}…`
}

/** How the message of a connection begins to say that it will not come up by itself; what can be done follows. */
export const NEITHER_CALLABLE = 'neither end can be called from outside'

/** That nothing comes from there. */
export const HEARS_NOTHING = 'and hear nothing'

/**
 * What a far cluster calls itself must not steer the reader's terminal, break a line or turn the text round: `?` stands
 * for each such character.
 */
export function printable(text: string): string {
  return text.replaceAll(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, '?')
}

/** Control characters but the two that texts are laid out with, halves of pairs, and what turns or breaks a line. */
const STEERS = /[^\P{Cc}\n\t]|\p{Cs}|[\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu

/** Whole text of ours, with newlines and tabs, as a terminal may have it: `?` stands for what would steer it. */
export function forTerminal(text: string): string {
  return text.replaceAll(STEERS, '?')
}

/** The same of JSON, which can spell such a character: it stays what it was. */
export function jsonForTerminal(json: string): string {
  return json.replaceAll(STEERS, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`)
}
