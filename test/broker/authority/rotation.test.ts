/** The steps of a rotation on a store, and a model of members that a rotation without force must never cut off. */
import fc from 'fast-check'
import t from 'tap'
import { knownAuthority } from '../../../broker/identity/authority-keys.ts'
import { acceptedAuthorities, bundleOf, signingAuthority } from '../../../broker/identity/plan-rotation.ts'
import {
  abortRotation,
  advance,
  announce,
  dueAdvance,
  finishRotation,
  memberStates,
  requireAuthority,
} from '../../../broker/identity/rotation.ts'
import { openMemoryLog } from '../../../broker/store/memory-log.ts'
import type { RecordLog, Transaction } from '../../../broker/store/record-log.ts'
import { confirmedRow } from '../../../broker/identity/succession.ts'
import { AUTHORITY_KEY, type KnownAuthority, type MemberRow } from '../../../broker/store/rows.ts'
import { createKey } from '../../../protocol/identity/keys.ts'
import { createCa } from '../../../protocol/identity/x509.ts'
import { messageOf } from '../../support/failure.ts'

const DAY = 24 * 3_600_000
const START = Date.UTC(2026, 0, 1)

async function authority(clusterset = 'demo', nowMs = START): Promise<KnownAuthority> {
  return knownAuthority((await createCa({ clusterset, key: createKey(), nowMs })).certificate, nowMs)
}

const POOL = await Promise.all(Array.from({ length: 8 }, () => authority()))
const [A, B, C] = POOL as [KnownAuthority, KnownAuthority, KnownAuthority]

function memberRow(change: Partial<MemberRow> = {}): MemberRow {
  return {
    index: 1,
    facts: { podCIDRs: [], serviceCIDRs: [], labels: {}, version: '' },
    translated: false,
    blocks: {},
    joinedAtMs: START,
    lastSeenMs: START,
    certificates: [{ serial: '1', expiresAtMs: START + DAY }],
    complete: true,
    ...change,
  }
}

async function store(members: Readonly<Record<string, MemberRow>> = {}): Promise<RecordLog> {
  const log = openMemoryLog()
  await log.transact((tx) => {
    tx.put('authority', AUTHORITY_KEY, { current: A, removed: [] })
    for (const [id, row] of Object.entries(members)) tx.put('member', id, row)
  })
  return log
}

const init = { clusterset: 'demo', nowMs: START, force: false }

t.test('what may be announced', async (t) => {
  const log = await store()
  const rows: [string, KnownAuthority, string][] = [
    ['the one in use', A, 'is already in use'],
    ['another clusterset', await authority('other'), 'cannot be the next one: it belongs to clusterset "other"'],
    [
      'of the future',
      await authority('demo', START + DAY),
      'cannot be the next one: it is not valid before 2026-01-01T23:55:00Z',
    ],
    ['ended', await authority('demo', START - 4000 * DAY), 'cannot be the next one: it expired at'],
  ]
  for (const [name, wanted, want] of rows)
    t.match(await messageOf(log.transact((tx) => announce(tx, wanted, init))), want, name)
  const force = { ...init, force: true }
  t.match(await messageOf(log.transact((tx) => announce(tx, B, force))), 'no authority is announced', 'forced at once')

  t.match(await log.transact((tx) => announce(tx, B, init)), { repeated: false, row: { next: { phase: 'announced' } } })
  t.match(await log.transact((tx) => announce(tx, B, init)), { repeated: true })
  t.match(await log.transact((tx) => announce(tx, undefined, init)), { repeated: true })
  t.match(await messageOf(log.transact((tx) => announce(tx, C, init))), /is already announced: .*finish.*abort/)
  await log.transact((tx) => abortRotation(tx, START))
  t.match(await messageOf(log.transact((tx) => announce(tx, B, init))), 'it was removed earlier')
})

t.test('who is waited for', async (t) => {
  const trusts = [A.fingerprint, B.fingerprint]
  const nextCertificate = [{ serial: '2', expiresAtMs: START + DAY, authority: B.fingerprint }]
  const handedOut = { serial: '3', expiresAtMs: START + DAY, authority: A.fingerprint, bundle: trusts }
  const log = await store({
    old: memberRow(),
    knows: memberRow({ trusts }),
    uses: memberRow({ trusts, certificates: nextCertificate }),
    renewed: memberRow({ trusts, certificates: nextCertificate, handedOut }),
    ended: memberRow({ certificates: [{ serial: '1', expiresAtMs: START }] }),
    unused: memberRow({ certificates: [{ serial: '1', expiresAtMs: START }], issuedUntilMs: START + 1 }),
    left: memberRow({ departedAtMs: START, departure: 'left' }),
    rekeyed: memberRow({ rekeyedAtMs: START, certificates: [] }),
  })
  await log.transact((tx) => announce(tx, B, init))
  const row = requireAuthority(log)
  const states = memberStates(log, row, START).map(({ id, knowsNext, usesCurrent, usesNext }) => {
    return `${id}${knowsNext ? ' knows' : ''}${usesCurrent ? ' current' : ''}${usesNext ? ' next' : ''}`
  })
  t.strictSame(states, [
    'knows knows current',
    'old current',
    'renewed knows current next',
    'unused current',
    'uses knows next',
  ])
  t.equal(dueAdvance(log, START), undefined, 'old and unused have not got it')
  t.equal(dueAdvance(log, START + DAY), 'switched', 'their certificates have ended')
  t.match(
    await messageOf(log.transact((tx) => finishRotation(tx, { force: true }, START))),
    /the new authority cannot sign yet: old does not have the new authority yet, .*; unused does not have .*renews on its own schedule/,
  )
  await log.transact((tx) => announce(tx, undefined, { ...init, force: true }))
  const refused = await messageOf(log.transact((tx) => finishRotation(tx, { force: false }, START)))
  t.match(refused, /the old authority is still in use: knows uses a certificate of the old authority/)
  t.notMatch(refused, /; uses uses/)
})

interface Member {
  certificate: { serial: string; authority: string; expiresAtMs: number }
  bundle: readonly string[]
  /** The answer of the broker that is still under way; undefined when there is none or it was lost. */
  answer: { certificate: Member['certificate']; bundle: readonly string[] } | undefined
}

type Act =
  | { readonly t: 'rotate' | 'finish' | 'abort' | 'advance' }
  /** All members renew and use the new certificate, so that the later phases occur often. */
  | { readonly t: 'renewAll' }
  | { readonly t: 'renew' | 'receive' | 'lose' | 'use'; readonly member: number }
  | { readonly t: 'wait'; readonly hours: number }

const decisions = fc.constantFrom<Act>({ t: 'rotate' }, { t: 'finish' }, { t: 'abort' })
const ofAll = fc.constantFrom<Act>({ t: 'advance' }, { t: 'renewAll' })
const ofOne = fc.record({
  t: fc.constantFrom('renew' as const, 'receive' as const, 'lose' as const, 'use' as const),
  member: fc.nat(2),
})
const waits = fc.record({ t: fc.constant('wait' as const), hours: fc.integer({ min: 1, max: 10 }) })

/** Long sequences with few waits, so that rotations reach each phase while older certificates are still valid. */
const acts: fc.Arbitrary<Act[]> = fc.array(
  fc.oneof(
    { weight: 3, arbitrary: decisions },
    { weight: 4, arbitrary: ofAll },
    { weight: 3, arbitrary: ofOne },
    { weight: 1, arbitrary: waits },
  ),
  { minLength: 10, maxLength: 80, size: 'max' },
)

/** The store as a broker keeps it, and three members with the certificates that they received. */
class World {
  readonly log: RecordLog
  readonly members: Member[]
  nowMs = START
  #serial = 10
  #next = 1

  constructor(log: RecordLog) {
    this.log = log
    this.members = [0, 1, 2].map(() => ({
      certificate: { serial: '1', authority: A.fingerprint, expiresAtMs: START + DAY },
      bundle: [A.fingerprint],
      answer: undefined,
    }))
  }

  async do(act: Act): Promise<void> {
    const { log, nowMs } = this
    const quietly = (work: (tx: Transaction) => unknown): Promise<unknown> => log.transact(work).catch(() => undefined)
    switch (act.t) {
      case 'rotate': {
        const wanted = requireAuthority(log).next === undefined ? POOL[this.#next++ % POOL.length] : undefined
        await quietly((tx) => announce(tx, wanted, { ...init, nowMs }))
        return
      }
      case 'finish':
        await quietly((tx) => finishRotation(tx, { force: false }, nowMs))
        return
      case 'abort':
        await quietly((tx) => abortRotation(tx, nowMs))
        return
      case 'advance': {
        const due = dueAdvance(log, nowMs)
        if (due !== undefined) await quietly((tx) => advance(tx, due, nowMs))
        return
      }
      case 'wait':
        this.nowMs += act.hours * 3_600_000
        return
      case 'renewAll':
        for (const [member] of this.members.entries())
          for (const t of ['renew', 'receive', 'use'] as const) await this.do({ t, member })
        return
      case 'renew':
        return this.#renew(act.member)
      case 'lose':
        this.#member(act.member).answer = undefined
        return
      case 'receive': {
        const member = this.#member(act.member)
        if (member.answer !== undefined) Object.assign(member, member.answer, { answer: undefined })
        return
      }
      case 'use':
        return this.#use(act.member)
    }
  }

  alive(): Member[] {
    return this.members.filter(({ certificate }) => certificate.expiresAtMs > this.nowMs)
  }

  #member(at: number): Member {
    return this.members[at] as Member
  }

  /** Renews a certificate, and first uses the current one, because a renewal shows it. */
  async #renew(at: number): Promise<void> {
    const member = this.#member(at)
    if (!this.alive().includes(member)) return
    await this.#use(at)
    const row = requireAuthority(this.log)
    this.#serial += 1
    const expiresAtMs = this.nowMs + DAY
    const certificate = { serial: String(this.#serial), authority: signingAuthority(row).fingerprint, expiresAtMs }
    const bundle = bundleOf(row).map(({ fingerprint }) => fingerprint)
    member.answer = { certificate, bundle }
    await this.log.transact((tx) => {
      const kept = tx.get('member', `m${at}`)
      if (kept === undefined) return
      const handedOut = { ...certificate, bundle }
      tx.put('member', `m${at}`, { ...kept, handedOut, issuedUntilMs: Math.max(kept.issuedUntilMs ?? 0, expiresAtMs) })
    })
  }

  async #use(at: number): Promise<void> {
    const { certificate } = this.#member(at)
    await this.log.transact((tx) => {
      const kept = tx.get('member', `m${at}`)
      if (kept === undefined) return
      const used = { ...kept, certificates: [certificate] }
      tx.put('member', `m${at}`, confirmedRow(used, certificate) ?? used)
    })
  }
}

t.test('whatever is lost, late or asked for again: nobody whose certificate holds is cut off', async (t) => {
  await fc.assert(
    fc.asyncProperty(acts, async (list) => {
      const log = await store({ m0: memberRow(), m1: memberRow(), m2: memberRow() })
      const world = new World(log)
      for (const act of list) {
        await world.do(act)
        const row = requireAuthority(log)
        const signing = signingAuthority(row).fingerprint
        const accepted = acceptedAuthorities(row).map(({ fingerprint }) => fingerprint)
        for (const { certificate, bundle, answer } of world.alive()) {
          if (!bundle.includes(signing)) throw new Error('a member does not trust who serves')
          if (!accepted.includes(certificate.authority)) throw new Error('the certificate of a member is refused')
          // The certificate in an answer under way was issued under a valid authority, and the member may use it as
          // well.
          if (answer !== undefined && !accepted.includes(answer.certificate.authority))
            throw new Error('what a member is about to store would be refused')
        }
      }
    }),
    { numRuns: 400 },
  )
  t.pass()
})
