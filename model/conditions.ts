/** metav1.Condition lists, keyed by type. Pure. */
import type { Condition } from './objects.ts'
import type { ReasonCode } from './reasons/reasons.ts'
import { MAX_MESSAGE_LENGTH } from './values/values.ts'

/** A condition as a controller finds it; setCondition() adds the time of the last transition. */
export type ConditionFinding = Omit<Condition, 'lastTransitionTime'>

/** On a Cluster: whether it has a connection to the broker. */
export const CONDITION_IN_CONTACT = 'InContact'
/** On a Cluster: whether at least one lane of this cluster's own gateways reaches it. */
export const CONDITION_CONNECTED = 'Connected'
/** On a Cluster: whether more than one gateway of this cluster has a link to it, so that any one of them may stop. */
export const CONDITION_GATEWAYS_REDUNDANT = 'GatewaysRedundant'
/** On a cluster's own Cluster: whether each gateway node that a join chose is there, or another one took its place. */
export const CONDITION_GATEWAYS_CHOSEN = 'GatewaysChosen'
/** On a Gateway: whether all its connections are up. It is Unknown while the gateway does not report. */
export const CONDITION_READY = 'Ready'
/**
 * On a RouteAgent: whether the nodes that it probes over the overlay answer. These are the gateway nodes; a gateway
 * node probes all nodes. It is Unknown while a gateway node has never answered.
 */
export const CONDITION_NODES_ANSWER = 'NodesAnswer'
/**
 * On a RouteAgent whose overlay device has a known fault, or a stated setting: whether the device leaves checksums to
 * the network card. It is Unknown if it could not be switched.
 */
export const CONDITION_CHECKSUM_OFFLOAD = 'ChecksumOffload'
/**
 * On a RouteAgent: False while this node cannot have the XFRM policies that keep other clusters out if its nft tables
 * are removed, and while the site file asks for none. Absent if other clusters are kept out, or all pods are exposed.
 */
export const CONDITION_CLOSED_WITHOUT_TABLES = 'ClosedWithoutTables'
/** On a Gateway that is about to stop: whether it no longer carries traffic. */
export const CONDITION_DRAINED = 'Drained'
/** On a Gateway that is rotating its key, or has since its start: whether the rotation is complete. */
export const CONDITION_KEYS_ROTATED = 'KeysRotated'
/** On a Gateway whose public address is a DNS name: whether the name resolves to addresses that others can call. */
export const CONDITION_PUBLIC_NAME = 'PublicNameResolved'
/**
 * On a Gateway that two relays see: whether the NAT in front of it gives it one place for all destinations, so that
 * others behind NAT can reach it without a relay.
 */
export const CONDITION_NAT_MAPPING = 'NatMappingKept'
/**
 * On a Gateway that others see at an address that it does not have, or that gets no answer by UDP: the reason is the
 * kind of NAT in front of it.
 */
export const CONDITION_BEHIND_NAT = 'BehindNat'
/** On a Gateway behind NAT: whether the NAT lets in at a port only those to which the port has sent. */
export const CONDITION_NAT_FILTERS = 'NatFilters'
/** On a Gateway behind NAT: whether the NAT leads packets to its own address outside back inside. */
export const CONDITION_NAT_HAIRPINS = 'NatHairpins'
/** On a Gateway that asks the router in front of it for ports outside: whether the router leads calls to it. */
export const CONDITION_PORT_MAPPED = 'PortMapped'
/** Reason of the condition Ready. */
export const REASON_STATUS_STALE = 'GatewayStatusStale' satisfies ReasonCode
/** On a cluster's own Cluster: whether the cluster DNS forwards clusterset.local to Sealane. */
export const CONDITION_CLUSTER_DNS = 'ClusterDNS'
/**
 * On a cluster's own Cluster whose pods are or were outside: whether the pods behind Services have addresses inside the
 * pod CIDRs that the cluster states.
 */
export const CONDITION_POD_ADDRESSES = 'PodAddresses'

/** On a ServiceExport: whether other members import it. The standard has no such type, so it has our own domain. */
export const CONDITION_IMPORTED = 'sealane.io/Imported'
/**
 * On a ServiceExport of which a part is or was left out: whether all of it is exported. It has our own domain, as
 * above.
 */
export const CONDITION_COMPLETE = 'sealane.io/Complete'

/** On a ServiceImport for which a derived Service is or was asked for: whether it is there. */
export const CONDITION_DERIVED_SERVICE = 'sealane.io/DerivedService'

/**
 * Returns the list with this condition, in the position of its predecessor of the same type or at the end.
 * lastTransitionTime becomes `nowMs` (milliseconds since 1970) only if the status changes. Returns the same list object
 * if nothing changes.
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

/** Sets several conditions, in order. */
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

/** An absent condition is not true. */
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

// Limits for texts in a status: the API server rejects a whole status if one text is too long. Pure.

/**
 * Returns the text, or its beginning and `…`. The result is never longer than `max` (at least 1) and never ends in half
 * a surrogate pair.
 */
export function fitText(text: string, max: number): string {
  return text.length <= max ? text : `${text.slice(0, max - 1).replace(/[\uD800-\uDBFF]$/, '')}…`
}

/** The beginning of a connection's message if the connection cannot come up by itself; a remedy follows. */
export const NEITHER_CALLABLE = 'neither gateway is reachable from outside'

/** The part of a connection's message that says that no packets arrive from the far end. */
export const HEARS_NOTHING = 'and receives nothing'

/**
 * Replaces characters with `?` that could control the reader's terminal, break a line or reverse the text. Names that a
 * remote cluster gives itself are not trusted.
 */
export function printable(text: string): string {
  return text.replaceAll(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, '?')
}

/** Control characters except newline and tab, unpaired surrogates, and characters that reverse text or break lines. */
const STEERS = /[^\P{Cc}\n\t]|\p{Cs}|[\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu

/** Makes a whole text with newlines and tabs safe for a terminal: `?` replaces each control character. */
export function forTerminal(text: string): string {
  return text.replaceAll(STEERS, '?')
}

/** Like forTerminal(), for JSON: it escapes the characters, so that the values stay the same. */
export function jsonForTerminal(json: string): string {
  return json.replaceAll(STEERS, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`)
}
