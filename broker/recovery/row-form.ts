/**
 * The form of each row, field by field, as the broker relies on it. Any program may have written the stored rows. Later
 * checks may trust the types of the fields listed here.
 */
import type { Scope } from '../store/store.ts'

/** Returns the first field that is invalid, or '' for the value itself. Undefined if all are valid. */
type Form = (value: unknown) => string | undefined

const is =
  (holds: (value: unknown) => boolean): Form =>
  (value) =>
    holds(value) ? undefined : ''

const text = is((value) => typeof value === 'string')
const flag = is((value) => typeof value === 'boolean')
/** 1970 or later, and within the range of a Date. */
const time = is((value) => typeof value === 'number' && value >= 0 && value <= 8.64e15)
const count = is((value) => Number.isSafeInteger(value) && (value as number) >= 0)
const oneOf = (...values: readonly unknown[]): Form => is((value) => values.includes(value))

const optional =
  (form: Form): Form =>
  (value) =>
    value === undefined ? undefined : form(value)

const list =
  (form: Form): Form =>
  (value) => {
    if (!Array.isArray(value)) return ''
    for (const [i, one] of value.entries()) {
      const wrong = form(one)
      if (wrong !== undefined) return joined(`[${i}]`, wrong)
    }
    return undefined
  }

const map =
  (form: Form): Form =>
  (value) =>
    isObject(value) ? firstWrong(Object.entries(value).map(([name, one]) => [name, form(one)])) : ''

const object =
  (fields: Readonly<Record<string, Form>>): Form =>
  (value) =>
    isObject(value) ? firstWrong(Object.entries(fields).map(([name, form]) => [name, form(value[name])])) : ''

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function firstWrong(fields: readonly (readonly [string, string | undefined])[]): string | undefined {
  const found = fields.find(([, wrong]) => wrong !== undefined)
  return found === undefined ? undefined : joined(found[0], found[1] ?? '')
}

function joined(outer: string, inner: string): string {
  return inner === '' || inner.startsWith('[') ? `${outer}${inner}` : `${outer}.${inner}`
}

const texts = list(text)

const facts = object({
  podCIDRs: texts,
  serviceCIDRs: texts,
  labels: map(text),
  version: text,
  neededCIDRs: optional(texts),
  properties: optional(map(text)),
})

const certificate = object({
  serial: text,
  expiresAtMs: time,
  issuedAtMs: optional(time),
  renews: optional(text),
  authority: optional(text),
  processes: optional(texts),
})

const superseded = object({
  ...{ serial: text, atMs: time, untilMs: time, forked: optional(flag) },
  ...{ processes: optional(texts), replacedBy: optional(text) },
  late: optional(list(object({ atMs: time, process: optional(text) }))),
})

const knownAuthority = { fingerprint: text, certificate: text, sinceMs: time }

const quota = {
  records: optional(count),
  bytes: optional(count),
  changes: optional(count),
  streams: optional(count),
}

const member = object({
  index: count,
  facts,
  allowedCIDRs: optional(texts),
  tokenLabels: optional(map(text)),
  keptCIDRs: optional(texts),
  claimed: optional(map(count)),
  notes: optional(texts),
  translated: flag,
  blocks: map(text),
  joinedAtMs: time,
  joinKeyHash: optional(text),
  lastSeenMs: time,
  connectedSinceMs: optional(time),
  certificates: list(certificate),
  superseded: optional(list(superseded)),
  forkedAtMs: optional(time),
  issuedUntilMs: optional(time),
  handedOut: optional(object({ serial: text, expiresAtMs: time, authority: text, bundle: texts })),
  trusts: optional(texts),
  followsAuthorities: optional(flag),
  rekeyedAtMs: optional(time),
  approve: optional(flag),
  misuse: optional(object({ atMs: time, serial: text, address: text })),
  quota: optional(object(quota)),
  drained: optional(flag),
  drainedNow: optional(flag),
  changed: optional(
    object({
      ...{ podCIDRs: texts, serviceCIDRs: texts, neededCIDRs: optional(texts), sinceMs: time, renumbers: texts },
      labels: optional(map(text)),
      acceptedAtMs: optional(time),
      refusedAtMs: optional(time),
    }),
  ),
  complete: flag,
  restored: optional(object({ takenAtMs: time, atMs: time })),
  departedAtMs: optional(time),
  departure: optional(oneOf('left', 'evicted')),
})

const FORMS: Readonly<Record<Scope, Form>> = {
  record: object({
    ...{ createdAtMs: time, body: object({ kind: text }), hash: optional(text), bytes: optional(count) },
    readers: optional(texts),
  }),
  member,
  contact: object({ lastSeenMs: time, connectedSinceMs: optional(time) }),
  token: object({
    hash: text,
    createdAtMs: time,
    expiresAtMs: time,
    usesLeft: count,
    uses: list(object({ cluster: text, atMs: time, keyHash: text })),
    cluster: optional(text),
    allowedCIDRs: optional(texts),
    labels: optional(map(text)),
    revokedAtMs: optional(time),
    approve: optional(flag),
    pins: optional(texts),
  }),
  stamp: object({ uid: text, createdAtMs: time, withdrawnAtMs: optional(time) }),
  serviceIp: object({ ip: text, exporters: texts, releasedAtMs: optional(time) }),
  address: object({ service: text }),
  publicKey: object({ cluster: text, endpoints: texts }),
  formerKeys: object({ keys: texts }),
  settings: object({
    clusterset: text,
    globalRange: text,
    clustersetIpRange: text,
    advertise: texts,
    resolved: optional(texts),
    quota: optional(object(quota)),
    accessDefault: optional(oneOf('allow', 'deny')),
    offers: optional(flag),
    timeline: optional(object({ id: text, acceptedAtMs: time })),
  }),
  audit: object({
    event: object({ id: text, atMs: time, act: text, result: oneOf('ok', 'refused', 'failed'), who: object({}) }),
    lost: optional(count),
  }),
  restore: object({ takenAtMs: time, atMs: time, waiting: texts, untilMs: optional(time) }),
  awaited: object({
    sinceMs: time,
    held: list(
      object({ by: text, index: count, podCIDRs: texts, serviceCIDRs: texts, globalCIDRs: texts, labels: map(text) }),
    ),
  }),
  stream: object({ id: text }),
  authority: object({
    current: object(knownAuthority),
    next: optional(
      object({ ...knownAuthority, phase: oneOf('announced', 'switched', 'withdrawn'), phaseSinceMs: time }),
    ),
    removed: list(object({ ...knownAuthority, removedAtMs: time, by: oneOf('finish', 'abort') })),
  }),
  waiting: object({
    ...{ keyHash: text, facts, address: text, sinceMs: time, lastAskedMs: time, expiresAtMs: time, renumbers: texts },
    acceptedAtMs: optional(time),
    refusedAtMs: optional(time),
  }),
  clusterset: object({
    ...{ createdAtMs: time, globalRange: text, clustersetIpRange: text },
    openedAtMs: optional(time),
    removedAtMs: optional(time),
  }),
  migration: object({ t: oneOf('leaving', 'moved', 'arriving', 'arrived'), id: text, peer: text, atMs: time }),
}

/** Whether the text is a scope of this release. */
export function isScope(scope: string): scope is Scope {
  return Object.hasOwn(FORMS, scope)
}

/** Takes the value of a row. Returns its first field that is invalid. Undefined if all are valid. */
export function wrongField(scope: Scope, value: unknown): string | undefined {
  return FORMS[scope](value)
}
