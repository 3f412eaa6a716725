/** The counted usage equals the stored records after every sequence of steps, with three equal members. */
import fc from 'fast-check'
import t from 'tap'
import { openMemoryLog } from '../../../broker/store/memory-log.ts'
import type { LogView, Transaction } from '../../../broker/store/record-log.ts'
import { departMember, joinMember } from '../../../broker/members/membership.ts'
import { changeQuota, quotaOf, quotaUse } from '../../../broker/records/quota.ts'
import { type WriteContext, memberRecords, putRecord, removeRecord } from '../../../broker/records/record-writes.ts'
import { removeStatusRecord, writeStatusRecord } from '../../../broker/records/status-records.ts'
import { isLive } from '../../../broker/store/rows.ts'
import type { ClusterId } from '../../../model/ids.ts'
import { DEFAULT_MEMBER_QUOTA, type QuotaUse, ceilingOf, isQuotaReason } from '../../../model/member-quota.ts'
import type { MemberRecord } from '../../../model/records.ts'
import { memberKey } from '../../../protocol/codec/content-hash.ts'
import { anExport, facts } from '../support/harness.ts'

const MEMBERS = ['milano', 'paris', 'tokyo'] as readonly string[] as readonly ClusterId[]
const QUOTA = { ...DEFAULT_MEMBER_QUOTA, records: 4, bytes: 1500 }
const RULES = { globalRange: '244.0.0.0/8', clustersetIpRange: '245.0.0.0/16', allowedNamespaces: [], quota: QUOTA }

function contextOf(cluster: ClusterId): WriteContext {
  return { cluster, rules: RULES, nowMs: 1 }
}

function join(tx: Transaction, cluster: ClusterId): void {
  const range = `10.${MEMBERS.indexOf(cluster) + 1}.0.0/16`
  const certificate = { serial: '01', expiresAtMs: 1e15 }
  const join = {
    ...{ cluster, certificate, facts: facts([range], { serviceCIDRs: [] }), allowedCIDRs: [], keyHash: '' },
    ...{ entitled: true, connected: false, membersLimit: 9, renewalGraceMs: 0 },
    handedOut: { ...certificate, authority: '', bundle: [] },
  }
  joinMember(tx, join, contextOf(cluster))
}

/** Counts the usage by reading each record. */
function recount(view: LogView, cluster: ClusterId): QuotaUse {
  const own = memberRecords(view, cluster)
  return {
    records: own.length,
    bytes: own.reduce((sum, { row }) => sum + Buffer.byteLength(JSON.stringify(row.body)), 0),
  }
}

const service = fc.integer({ min: 0, max: 6 }).map((i) => `s${i}`)
const text = fc.integer({ min: 0, max: 400 }).map((length) => ({ 'x/y': 'x'.repeat(length) }))
const record: fc.Arbitrary<(cluster: ClusterId) => MemberRecord> = fc.oneof(
  fc.tuple(service, text).map(
    ([name, exportedAnnotations]) =>
      () =>
        anExport(name, { exportedAnnotations }),
  ),
  fc
    .tuple(service, fc.integer({ min: 0, max: 3 }), fc.integer({ min: 1, max: 5 }))
    .map(([name, part, size]) => (cluster: ClusterId): MemberRecord => ({
      namespace: 'shop',
      name: `${name}-${part}`,
      body: {
        kind: 'EndpointSlice',
        service: name,
        addressType: 'IPv4',
        ports: [],
        endpoints: Array.from({ length: size }, (_, i) => ({
          addresses: [`10.${MEMBERS.indexOf(cluster) + 1}.0.${i + 1}`],
        })),
      },
    })),
  fc.integer({ min: 0, max: 3 }).map((lane) => (cluster: ClusterId): MemberRecord => {
    const publicKey = Buffer.alloc(32, 1 + MEMBERS.indexOf(cluster) * 8 + lane).toString('base64')
    const spec = { cluster, node: 'gw', lane, publicKey, candidates: [], capabilities: [] }
    return { namespace: '', name: `${cluster}.gw-lane${lane}`, body: { kind: 'Endpoint', spec } }
  }),
)

type Step =
  | { readonly t: 'put' | 'remove'; readonly record: (cluster: ClusterId) => MemberRecord }
  | { readonly t: 'quota'; readonly records: number | 'default'; readonly bytes: number | 'default' }
  | { readonly t: 'status' | 'noStatus' | 'leave' | 'join' }
  | { readonly t: 'undone'; readonly record: (cluster: ClusterId) => MemberRecord }

const limit = (max: number) => fc.oneof(fc.integer({ min: 0, max }), fc.constant('default' as const))
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 8, arbitrary: fc.record({ t: fc.constant('put' as const), record }) },
  { weight: 3, arbitrary: fc.record({ t: fc.constant('remove' as const), record }) },
  { weight: 2, arbitrary: fc.record({ t: fc.constant('quota' as const), records: limit(8), bytes: limit(3000) }) },
  { weight: 1, arbitrary: fc.record({ t: fc.constantFrom('status', 'noStatus', 'leave', 'join') }) },
  { weight: 1, arbitrary: fc.record({ t: fc.constant('undone' as const), record }) },
)

class Undone extends Error {}

function apply(tx: Transaction, one: Step, cluster: ClusterId): void {
  const context = contextOf(cluster)
  switch (one.t) {
    case 'put':
    case 'undone':
      checkPut(tx, one.record(cluster), context)
      if (one.t === 'undone') throw new Undone()
      return
    case 'remove':
      removeRecord(tx, memberKey(one.record(cluster)), context)
      return
    case 'quota':
      changeQuota(tx, { cluster, change: { records: one.records, bytes: one.bytes } })
      return
    case 'status':
      writeStatusRecord(tx, cluster, { notImported: [], leftOut: 3 }, 1)
      return
    case 'noStatus':
      removeStatusRecord(tx, cluster)
      return
    case 'leave':
      departMember(tx, 'left', context)
      return
    case 'join':
      join(tx, cluster)
      return
  }
}

/** Checks which changes a refusal for lack of quota may cause. */
function checkPut(tx: Transaction, record: MemberRecord, context: WriteContext): void {
  const { cluster } = context
  const before = quotaUse(tx, cluster)
  const quota = quotaOf(tx, cluster, QUOTA)
  const key = `${cluster}/${record.body.kind}/${record.namespace}/${record.name}`
  const old = tx.get('record', key)
  const refused = putRecord(tx, record, context)
  const after = quotaUse(tx, cluster)
  const ceiling = ceilingOf(quota)
  if (!isQuotaReason(refused?.reason)) {
    const isBounded = after.records <= Math.max(ceiling.records, before.records)
    if (record.body.kind !== 'Endpoint' && !isBounded) throw new Error(`beyond the ceiling: ${JSON.stringify(after)}`)
    if (record.body.kind === 'ServiceExport' && old === undefined && refused === undefined) {
      if (after.records > quota.records || after.bytes > quota.bytes) throw new Error('a new export beyond the quota')
    }
    return
  }
  if (record.body.kind === 'Endpoint') throw new Error('a quota cut a lane')
  if ((refused.kept === true) !== (old !== undefined)) throw new Error('kept is what was there')
  if (tx.get('record', key) !== old) throw new Error('a refusal has changed something')
}

t.test('use is what a recount of the log gives, after any sequence, inside a transaction and out', async (t) => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.tuple(fc.nat(2), step), { maxLength: 60 }), async (steps) => {
      const log = openMemoryLog()
      for (const cluster of MEMBERS) await log.transact((tx) => join(tx, cluster))
      for (const [index, one] of steps) {
        const cluster = MEMBERS[index] as ClusterId
        if (!isLive(log.get('member', cluster)) && one.t !== 'join') continue
        const done = log.transact((tx) => {
          apply(tx, one, cluster)
          compare(tx)
        })
        await done.catch((error: unknown) => {
          if (!(error instanceof Undone)) throw error
        })
        compare(log)
      }
      await log.close()
    }),
    { numRuns: 150 },
  )
  t.pass('no difference was found')
})

function compare(view: LogView): void {
  for (const cluster of MEMBERS) {
    const [use, want] = [quotaUse(view, cluster), recount(view, cluster)]
    if (use.records === want.records && use.bytes === want.bytes) continue
    throw new Error(`${cluster}: counted ${JSON.stringify(use)}, there are ${JSON.stringify(want)}`)
  }
}
