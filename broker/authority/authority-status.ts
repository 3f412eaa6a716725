/** The authorities of a clusterset as an operator sees them. Pure. */
import type { LogView } from '../log/record-log.ts'
import type { AuthorityRow, KnownAuthority } from '../state/state.ts'
import { factsOf } from './known-authority.ts'
import { signingAuthority } from './plan-rotation.ts'
import { memberStates, waitingNow, waitsText } from './rotation.ts'

export interface AuthorityFacts {
  /** SHA-256 of its certificate, hex. */
  readonly fingerprint: string
  readonly notBefore: string
  readonly notAfter: string
  /** It signs members and the broker's own certificate now. */
  readonly signs: boolean
}

export interface AuthorityStatus {
  /** `steady`: there is one. */
  readonly phase: 'steady' | 'announced' | 'switched' | 'withdrawn'
  readonly since: string
  readonly current: AuthorityFacts
  readonly next?: AuthorityFacts
  /** `finish` would be refused, or what comes by itself does not come yet. */
  readonly waitsFor: {
    readonly members: readonly { readonly id: string; readonly why: string }[]
    /** Ids of tokens that name the old authority alone. */
    readonly tokens: readonly string[]
  }
  readonly members: readonly {
    readonly id: string
    readonly knowsNext: boolean
    readonly uses: 'current' | 'next' | 'both' | 'other'
    /** It learns of another authority at once; false: with its next renewal, as members of earlier releases do. */
    readonly follows: boolean
    readonly certificateEnds: string
  }[]
  readonly removed: readonly { readonly fingerprint: string; readonly at: string; readonly by: 'finish' | 'abort' }[]
}

export function authorityStatus(view: LogView, row: AuthorityRow, nowMs: number): AuthorityStatus {
  const { current, next, removed } = row
  const signing = signingAuthority(row)
  const phase = next?.phase ?? 'steady'
  const waiting = waitingNow(view, row, nowMs)
  const facts = (one: KnownAuthority): AuthorityFacts => {
    const { notBeforeMs, notAfterMs } = factsOf(one)
    const signs = one.fingerprint === signing.fingerprint
    return { fingerprint: one.fingerprint, notBefore: time(notBeforeMs), notAfter: time(notAfterMs), signs }
  }
  return {
    phase,
    since: time(next?.phaseSinceMs ?? current.sinceMs),
    current: facts(current),
    ...(next === undefined ? {} : { next: facts(next) }),
    waitsFor: {
      members: waiting.members.map((one) => ({ id: one.id, why: waitsText(one, next?.phase ?? 'announced') })),
      tokens: waiting.tokens,
    },
    members: memberStates(view, row, nowMs).map(({ id, knowsNext, usesCurrent, usesNext, follows, endsAtMs }) => ({
      id,
      knowsNext,
      uses: usesCurrent && usesNext ? 'both' : usesCurrent ? 'current' : usesNext ? 'next' : 'other',
      follows,
      certificateEnds: time(endsAtMs),
    })),
    removed: removed.map(({ fingerprint, removedAtMs, by }) => ({ fingerprint, at: time(removedAtMs), by })),
  }
}

function time(ms: number): string {
  return new Date(ms).toISOString()
}
