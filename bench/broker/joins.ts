/**
 * For how long one join blocks a broker that has N members: a turn of the event loop, without TLS, certificates and the
 * disk. Each member has a gateway; one of ten overlaps another. The peer is a join where there are ten members.
 *
 *   npm run bench:joins -- [--json] [--members 1000]
 */
import { parseArgs } from 'node:util'
import { DEFAULT_BROKER_CONFIG } from '../../broker/config/broker-config.ts'
import { openMemoryLog } from '../../broker/store/memory-log.ts'
import { joinMember } from '../../broker/members/membership.ts'
import { type WriteContext, putRecord } from '../../broker/records/record-writes.ts'
import type { ClusterId } from '../../model/ids.ts'
import type { MemberRecord } from '../../model/records.ts'
import type { ClusterFacts } from '../../protocol/broker-api.ts'
import { percentile, progress, round } from '../figures.ts'

/** The number of joins for each figure. */
const SAMPLES = 100
const FEW = 10
const TARGET_MS = 10

const RULES: WriteContext['rules'] = {
  globalRange: DEFAULT_BROKER_CONFIG.globalRange,
  clustersetIpRange: DEFAULT_BROKER_CONFIG.clustersetIpRange,
  allowedNamespaces: [],
  quota: DEFAULT_BROKER_CONFIG.limits.quota,
}

const { values } = parseArgs({ options: { json: { type: 'boolean' }, members: { type: 'string', default: '1000' } } })
const members = Number(values.members)
if (!Number.isInteger(members) || members < SAMPLES || members > 4000)
  throw new Error(`--members ${JSON.stringify(values.members)}: expected a whole number from ${SAMPLES} to 4000`)

const few = (await Promise.all(Array.from({ length: SAMPLES / FEW }, () => joinAll(FEW)))).flat()
const turns = (await joinAll(members)).slice(-SAMPLES)
const figures = {
  members,
  p50Ms: round(percentile(turns, 0.5)),
  p99Ms: round(percentile(turns, 0.99)),
  fewP50Ms: round(percentile(few, 0.5)),
  targetP50Ms: TARGET_MS,
}
progress(
  figures,
  `a join among ${members} members is one turn of p50 ${figures.p50Ms}, p99 ${figures.p99Ms} ms (at most ` +
    `${TARGET_MS}); among ${FEW} members p50 ${figures.fewP50Ms} ms`,
)

/** Returns for how long each join blocked the process. */
async function joinAll(count: number): Promise<number[]> {
  const log = openMemoryLog()
  const turns: number[] = []
  for (let i = 0; i < count; i += 1) {
    const cluster = `c${String((i * 7919) % 10_000).padStart(4, '0')}` as ClusterId
    const context: WriteContext = { cluster, rules: RULES, nowMs: 1 }
    const terms = { serial: cluster, expiresAtMs: 1e12, authority: 'one' }
    const join = {
      ...{ cluster, facts: factsOf(i), allowedCIDRs: [], keyHash: cluster },
      certificate: { ...terms, issuedAtMs: 0 },
      handedOut: { ...terms, bundle: [] },
      ...{ entitled: true, connected: false, membersLimit: count, renewalGraceMs: 0 },
    }
    await log.transact((tx) => {
      const begun = performance.now()
      joinMember(tx, join, context)
      turns.push(performance.now() - begun)
    })
    const refused = await log.transact((tx) => putRecord(tx, gatewayOf(cluster, i), context))
    if (refused !== undefined) throw new Error(`${refused.field}: ${refused.message}`)
  }
  return turns
}

function factsOf(i: number): ClusterFacts {
  const at = i % 10 === 9 ? i - 1 : i
  const podCIDRs = [`10.${(at >> 4) & 0xff}.${(at & 0x0f) << 4}.0/20`]
  return { podCIDRs, serviceCIDRs: ['172.20.0.0/16'], neededCIDRs: [nodeOf(i)], labels: {}, version: '0.1.0' }
}

function nodeOf(i: number): string {
  return `192.168.${i >> 4}.${(i & 0x0f) << 4}/28`
}

function gatewayOf(cluster: string, i: number): MemberRecord {
  const publicKey = Buffer.alloc(32, cluster).toString('base64')
  const candidates = [{ kind: 'private', address: `192.168.${i >> 4}.${((i & 0x0f) << 4) + 1}`, port: 4500 }] as const
  const spec = { cluster, node: 'gateway', lane: 0, publicKey, candidates, capabilities: ['wireguard'] }
  return { namespace: '', name: `${cluster}.gateway-lane0`, body: { kind: 'Endpoint', spec } }
}
