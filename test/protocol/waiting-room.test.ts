/**
 * A member's ledger and a broker with little room, message by message: no stored record is ever lost, nothing waits
 * that would fit, and the member does not retry endlessly.
 */
import fc from 'fast-check'
import t from 'tap'
import {
  DEFAULT_MEMBER_QUOTA,
  type MemberQuota,
  type QuotaUse,
  bodyBytes,
  isQuotaReason,
  quotaExcess,
} from '../../model/member-quota.ts'
import type { MemberRecord } from '../../model/records.ts'
import { contentHash, memberKey, memberKeyText } from '../../protocol/codec/content-hash.ts'
import { PublishLedger } from '../../protocol/sessions/publish-ledger.ts'
import { anExport, aSlice } from '../broker/support/harness.ts'

/** Implements the rules of the broker's quota in the shortest way. */
class TinyBroker {
  readonly held = new Map<string, MemberRecord>()
  limit: MemberQuota = DEFAULT_MEMBER_QUOTA
  puts = 0

  get used(): QuotaUse {
    const bodies = [...this.held.values()].map(({ body }) => bodyBytes(body))
    return { records: bodies.length, bytes: bodies.reduce((sum, one) => sum + one, 0) }
  }

  excess(record: MemberRecord): string | undefined {
    const old = this.held.get(keyOf(record))
    const more = {
      records: old === undefined ? 1 : 0,
      bytes: bodyBytes(record.body) - (old === undefined ? 0 : bodyBytes(old.body)),
    }
    return quotaExcess({ limit: this.limit, used: this.used }, more, old !== undefined || this.#hasService(record))
  }

  #hasService({ namespace, body }: MemberRecord): boolean {
    return body.kind === 'EndpointSlice' && this.held.has(`ServiceExport/${namespace}/${body.service}`)
  }
}

function keyOf(record: MemberRecord): string {
  return memberKeyText(memberKey(record))
}

function hashOf(record: MemberRecord): string {
  return Buffer.from(contentHash(record)).toString('hex')
}

/** A sequence of streams between the two, without a wire. */
class Pair {
  ledger = new PublishLedger()
  readonly broker = new TinyBroker()
  #sequence = 0

  connect(): void {
    const { ledger, broker } = this
    const declaration = ledger.declare()
    const declared = new Map(declaration.entries.map(({ key, hash }) => [memberKeyText(key), { key, hash }]))
    for (const key of broker.held.keys()) if (!declared.has(key)) broker.held.delete(key)
    const needed = [...declared].filter(([text, { hash }]) => {
      const stored = broker.held.get(text)
      return stored === undefined || hashOf(stored) !== Buffer.from(hash).toString('hex')
    })
    ledger.begin(
      declaration,
      needed.map(([, { key }]) => key),
    )
    this.report()
  }

  report(): void {
    const { limit, used } = this.broker
    this.ledger.takeQuota({ limit, used, isSlowed: false }, 'milano')
  }

  /** Runs until nothing is left to send. The broker reports after every removal, and whenever it has more room. */
  settle(): void {
    for (let i = 0; i < 10_000; i += 1) {
      const change = this.ledger.next((this.#sequence += 1))
      if (change === undefined) return
      const before = this.broker.used
      if (change.t === 'remove') this.broker.held.delete(memberKeyText(change.key))
      else this.#put(change.record)
      this.ledger.acknowledge(this.#sequence)
      const { used } = this.broker
      if (used.records < before.records || used.bytes < before.bytes) this.report()
    }
    throw new Error('it never settles')
  }

  #put(record: MemberRecord): void {
    this.broker.puts += 1
    const excess = this.broker.excess(record)
    if (excess === undefined) return void this.broker.held.set(keyOf(record), record)
    if (!isQuotaReason(excess)) throw new Error(excess)
    const kept = this.broker.held.has(keyOf(record))
    this.ledger.refuse(this.#sequence, { field: 'records', reason: excess, message: 'full' }, kept)
  }
}

type Step =
  | { readonly t: 'want'; readonly services: readonly (readonly [index: number, size: number, slices: number])[] }
  | { readonly t: 'limit'; readonly records: number; readonly bytes: number }
  | { readonly t: 'reconnect' | 'restart' }

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({
      t: fc.constant('want' as const),
      services: fc.uniqueArray(fc.tuple(fc.nat(7), fc.integer({ min: 0, max: 900 }), fc.nat(2)), {
        selector: ([index]) => index,
        maxLength: 8,
      }),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      t: fc.constant('limit' as const),
      records: fc.integer({ min: 0, max: 12 }),
      bytes: fc.integer({ min: 0, max: 6000 }),
    }),
  },
  { weight: 2, arbitrary: fc.record({ t: fc.constantFrom('reconnect', 'restart') }) },
)

function recordsOf(services: Extract<Step, { t: 'want' }>['services']): Map<string, MemberRecord> {
  const sorted = [...services].sort(([a], [b]) => a - b)
  const records = sorted.flatMap(([index, size, slices]) => {
    const name = `s${index}`
    const own = anExport(name, { exportedAnnotations: { 'x/y': 'x'.repeat(size) } })
    const parts = Array.from({ length: slices }, (_, i) => ({ ...aSlice(name, '10.42.0.1'), name: `${name}-${i}` }))
    return [own, ...parts]
  })
  return new Map(records.map((record) => [keyOf(record), record]))
}

t.test('a ledger and little room', async (t) => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 25 }), (steps) => {
      const pair = new Pair()
      let wanted = new Map<string, MemberRecord>()
      pair.ledger.setWanted(wanted)
      pair.connect()
      for (const one of steps) {
        const before = new Set(pair.broker.held.keys())
        if (one.t === 'want') pair.ledger.setWanted((wanted = recordsOf(one.services)))
        else if (one.t === 'limit') {
          pair.broker.limit = { ...DEFAULT_MEMBER_QUOTA, records: one.records, bytes: one.bytes }
          pair.report()
        } else {
          if (one.t === 'restart') pair.ledger = new PublishLedger()
          pair.ledger.setWanted(wanted)
          pair.connect()
        }
        pair.settle()
        const asked = pair.broker.puts
        check(pair, wanted, before)
        pair.ledger.setWanted(new Map(wanted))
        pair.settle()
        if (pair.broker.puts > asked) throw new Error('what does not fit is asked again')
      }
    }),
    { numRuns: 300 },
  )
  t.pass('no counterexample')
})

function check({ ledger, broker }: Pair, wanted: ReadonlyMap<string, MemberRecord>, before: ReadonlySet<string>): void {
  let waiting = 0
  for (const key of broker.held.keys()) if (!wanted.has(key)) throw new Error(`${key} is not wanted any more`)
  for (const [key, record] of wanted) {
    const state = ledger.state(key)
    const held = broker.held.get(key)
    if (before.has(key) && held === undefined) throw new Error(`${key} was held, is wanted, and is gone`)
    if (state.t === 'pending') throw new Error(`${key} is pending`)
    if (state.t === 'refused') waiting += 1
    if (state.t === 'stored' && (held === undefined || hashOf(held) !== hashOf(record)))
      throw new Error(`${key} is not`)
    if (state.t !== 'refused' || record.body.kind !== 'ServiceExport') continue
    if (held === undefined && broker.excess(record) === undefined) throw new Error(`${key} waits, and there is room`)
  }
  if (ledger.waiting !== waiting) throw new Error(`${ledger.waiting} wait, ${waiting} are refused`)
}
