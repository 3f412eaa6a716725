/**
 * Generates states of a broker with the functions that the broker itself uses, in an order that a generator chooses.
 */
import fc from 'fast-check'
import { keepEvent } from '../../../broker/audit/audit-outbox.ts'
import type { RecordLog } from '../../../broker/store/record-log.ts'
import { departMember, joinMember, markComplete, noteIssued } from '../../../broker/members/membership.ts'
import { pruneStamps, putRecord, removeRecord, type WriteContext } from '../../../broker/records/record-writes.ts'
import { writeStatusRecord } from '../../../broker/records/status-records.ts'
import { type HandedOut, SETTINGS_KEY, isLive } from '../../../broker/store/rows.ts'
import type { ClusterId } from '../../../model/ids.ts'
import { DEFAULT_MEMBER_QUOTA } from '../../../model/member-quota.ts'
import type { MemberRecord } from '../../../model/records.ts'
import { RefusedError } from '../../../protocol/broker-api.ts'
import { memberKey } from '../../../protocol/codec/content-hash.ts'
import { aSlice, anExport, facts } from './harness.ts'

/** One step. `member`, `name` and `variant` are small numbers, so that steps hit the same objects again. */
export interface BrokerStep {
  readonly t: 'join' | 'export' | 'headless' | 'slice' | 'endpoint' | 'remove' | 'leave' | 'evict' | 'token' | 'status'
  readonly member: number
  readonly name: number
  readonly variant: number
}

export const SETTINGS = {
  clusterset: 'demo',
  globalRange: '244.0.0.0/8',
  clustersetIpRange: '245.0.0.0/24',
  advertise: ['192.0.2.1:7443'],
}

const STEPS: readonly BrokerStep['t'][] = [
  ...(['join', 'join', 'export', 'export', 'headless', 'slice', 'slice', 'endpoint', 'endpoint'] as const),
  ...(['remove', 'leave', 'evict', 'token', 'status'] as const),
]

export const brokerSteps: fc.Arbitrary<BrokerStep[]> = fc.array(
  fc.record({
    t: fc.constantFrom(...STEPS),
    member: fc.integer({ min: 0, max: 3 }),
    name: fc.integer({ min: 0, max: 3 }),
    variant: fc.integer({ min: 0, max: 3 }),
  }),
  { maxLength: 40 },
)

const START_MS = Date.UTC(2026, 0, 1)
const IDS = ['milano', 'paris', 'oslo', 'roma'] as const

/** Applies the steps to the log. A step that the broker refuses changes nothing. */
export async function makeState(log: RecordLog, steps: readonly BrokerStep[], settings = SETTINGS): Promise<void> {
  await log.transact((tx) => tx.put('settings', SETTINGS_KEY, settings))
  for (const [i, step] of steps.entries()) await take(log, step, settings, START_MS + i * 3_600_000)
}

async function take(log: RecordLog, step: BrokerStep, settings: typeof SETTINGS, nowMs: number): Promise<void> {
  const cluster = (IDS[step.member] ?? 'milano') as ClusterId
  const rules = { ...settings, allowedNamespaces: [], quota: DEFAULT_MEMBER_QUOTA }
  const context: WriteContext = { cluster, rules, nowMs }
  const { t, member, name, variant } = step
  await log
    .transact((tx) => {
      if (t === 'join') {
        // In two of the four variants, the pod range overlaps that of another member.
        const join = {
          cluster,
          facts: facts([`10.${variant < 2 ? 42 : 50 + member}.0.0/16`], {
            serviceCIDRs: [`10.${100 + member}.0.0/16`],
          }),
          allowedCIDRs: [],
          certificate: { serial: `${nowMs}`, expiresAtMs: nowMs + 86_400_000, issuedAtMs: nowMs },
          handedOut: handedOut(nowMs),
          keyHash: 'k'.repeat(64),
          entitled: true,
          connected: false,
          membersLimit: 100,
          renewalGraceMs: 0,
        }
        joinMember(tx, join, context)
        keepEvent(tx, { act: 'join', result: 'ok', who: { kind: 'joining', cluster }, subject: cluster }, nowMs)
        return
      }
      if (t === 'token') {
        const hash = `${member}${name}${variant}`.padStart(64, '0')
        tx.put('token', `t${member}${name}${variant}`, {
          hash,
          createdAtMs: nowMs,
          expiresAtMs: nowMs + 900_000,
          usesLeft: variant % 2,
          uses: variant % 2 === 1 ? [] : [{ cluster, atMs: nowMs, keyHash: 'k'.repeat(64) }],
        })
        return
      }
      if (!isLive(tx.get('member', cluster))) return
      if (t === 'leave' || t === 'evict') departMember(tx, t === 'leave' ? 'left' : 'evicted', context)
      else if (t === 'status') {
        writeStatusRecord(tx, cluster, { notImported: [], leftOut: variant }, nowMs)
      } else if (t === 'remove') {
        for (const record of all(step, cluster)) removeRecord(tx, memberKey(record), context)
        noteIssued(tx, cluster, handedOut(nowMs), nowMs)
      } else {
        const [record] = all(step, cluster).filter(({ body }) => kindOf(t) === body.kind)
        if (record !== undefined) putRecord(tx, record, context)
        markComplete(tx, { cluster })
      }
      pruneStamps(tx, nowMs)
    })
    .catch((error: unknown) => {
      if (!(error instanceof RefusedError)) throw error
    })
}

function kindOf(t: BrokerStep['t']): string {
  if (t === 'slice') return 'EndpointSlice'
  return t === 'endpoint' ? 'Endpoint' : 'ServiceExport'
}

function all({ t, member, name, variant }: BrokerStep, cluster: string): MemberRecord[] {
  const change = { uid: `uid-${variant}`, type: t === 'headless' ? 'Headless' : 'ClusterSetIP' } as const
  const key = (byte: number): string => Buffer.alloc(32, byte).toString('base64')
  const spec = {
    ...{ cluster, node: `gw${name}`, lane: 0, publicKey: key(16 * member + 4 * name + variant + 1) },
    ...{ candidates: [], capabilities: [] },
  }
  return [
    anExport(`web${name}`, change),
    aSlice(`web${name}`, `10.${variant < 2 ? 42 : 50 + member}.1.${variant + 1}`),
    { namespace: '', name: `${cluster}.gw${name}-lane0`, body: { kind: 'Endpoint', spec } },
  ]
}

/**
 * Three members, two of which have global addresses. The services have one exporter or two, and one key was given up.
 */
export const RICH_STEPS: readonly BrokerStep[] = [
  { t: 'join', member: 0, name: 0, variant: 0 },
  { t: 'join', member: 1, name: 0, variant: 0 },
  { t: 'join', member: 2, name: 0, variant: 2 },
  { t: 'join', member: 3, name: 0, variant: 2 },
  { t: 'leave', member: 3, name: 0, variant: 0 },
  { t: 'export', member: 0, name: 0, variant: 0 },
  { t: 'export', member: 1, name: 0, variant: 1 },
  { t: 'export', member: 1, name: 1, variant: 1 },
  { t: 'export', member: 2, name: 2, variant: 1 },
  { t: 'remove', member: 2, name: 2, variant: 1 },
  { t: 'headless', member: 2, name: 3, variant: 1 },
  { t: 'slice', member: 0, name: 0, variant: 0 },
  { t: 'endpoint', member: 0, name: 0, variant: 0 },
  { t: 'endpoint', member: 0, name: 0, variant: 1 },
  { t: 'endpoint', member: 1, name: 0, variant: 0 },
  { t: 'token', member: 0, name: 0, variant: 1 },
  { t: 'token', member: 0, name: 0, variant: 2 },
  { t: 'status', member: 0, name: 0, variant: 1 },
]

function handedOut(nowMs: number): HandedOut {
  return { serial: `${nowMs}`, expiresAtMs: nowMs + 86_400_000, authority: 'f'.repeat(64), bundle: ['f'.repeat(64)] }
}
