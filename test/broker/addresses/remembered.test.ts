/**
 * The broker caches facts about addresses by the rows of its log. Whatever members do, a broker with a warm cache
 * writes the same rows as a broker that has just started.
 */
import { deepStrictEqual } from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { openMemoryLog } from '../../../broker/store/memory-log.ts'
import type { LogView, RecordLog, Transaction } from '../../../broker/store/record-log.ts'
import { reviewAddresses } from '../../../broker/members/member-addresses.ts'
import {
  type JoinDecision,
  changeFacts,
  departMember,
  joinMember,
  lookAtJoin,
} from '../../../broker/members/membership.ts'
import { type WriteContext, putRecord, removeRecord } from '../../../broker/records/record-writes.ts'
import { SCOPES, isLive } from '../../../broker/store/rows.ts'
import type { ClusterId } from '../../../model/ids.ts'
import type { MemberRecord } from '../../../model/records.ts'
import type { ClusterFacts } from '../../../protocol/broker-api.ts'

const RULES: WriteContext['rules'] = {
  globalRange: '244.0.0.0/8',
  clustersetIpRange: '243.0.0.0/16',
  allowedNamespaces: [],
  quota: { records: 1000, bytes: 1_000_000, changes: 1000, streams: 8 },
}

interface Step {
  readonly is: 'join' | 'look' | 'facts' | 'leave' | 'evict' | 'gateway' | 'gone' | 'review'
  readonly cluster: ClusterId
  readonly facts: ClusterFacts
  readonly node: string
  /** The numbers of the current key and of the announced key. The range is small, so that keys collide. */
  readonly keys: readonly [number, number]
  readonly at: number
}

const KINDS: readonly (readonly [Step['is'], number])[] = [
  ['join', 5],
  ['gateway', 8],
  ['facts', 4],
  ['look', 1],
  ['gone', 2],
  ['review', 1],
  ['leave', 1],
  ['evict', 1],
]

const cidr = fc.tuple(fc.integer({ min: 0, max: 15 }), fc.constantFrom(14, 16, 16, 16, 16, 17)).map(([n, length]) => {
  return `10.${length < 16 ? n & ~3 : n}.0.0/${length}`
})
const cidr6 = fc.integer({ min: 0, max: 4 }).map((n) => `fd00:${n}::/48`)
const cidrs = fc.tuple(fc.uniqueArray(cidr, { minLength: 1, maxLength: 2 }), fc.option(cidr6)).map(([four, six]) => {
  return six === null ? four : [...four, six]
})
// Generated objects have the prototype of all objects, as decoded and cloned objects do.
const PLAIN = { noNullPrototype: true }
const facts = fc.record(
  {
    podCIDRs: cidrs,
    serviceCIDRs: fc.tuple(fc.constantFrom('10.96.0.0/16', '10.15.0.0/16'), cidr6),
    neededCIDRs: fc.oneof(
      fc.constantFrom<string[]>([], ['10.3.0.0/16']),
      cidr6.map((six) => [six]),
    ),
    labels: fc.constant({}),
    version: fc.constant('0.1.0'),
  },
  PLAIN,
)
const step: fc.Arbitrary<Step> = fc.record({
  is: fc.oneof(...KINDS.map(([is, weight]) => ({ arbitrary: fc.constant(is), weight }))),
  cluster: fc.constantFrom('berlin', 'oslo', 'paris', 'rome').map((id) => id as ClusterId),
  facts,
  node: fc.constantFrom('a', 'b', 'c'),
  keys: fc.tuple(fc.integer({ min: 0, max: 3 }), fc.integer({ min: 0, max: 3 })),
  at: fc.integer({ min: 0, max: 15 }),
})

function decision({ cluster, facts }: Step): JoinDecision {
  const terms = { serial: cluster, expiresAtMs: 1e12, authority: 'one' }
  return {
    ...{ cluster, facts, allowedCIDRs: [], keyHash: cluster },
    certificate: { ...terms, issuedAtMs: 0 },
    handedOut: { ...terms, bundle: [] },
    ...{ entitled: true, connected: false, membersLimit: 100, renewalGraceMs: 0 },
  }
}

function gatewayName({ cluster, node }: Step): string {
  return `${cluster}.${node}-lane0`
}

function gateway(step: Step): MemberRecord {
  const { cluster, node, keys, at } = step
  const [publicKey, nextPublicKey] = keys.map((n) => Buffer.alloc(32, `${cluster}${n}`).toString('base64'))
  const candidates = [{ kind: 'public', address: `10.${at}.0.9`, port: 4500 }] as const
  const key = {
    publicKey: publicKey ?? '',
    ...(nextPublicKey === publicKey ? {} : { nextPublicKey: nextPublicKey ?? '' }),
  }
  const spec = { cluster, node, lane: 0, ...key, candidates, capabilities: ['wireguard'] }
  return { namespace: '', name: gatewayName(step), body: { kind: 'Endpoint', spec } }
}

function refusedGateway(tx: Transaction, step: Step, context: WriteContext): unknown {
  const refused = putRecord(tx, gateway(step), context)
  reviewAddresses(tx, context)
  return refused
}

function act(tx: Transaction, step: Step): unknown {
  const context: WriteContext = { cluster: step.cluster, rules: RULES, nowMs: 1 }
  if (step.is !== 'join' && step.is !== 'review' && !isLive(tx.get('member', step.cluster))) return 'no member'
  switch (step.is) {
    case 'join':
    case 'look':
      return joinMember(tx, decision(step), context)
    case 'facts':
      return changeFacts(tx, step.facts, context)
    case 'gateway':
      // The broker runs this check in the transaction of the record, as it does for a gateway whose address lies inside
      // the pod range of another cluster.
      return refusedGateway(tx, step, context)
    case 'gone':
      removeRecord(tx, { kind: 'Endpoint', namespace: '', name: gatewayName(step) }, context)
      return undefined
    case 'review':
      reviewAddresses(tx, context)
      return undefined
    case 'leave':
    case 'evict':
      departMember(tx, step.is === 'leave' ? 'left' : 'evicted', context)
      return undefined
  }
}

/** Returns the answer to a step. A refusal is an answer too, and is compared as well. */
async function take(log: RecordLog, step: Step): Promise<unknown> {
  const context: WriteContext = { cluster: step.cluster, rules: RULES, nowMs: 1 }
  try {
    if (step.is === 'look') return await lookAtJoin(log, (tx) => joinMember(tx, decision(step), context))
    return await log.transact((tx) => act(tx, step))
  } catch (error) {
    return String(error)
  }
}

function rowsOf(log: LogView): unknown[] {
  return SCOPES.flatMap((scope) => log.list(scope).map(({ key, value }) => ({ scope, key, value })))
}

function translatedOf(log: LogView): number {
  return log.list('member').filter(({ value }) => value.translated).length
}

/** Copies the rows to another log as new objects, so that the cache has no entry for them. */
async function startedAnew(log: RecordLog): Promise<RecordLog> {
  const anew = openMemoryLog()
  await anew.transact((tx) => {
    for (const scope of SCOPES) for (const { key, value } of log.list(scope)) tx.put(scope, key, structuredClone(value))
  })
  return anew
}

t.test('a broker that remembers writes and says what one does that has just been started', async (t) => {
  const [kinds, translated] = [new Set<string>(), { byGateway: 0 }]
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 30, size: 'max' }), async (steps) => {
      const log = openMemoryLog()
      // Each join follows a look at the same join, as `sealane join` does it.
      for (const one of steps.flatMap((one) => (one.is === 'join' ? [{ ...one, is: 'look' } as const, one] : [one]))) {
        const anew = await startedAnew(log)
        const [before, were] = [log.revision, translatedOf(log)]
        const [said, saidAnew] = [await take(log, one), await take(anew, one)]
        if (log.revision > before || ['look', 'review'].includes(one.is)) kinds.add(one.is)
        if (one.is === 'gateway') translated.byGateway += translatedOf(log) - were
        deepStrictEqual(said, saidAnew)
        deepStrictEqual(rowsOf(log), rowsOf(anew))
        await anew.close()
      }
      await log.close()
    }),
  )
  t.same([...kinds].sort(), KINDS.map(([is]) => is).sort(), 'each was done, and wrote something where it should')
  t.ok(translated.byGateway > 0, `${translated.byGateway} times somebody was translated because of a gateway`)
})
