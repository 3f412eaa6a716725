/**
 * Which certificate of a member may be used: stories on the pure rule, then properties that hold for every sequence.
 */
import fc from 'fast-check'
import t from 'tap'
import type { MemberRow } from '../../../broker/store/rows.ts'
import {
  type CertificatePeer,
  MAX_PROCESSES,
  OVERLAP_MS,
  certificateValidity,
  mayBeUsed,
} from '../../../broker/identity/succession.ts'

const HOUR = 3_600_000
const DAY = 24 * HOUR

function certificate(
  serial: string,
  issuedAtMs: number,
  renews?: string,
): Required<Omit<CertificatePeer, 'renews' | 'authority' | 'process'>> & CertificatePeer {
  return { serial, issuedAtMs, expiresAtMs: issuedAtMs + DAY, ...(renews === undefined ? {} : { renews }) }
}

function member(first: CertificatePeer, change: Partial<MemberRow> = {}): MemberRow {
  const { serial, issuedAtMs = 0, expiresAtMs = DAY } = first
  return {
    index: 1,
    facts: { podCIDRs: [], serviceCIDRs: [], labels: {}, version: '' },
    translated: false,
    blocks: {},
    joinedAtMs: issuedAtMs,
    lastSeenMs: 0,
    certificates: [{ serial, issuedAtMs, expiresAtMs }],
    complete: false,
    ...change,
  }
}

/** A member's row as a broker keeps it. */
class Kept {
  row: MemberRow
  constructor(row: MemberRow) {
    this.row = row
  }
  show(peer: CertificatePeer, nowMs: number): string {
    const validity = certificateValidity(this.row, peer, nowMs)
    if ('row' in validity) this.row = validity.row ?? this.row
    return validity.t
  }
  /** Shows a certificate as the process of this name. */
  by(process: string, peer: CertificatePeer, nowMs: number): string {
    return this.show({ ...peer, process }, nowMs)
  }
}

const first = certificate('a1', 0)

t.test('a renewal whose answer is lost costs nothing, however often', async (t) => {
  const kept = new Kept(member(first))
  t.equal(kept.show(first, 23 * HOUR), 'inUse', 'nothing was written down of what was issued')
  const second = certificate('a3', 16 * HOUR, 'a1')
  t.equal(kept.show(second, 16 * HOUR), 'firstUse')
  t.equal(kept.show(second, 16 * HOUR), 'inUse')
  t.equal(kept.show(first, 16 * HOUR + OVERLAP_MS - 1), 'overlap')
  t.equal(kept.show(first, 16 * HOUR + OVERLAP_MS), 'superseded')
  t.equal(
    kept.show(certificate('a2', 16 * HOUR, 'a1'), 17 * HOUR),
    'superseded',
    'the lost one: nobody has it honestly',
  )
  t.equal(kept.show(first, 25 * HOUR), 'expired')
})

t.test('a member that was away until its first certificate had ended comes with the second', async (t) => {
  const kept = new Kept(member(first))
  t.equal(kept.show(certificate('a2', 16 * HOUR, 'a1'), 30 * HOUR), 'firstUse')
})

t.test(
  'two agents that renew at once: both are taken until the overlap ends, and who goes on with either afterwards is two',
  async (t) => {
    const kept = new Kept(member(first))
    const [one, other] = [certificate('b1', HOUR, 'a1'), certificate('b2', HOUR, 'a1')]
    t.equal(kept.show(one, HOUR), 'firstUse')
    t.equal(kept.show(other, HOUR + 1000), 'firstUse')
    t.equal(kept.show(one, HOUR + 60_000), 'firstUse')
    t.equal(kept.show(one, HOUR + OVERLAP_MS), 'inUse')
    t.equal(kept.show(one, 20 * HOUR), 'inUse', 'the other goes on with what is stored')
    t.equal(kept.show(other, 20 * HOUR - 60_000), 'superseded', 'no later than the first overlap')
    t.equal(kept.show(other, 20 * HOUR - 1), 'superseded', 'one that was suspended looks into its store now')
    t.equal(kept.show(one, 20 * HOUR - 1), 'inUse')
    t.equal(kept.show(other, 20 * HOUR), 'forked')
    for (let hour = 20; hour < 60; hour += 1)
      for (const shown of [first, one, other, certificate('b3', hour * HOUR, 'b1')])
        t.notOk(mayBeUsed(certificateValidity(kept.row, shown, hour * HOUR)), 'neither is preferred')
  },
)

t.test(
  'a hoard that is used in time pushes nothing off the list: more at once than there are agents is a fork',
  async (t) => {
    const kept = new Kept(member(first))
    t.equal(kept.show(certificate('b0', HOUR, 'a1'), HOUR), 'firstUse', 'the owner')
    const said = Array.from({ length: 20 }, (_, n) =>
      kept.show(certificate(`c${n}`, HOUR, 'a1'), HOUR + 1000 * (n + 1)),
    )
    t.same(said.slice(0, 3), ['firstUse', 'firstUse', 'firstUse'])
    t.same([...new Set(said.slice(3))], ['forked'])
    t.equal(kept.show(certificate('b0', HOUR, 'a1'), HOUR + 60_000), 'forked')
  },
)

t.test('an earlier copy ends nothing: it is refused, and the owner goes on', async (t) => {
  const kept = new Kept(member(first))
  const [second, third] = [certificate('a2', HOUR, 'a1'), certificate('a3', 2 * HOUR, 'a2')]
  t.equal(kept.show(second, HOUR), 'firstUse')
  t.equal(kept.show(third, 2 * HOUR), 'firstUse')
  for (const copy of [first, second, certificate('x1', HOUR, 'a1')]) t.equal(kept.show(copy, 3 * HOUR), 'superseded')
  t.equal(kept.show(third, 3 * HOUR), 'inUse')
})

t.test('after its end, the certificate in use and a renewal of it can still be renewed, no other can', (t) => {
  const grace = 30 * DAY
  const kept = new Kept(member(first))
  const [b1, b2] = [certificate('b1', HOUR, 'a1'), certificate('b2', 2 * HOUR, 'b1')]
  kept.show(b1, HOUR)
  kept.show(b2, 2 * HOUR)
  const end = b2.expiresAtMs
  const lost = certificate('b3', 18 * HOUR, 'b2')
  const table: readonly [shown: CertificatePeer, atMs: number, graceMs: number, want: string][] = [
    [b2, end, 0, 'expired'],
    [b2, end, grace, 'inUse'],
    [b2, end + grace - 1, grace, 'inUse'],
    [b2, end + grace, grace, 'expired'],
    [lost, end + 20 * DAY, grace, 'firstUse'],
    [lost, end + 20 * DAY, 0, 'expired'],
    [b1, end, grace, 'superseded'],
    [first, end, grace, 'superseded'],
    [certificate('x1', HOUR, 'a1'), 20 * DAY, grace, 'superseded'],
    [certificate('y1', -HOUR, 'y0'), 10 * DAY, grace, 'foreign'],
  ]
  for (const [shown, atMs, graceMs, want] of table)
    t.equal(certificateValidity(kept.row, shown, atMs, graceMs).t, want, `${shown.serial} at ${atMs / HOUR} h`)
  for (const change of [{ rekeyedAtMs: 5 }, { forkedAtMs: 5 }])
    t.notOk(mayBeUsed(certificateValidity({ ...kept.row, ...change }, b2, end, grace)), Object.keys(change).join())
  t.end()
})

t.test('whoever shows expired certificates for weeks, the one in use stays renewable', (t) => {
  const shown = fc.record({
    serial: fc.constantFrom('a1', 'b1', 'b2', 'x1', 'x2'),
    renews: fc.option(fc.constantFrom('a1', 'b1', 'x1'), { nil: undefined }),
    process: fc.option(fc.constantFrom('owner', 'thief', 'cover'), { nil: undefined }),
    atMs: fc.integer({ min: 2 * DAY, max: 29 * DAY }),
  })
  fc.assert(
    fc.property(fc.array(shown, { maxLength: 30 }), (uses) => {
      let row = new Kept(member(first)).row
      const kept = new Kept(row)
      kept.by('owner', first, 0)
      kept.by('owner', certificate('b1', HOUR, 'a1'), HOUR)
      kept.by('owner', certificate('b2', 2 * HOUR, 'b1'), 2 * HOUR)
      row = kept.row
      for (const { serial, renews, process, atMs } of uses) {
        const peer = { ...certificate(serial, HOUR, renews), ...(process === undefined ? {} : { process }) }
        const validity = certificateValidity(row, peer, atMs, 30 * DAY)
        if ('row' in validity) row = validity.row ?? row
      }
      return mayBeUsed(certificateValidity(row, certificate('b2', 2 * HOUR, 'b1'), 29 * DAY, 30 * DAY))
    }),
  )
  t.end()
})

const second = certificate('a2', HOUR, 'a1')

t.test('a thief renews first while the owner is away: neither goes on once the owner is back', async (t) => {
  for (const restarted of [false, true]) {
    for (const mark of ['thief', undefined]) {
      const kept = new Kept(member(first))
      t.equal(kept.by('owner', first, 0), 'inUse')
      const thief = { ...second, ...(mark === undefined ? {} : { process: mark }) }
      t.equal(kept.show({ ...first, ...(mark === undefined ? {} : { process: mark }) }, HOUR - 1000), 'inUse')
      t.equal(kept.show(thief, HOUR), 'firstUse')
      const back = restarted ? 'owner, started again' : 'owner'
      t.equal(kept.by(back, first, 5 * HOUR), 'superseded', 'once: an agent that was suspended looks into its store')
      for (let n = 0; n < 3; n += 1)
        t.equal(kept.by(`cover ${n}`, first, 5 * HOUR + n), 'superseded', 'the thief shows it, too')
      t.equal(kept.by(back, first, 5 * HOUR + 30_000), 'superseded')
      t.equal(kept.by(back, first, 5 * HOUR + 60_000), 'forked')
      t.equal(kept.show(thief, 5 * HOUR + 60_000), 'forked')
    }
  }
})

t.test('an old copy ends nothing where the process that had the certificate went over to the next one', async (t) => {
  const kept = new Kept(member(first))
  t.equal(kept.by('owner', first, 0), 'inUse')
  t.equal(kept.by('owner', second, HOUR), 'firstUse')
  for (const process of ['thief', 'another', 'owner'])
    for (let n = 0; n < 20; n += 1) t.equal(kept.by(process, first, 2 * HOUR + n * 60_000), 'superseded')
  t.equal(kept.by('owner', second, 3 * HOUR), 'inUse')
})

t.test('agents of one cluster that take turns are each late once', async (t) => {
  const kept = new Kept(member(first))
  for (const process of ['one', 'two', 'three']) t.equal(kept.by(process, first, 0), 'inUse')
  t.equal(kept.by('two', second, HOUR), 'firstUse')
  t.equal(kept.by('one', first, 3 * HOUR), 'superseded')
  t.equal(kept.by('one', second, 3 * HOUR + 5000), 'inUse', 'it has looked into the store')
  for (let n = 0; n <= MAX_PROCESSES; n += 1)
    t.equal(kept.by('one', first, 3 * HOUR + n), 'superseded', 'it tries again within a minute')
  t.equal(kept.by('three', first, 9 * HOUR), 'superseded', 'and takes the place of no other process')
  t.equal(kept.by('three', second, 9 * HOUR + 5000), 'inUse')
})

t.test('who comes later pushes no process off the list', async (t) => {
  const kept = new Kept(member(first))
  kept.by('owner', first, 0)
  for (let n = 0; n < 50; n += 1) kept.by(`thief ${n}`, first, 1)
  t.equal(kept.row.certificates[0]?.processes?.length, MAX_PROCESSES)
  kept.by('thief 49', second, HOUR)
  kept.by('owner', first, 2 * HOUR)
  for (let n = 0; n < MAX_PROCESSES; n += 1) kept.by(`cover ${n}`, first, 2 * HOUR)
  t.equal(kept.by('owner', first, 2 * HOUR), 'forked', 'a cluster has fewer agents')
})

t.test('a thief who renews again and again pushes the owner off no list', async (t) => {
  const joined = certificate('a1', 0)
  const renewed = certificate('a2', 1000, 'a1')
  for (const own of [joined, renewed]) {
    const kept = new Kept(member(joined))
    if (own === renewed) kept.by('owner, before', joined, 0)
    t.match(kept.by('owner', own, 2000), /inUse|firstUse/)
    let last = own
    for (let n = 0; n < 40; n += 1) {
      const nowMs = HOUR + n * 1000
      const next = certificate(`f${n}`, nowMs, last.serial)
      // In each round, one process shows the last certificate, and a process with a new name shows its renewal.
      kept.by(`thief ${n}`, last, nowMs)
      t.equal(kept.by(`thief ${n + 1}`, next, nowMs), 'firstUse')
      last = next
    }
    t.ok((kept.row.superseded?.length ?? 0) <= 32, 'the list does not grow')
    t.equal(kept.by('owner', own, HOUR + 60_000), 'overlap', 'as where it was renewed once')
    t.equal(kept.by('owner', own, 5 * HOUR), 'superseded')
    t.equal(kept.by('owner', own, 5 * HOUR + 60_000), 'forked')
    t.equal(kept.by('thief', last, 5 * HOUR + 60_000), 'forked')
  }
})

t.test('rows of a broker of an earlier release', async (t) => {
  const listed = ['a1', 'a2', 'a3'].map((serial) => ({ serial, expiresAtMs: DAY }))
  const kept = new Kept(member(first, { certificates: listed }))
  t.equal(kept.show(certificate('a1', 0), 1), 'inUse')
  t.equal(kept.show(certificate('a2', 0), 2), 'firstUse', 'it may be the one that the member has')
  t.equal(kept.show(certificate('a3', 0), 3), 'firstUse')
  t.equal(kept.show(certificate('a1', 0), OVERLAP_MS + 3), 'superseded')
})

t.test('after a restore', async (t) => {
  const restored = { takenAtMs: HOUR, atMs: 50 * HOUR }
  const kept = new Kept(member(first, { restored }))
  t.equal(kept.show(certificate('c2', 32 * HOUR, 'c1'), 50 * HOUR), 'firstUse', 'the latest, which no row knows')
  t.equal(kept.show(certificate('c1', 27 * HOUR, 'a1'), 50 * HOUR + OVERLAP_MS), 'superseded', 'an earlier one')
  t.equal(kept.show(certificate('d1', 51 * HOUR, 'c2'), 51 * HOUR), 'firstUse')
  t.equal(kept.show(certificate('c3', 33 * HOUR, 'c2'), 52 * HOUR), 'superseded')
})

t.test('whose it is', async (t) => {
  const kept = new Kept(member(certificate('e1', HOUR)))
  t.equal(kept.show(certificate('a1', 0), HOUR), 'foreign', 'of a membership before')
  t.equal(kept.show(certificate('a2', HOUR - 1000, 'a1'), HOUR), 'foreign')
  t.equal(new Kept(member(first, { rekeyedAtMs: 5 })).show(first, 6), 'rekeyed')
})

t.test('a member that keeps what it stores is never shut out, whatever answers are lost', async () => {
  const step = fc.record({
    waitMs: fc.integer({ min: 0, max: 3 * HOUR }),
    does: fc.constantFrom('use', 'renew', 'renew, answer lost', 'renew, stored, not used'),
  })
  const run = (steps: readonly { waitMs: number; does: string }[]): void => {
    let [now, made] = [0, 0]
    let stored = first
    const kept = new Kept(member(first))
    for (const { waitMs, does } of steps) {
      now += waitMs
      if (stored.expiresAtMs <= now) return
      if (!['inUse', 'firstUse'].includes(kept.show(stored, now))) throw new Error(`shut out at ${now}`)
      if (does === 'use') continue
      const next = certificate(`f${(made += 1)}`, now, stored.serial)
      if (does === 'renew, answer lost') continue
      stored = next
      if (does === 'renew') kept.show(stored, now)
    }
  }
  fc.assert(fc.property(fc.array(step, { maxLength: 40 }), run))
})

t.test(
  'of two that have the same certificate and go their own ways, one is shut out at the end of an overlap',
  async () => {
    const step = fc.record({
      who: fc.constantFrom(0, 1),
      waitMs: fc.integer({ min: 0, max: OVERLAP_MS }),
      renews: fc.boolean(),
    })
    const run = (steps: readonly { who: number; waitMs: number; renews: boolean }[]): void => {
      const hands = [first, first]
      const kept = new Kept(member(first))
      let [now, made] = [0, 0]
      const uses = (who: number): boolean => {
        const shown = hands[who] ?? first
        return ['inUse', 'firstUse', 'overlap'].includes(kept.show(shown, now))
      }
      for (const { who, waitMs, renews } of steps) {
        now += waitMs
        if (!uses(who) || !renews || kept.show(hands[who] ?? first, now) === 'overlap') continue
        hands[who] = certificate(`f${(made += 1)}`, now, hands[who]?.serial)
        uses(who)
      }
      if (hands[0] === hands[1]) return
      // Neither of the two renews from here on.
      now += OVERLAP_MS
      const good = hands.filter((one) => mayBeUsed(certificateValidity(kept.row, one, now)))
      if (good.length > 1) throw new Error(`both go on: ${JSON.stringify(kept.row)}`)
    }
    fc.assert(fc.property(fc.array(step, { maxLength: 40 }), run), { numRuns: 500 })
  },
)
