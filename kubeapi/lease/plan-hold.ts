/**
 * What one process knows of one Lease (coordination.k8s.io/v1), when it may take the Lease or must renew it, and what
 * it then writes. Pure.
 *
 *   unread ─► absent, free, own, others ─► …      each read and each write gives the next state
 *     ▲                            │
 *     └───────── forgotten ◄───────┘
 *
 * A Lease has lapsed if this process saw no change of it for the whole duration, by its own monotonic clock. The times
 * in a Lease come from the clocks of other machines and are never compared.
 */
import type { StoredLease } from '../kubeapi.ts'

/** The part of a Lease that decides whether another process may take it. */
export interface HeldLease {
  /** Empty if no process holds it. */
  readonly holder: string
  /** When its present content was first seen. Monotonic milliseconds. */
  readonly changedMs: number
  readonly durationMs: number
}

interface Known extends HeldLease {
  readonly stored: StoredLease
}

interface Written {
  /** When the store confirmed the last write of this process, since when it saw no other holder. */
  readonly writtenMs: number | undefined
}

/**
 * `unread`: the store has not answered yet, or its answers no longer count. `free`: no process holds the Lease. `own`:
 * this process holds it.
 */
export type HoldState =
  | ({ readonly is: 'unread' } & Written)
  | ({ readonly is: 'absent' } & Written)
  | ({ readonly is: 'free' } & Known)
  | ({ readonly is: 'own' } & Known & Written)
  | ({ readonly is: 'others' } & Known)

/** Times are monotonic milliseconds. `read` and `written` happen when the store has answered. */
export type HoldEvent =
  | { readonly is: 'read'; readonly lease: StoredLease | undefined; readonly nowMs: number }
  | { readonly is: 'written'; readonly lease: StoredLease; readonly nowMs: number }
  | { readonly is: 'forgotten' }

export interface HoldFacts {
  /** Differs from that of every other process that may take the Lease. */
  readonly identity: string
  /** Duration of a Lease that states none. */
  readonly unstatedMs: number
}

/** The state that follows `state` after `event`, as the process with `identity` sees it. */
export function holdAfter(state: HoldState, event: HoldEvent, { identity, unstatedMs }: HoldFacts): HoldState {
  const writtenMs = event.is === 'written' ? event.nowMs : writtenIn(state)
  if (event.is === 'forgotten') return { is: 'unread', writtenMs }
  const { lease: stored, nowMs } = event
  if (stored === undefined) return { is: 'absent', writtenMs }
  const before = knownIn(state)
  const holder = holderOf(stored)
  const seconds = stored.spec?.leaseDurationSeconds ?? 0
  const known = {
    stored,
    holder,
    changedMs: before !== undefined && hasSameContent(before.stored, stored) ? before.changedMs : nowMs,
    durationMs: seconds > 0 ? seconds * 1000 : unstatedMs,
  }
  if (holder === '') return { is: 'free', ...known }
  return holder === identity ? { is: 'own', ...known, writtenMs } : { is: 'others', ...known }
}

/** The Lease in a state. Undefined if there is none, or if it was not read. */
export function knownIn(state: HoldState): Known | undefined {
  return state.is === 'unread' || state.is === 'absent' ? undefined : state
}

/** When this process last wrote the Lease. Undefined if another process, or none, was its holder since. */
export function writtenIn(state: HoldState): number | undefined {
  return state.is === 'free' || state.is === 'others' ? undefined : state.writtenMs
}

/** Empty if no process holds the Lease, or if there is none. */
export function holderOf(lease: StoredLease | undefined): string {
  return lease?.spec?.holderIdentity ?? ''
}

/** Why another process than its holder may take a Lease. Undefined if it may not. */
export function whyVacant(lease: HeldLease | undefined, nowMs: number): 'free' | 'lapsed' | undefined {
  if (lease === undefined || lease.holder === '') return 'free'
  return hasLapsed(lease, nowMs) ? 'lapsed' : undefined
}

/** True if the Lease was not renewed for its duration. */
export function hasLapsed(
  { changedMs, durationMs }: Pick<HeldLease, 'changedMs' | 'durationMs'>,
  nowMs: number,
): boolean {
  return nowMs - changedMs >= durationMs
}

/** True if a holder that renews every `everyMs` renews now. `writtenMs` is its last write, if it knows one. */
export function isRenewalDue(writtenMs: number | undefined, nowMs: number, everyMs: number): boolean {
  return writtenMs === undefined || nowMs - writtenMs >= everyMs
}

/**
 * How long a holder that ends when it cannot renew may go on: `withinMs` after it began its last successful renewal,
 * since others count from a later time. Zero or less if it must end.
 */
export function timeToRenewMs(renewedMs: number, nowMs: number, withinMs: number): number {
  return renewedMs + withinMs - nowMs
}

/** A random pause, so that two candidates do not collide repeatedly. `random` is at least 0 and less than 1. */
export function candidatePauseMs(retryMs: number, random: number): number {
  return retryMs / 2 + (retryMs / 2) * random
}

/** Adds to the metadata of a Lease what its kind of holder writes there. */
export type LeaseMarks = (metadata: StoredLease['metadata']) => StoredLease['metadata']

export interface LeaseTerms {
  readonly name: string
  /** Empty if no process is to hold it. */
  readonly holder: string
  readonly durationMs: number
  /** Whether a holder begins: the time of acquisition is set, and the change is counted. */
  readonly begins: boolean
  /** The present time in milliseconds since 1970. */
  readonly nowMs: number
  readonly marks?: LeaseMarks | undefined
}

/** The next version of `stored`, or a new Lease. */
export function leaseAfter(stored: StoredLease | undefined, terms: LeaseTerms): StoredLease {
  const { name, holder, durationMs, begins, marks = unmarked } = terms
  const now = microTime(terms.nowMs)
  const before = stored?.spec
  const transitions = before?.leaseTransitions ?? 0
  return {
    apiVersion: 'coordination.k8s.io/v1',
    kind: 'Lease',
    metadata: marks(stored?.metadata ?? { name }),
    spec: {
      ...(begins ? {} : before),
      holderIdentity: holder,
      leaseDurationSeconds: Math.ceil(durationMs / 1000),
      acquireTime: (begins ? undefined : before?.acquireTime) ?? now,
      renewTime: now,
      leaseTransitions: stored !== undefined && begins ? transitions + 1 : transitions,
    },
  }
}

function hasSameContent(a: StoredLease, b: StoredLease): boolean {
  return JSON.stringify(a.spec ?? {}) === JSON.stringify(b.spec ?? {})
}

function unmarked(metadata: StoredLease['metadata']): StoredLease['metadata'] {
  return metadata
}

/** Formats a time as metav1.MicroTime. */
function microTime(ms: number): string {
  return new Date(ms).toISOString().replace('Z', '000Z')
}
