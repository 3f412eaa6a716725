/** The audit line of each act of members, of joining clusters, and of operators who run commands beside the broker. */
import t, { type Test } from 'tap'
import { join } from 'node:path'
import { operatorActor } from '../../../broker/admin/command-state.ts'
import { MemberCommands } from '../../../broker/admin/member-commands.ts'
import { TopologyCommands } from '../../../broker/admin/topology-commands.ts'
import { backupBroker } from '../../../broker/recovery/backup.ts'
import type { EtcdStore } from '../../../broker/store/etcd/etcd-store.ts'
import { formatSession } from '../../../broker/store/etcd/replica-session.ts'
import { openSqliteLog } from '../../../broker/store/sqlite/sqlite-log.ts'
import { DATABASE_FILE } from '../../../broker/store/state-directory.ts'
import { localOperator } from '../../../protocol/admin/local-operator.ts'
import { fingerprint } from '../../../protocol/identity/certificates.ts'
import { createKey } from '../../../protocol/identity/keys.ts'
import { createCsr } from '../../../protocol/identity/x509.ts'
import { eventually } from '../../support/eventually.ts'
import { failure } from '../../support/failure.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import {
  type Harness,
  Publisher,
  anExport,
  declaration,
  facts,
  join_,
  joinRequest,
  peerOf,
  startBroker,
} from '../support/harness.ts'
import { type AuditLine, MemorySink, shortLine } from './audit-lines.ts'

const never = new AbortController().signal
const WHO = operatorActor(localOperator())

async function started(t: Test) {
  const sink = new MemorySink()
  const harness = await startBroker(t, { auditSink: sink })
  let seen = 0
  /** Returns the lines that were written since the last call. */
  const lines = async (): Promise<AuditLine[]> => {
    await harness.log.refresh()
    await harness.audit.flush(never)
    const all = sink.lines()
    const fresh = all.slice(seen)
    seen = all.length
    return fresh
  }
  return { ...harness, sink, lines }
}

t.test('a join says who came by which token, and what it was given', async (t) => {
  const harness = await started(t)
  const { text, id } = await harness.tokens.create({ cluster: 'milano' })
  await harness.lines()
  const { response } = await join_(harness, 'milano', { token: text })
  const [line, ...more] = await harness.lines()
  t.same(more, [])
  t.same(line?.who, {
    kind: 'joining',
    cluster: 'milano',
    fingerprint: fingerprint(response.certificate),
    token: id,
    address: '192.0.2.1',
  })
  t.match(line, {
    v: 1,
    time: '2026-01-01T00:00:00.000Z',
    result: 'ok',
    what: { act: 'join', subject: 'milano', details: { podCIDRs: ['10.42.0.0/16'], repeated: false } },
  })
  t.type(line?.ms, 'number')
  t.notOk(JSON.stringify(line).includes(text.slice(20, 60)), 'and not the token itself')
})

t.test('who asks for the same again and again, as it may, does not fill the log', async (t) => {
  const harness = await started(t)
  const { text } = await harness.tokens.create({})
  const csr = await createCsr(createKey())
  for (let i = 0; i < 20; i += 1) await join_(harness, 'milano', { token: text, csr })
  const joins = (await harness.lines()).filter(({ what }) => what.act === 'join')
  t.equal(joins.length, 11)
  t.same(
    joins.map(({ what }) => what.details?.['repeated']),
    [false, ...Array.from({ length: 10 }, () => true)],
  )
})

type Refused = (harness: Harness) => Promise<Parameters<typeof joinRequest>[1]>

const refusals: readonly (readonly [want: string, request: Refused])[] = [
  ['join refused TokenUnknown milano', async () => ({ secret: 'x'.repeat(43) })],
  ['join refused TokenMalformed milano', async () => ({ secret: 'no token' })],
  [
    'join refused TokenUsed milano',
    async (harness) => {
      const { text } = await harness.tokens.create({})
      await join_(harness, 'paris', { token: text })
      return { token: text }
    },
  ],
  [
    'join refused TokenRevoked milano',
    async ({ tokens }) => {
      const { text, id } = await tokens.create({})
      await tokens.revoke(id)
      return { token: text }
    },
  ],
  [
    'join refused TokenForOtherCluster milano',
    async ({ tokens }) => ({ token: (await tokens.create({ cluster: 'paris' })).text }),
  ],
  ['join refused ClusterIdReserved kube-x', async () => ({ cluster: 'kube-x' })],
  ['join refused InvalidValue a\nb', async () => ({ cluster: 'a\nb' })],
  ['join refused PublicSpaceNotAllowed milano', async () => ({ facts: facts(['8.8.0.0/16']) })],
  ['join refused ClockDiffers milano', async () => ({ nowMs: 0 })],
]
t.test('a refused join says why, and whose token it was', async (t) => {
  for (const [want, request] of refusals) {
    const harness = await started(t)
    const change = await request(harness)
    const full = await joinRequest(harness, change)
    await harness.lines()
    await t.rejects(harness.broker.join(full, '192.0.2.9'))
    const lines = await harness.lines()
    t.same(lines.map(shortLine), [want])
    t.match(lines[0]?.who, { kind: 'joining', address: '192.0.2.9' })
    const isKnown = !/TokenUnknown|TokenMalformed/.test(want)
    t.equal(lines[0]?.who['token'] !== undefined, isKnown, `${want}: the token is named where it is one of ours`)
    t.notOk(harness.sink.text.includes(full.secret), 'never by its secret')
    await harness.stop()
  }
})

t.test('a look is told where it is refused', async (t) => {
  const harness = await started(t)
  const request = await joinRequest(harness, { look: true })
  await harness.lines()
  await harness.broker.lookAtJoin(request, '192.0.2.9')
  t.same(await harness.lines(), [])
  await t.rejects(harness.broker.lookAtJoin({ ...request, secret: 'y'.repeat(43) }, '192.0.2.9'))
  t.same((await harness.lines()).map(shortLine), ['join.look refused TokenUnknown milano'])
})

t.test('the life of a member', async (t) => {
  const harness = await started(t)
  const { broker } = harness
  const { peer, response } = await join_(harness, 'milano')
  await harness.lines()
  const shown = { ...peer, fingerprint: fingerprint(response.certificate) }
  const renewed = await broker.renew(shown, await createCsr(createKey()))
  const [renewal, ...none] = await harness.lines()
  t.same(none, [])
  t.match(renewal, {
    result: 'ok',
    who: { kind: 'member', cluster: 'milano', fingerprint: fingerprint(response.certificate), address: '192.0.2.1' },
    what: { act: 'renew', subject: 'milano', details: { certificate: fingerprint(renewed.certificate) } },
  })

  const next = peerOf('milano', renewed)
  const publisher = new Publisher(harness, next)
  await publisher.send(declaration([]))
  await publisher.facts(facts(['10.42.0.0/16', '10.77.0.0/16']))
  await publisher.facts(facts(['127.0.0.0/8']))
  await publisher.put(anExport('web', {}, 'kube-system'))
  await publisher.acknowledged()
  t.same((await harness.lines()).map(shortLine).sort(), [
    'facts ok milano',
    'facts refused RangeReserved milano',
    'record refused NamespaceNotAllowed ServiceExport/kube-system/web',
  ])

  // The overlap of the two certificates is over, and a process shows the old one.
  await harness.clock.advance(6 * 60_000)
  await failure(() => broker.watch(shown, {}, never)[Symbol.asyncIterator]().next())
  const copied = (await harness.lines()).filter(({ what }) => what.act === 'certificate.copied')
  t.match(copied, [{ result: 'refused', reason: 'CertificateCopied', who: { kind: 'member' } }])

  await broker.leave(next)
  await broker.leave(next)
  t.same((await harness.lines()).map(shortLine), ['leave ok milano'], 'once')
})

t.test('what operators do beside the broker', async (t) => {
  const harness = await started(t)
  const { tokens, stateDir } = harness
  const own = { kind: 'operator', uid: process.getuid?.() }
  const acted = async (): Promise<string[]> => {
    const lines = await harness.lines()
    for (const { who } of lines) t.match(who, own)
    return lines.map(shortLine)
  }
  const { id } = await tokens.create({ uses: 2, ttlMs: 60_000 })
  t.same(await acted(), [`token.create ok ${id}`])
  await tokens.revoke(id)
  t.same(await acted(), [`token.revoke ok ${id}`])
  await t.rejects(tokens.revoke('nope'))
  t.same(await acted(), ['token.revoke refused TokenUnknown nope'])
  await t.rejects(tokens.create({ uses: 0 }))
  t.same(await acted(), ['token.create refused InvalidValue'])

  await join_(harness, 'milano')
  await harness.lines()
  await t.rejects(tokens.evict({ cluster: 'roma', force: false }))
  await tokens.rekey({ cluster: 'milano' })
  await tokens.drain({ cluster: 'milano', drained: true })
  await tokens.drain({ cluster: 'milano', drained: false })
  await tokens.evict({ cluster: 'milano', force: true })
  await tokens.evict({ cluster: 'milano', force: true })
  t.same(await acted(), [
    'cluster.evict refused MemberUnknown roma',
    'cluster.rekey ok milano',
    'cluster.drain ok milano',
    'cluster.undrain ok milano',
    'cluster.evict ok milano',
    'cluster.evict ok milano',
  ])
  t.same(
    harness.sink
      .lines()
      .slice(-2)
      .map(({ what }) => what.details?.['repeated']),
    [false, true],
    'the second did nothing, and says so',
  )

  const file = `${temporaryFolder(t)}/a.backup`
  await backupBroker(harness.clock, stateDir, file, { who: WHO })
  await t.rejects(backupBroker(harness.clock, stateDir, file, { who: WHO }), 'it is there already')
  t.same(await acted(), [`broker.backup ok ${file}`, `broker.backup failed StateFailed ${file}`])
})

t.test('what a broken store refuses leaves no line', async (t) => {
  const harness = await started(t)
  const { clock, stateDir } = harness
  const log = openSqliteLog({ file: join(stateDir, DATABASE_FILE), create: false })
  await log.close()
  const { signal } = new AbortController()
  const commands = new MemberCommands({ state: { log, etcd: undefined, stateDir }, clock, who: WHO, signal })
  await t.rejects(commands.create({}))
  t.same(await harness.lines(), [])
})

t.test('labels of a token, while a replica would ignore them', async (t) => {
  const harness = await started(t)
  const { clock, stateDir, log } = harness
  const sessions = new Map([['new', formatSession({ members: [], keepsTokenLabels: true })]])
  const kvs = () => [...sessions].map(([key, value]) => ({ key: Buffer.from(key), value }))
  const etcd = {
    client: { range: () => Promise.resolve({ kvs: kvs() }) },
    keys: { replicas: {}, parseReplica: (key: Buffer) => key.toString() },
  } as unknown as EtcdStore
  const { signal } = new AbortController()
  const commands = new MemberCommands({ state: { log, etcd, stateDir }, clock, who: WHO, signal })
  t.same((await commands.create({ labels: { region: 'eu' } })).labels, { region: 'eu' }, 'all know them')
  sessions.set('old-0', formatSession({ members: [], keepsToTopology: true }))
  await t.rejects(commands.create({ labels: { region: 'eu' } }), {
    reason: 'TokenLabelsNotSupported',
    field: 'labels',
    message: /^labels: expected none while brokers that do not state that they keep labels serve this store: old-0$/,
  })
  t.ok(await commands.create({}), 'others are made')
  t.match((await harness.lines()).map(shortLine), [
    /^token.create ok/,
    /^token.create refused TokenLabelsNotSupported/,
    /^token.create ok/,
  ])
})

t.test('a topology with via, while a replica would ignore that', async (t) => {
  const { clock, stateDir, log } = await started(t)
  const value = formatSession({ members: [], host: 'old-0', keepsToTopology: true })
  const etcd = {
    client: { range: () => Promise.resolve({ kvs: [{ key: Buffer.from('a'), value }] }) },
    keys: { replicas: {}, parseReplica: (key: Buffer) => key.toString() },
  } as unknown as EtcdStore
  const { signal } = new AbortController()
  const commands = new TopologyCommands({ state: { log, etcd, stateDir }, clock, who: WHO, signal })
  const hubs = { mode: 'hub-and-spoke', hubs: ['oslo'] } as const
  await t.rejects(commands.set({ topology: { ...hubs, via: ['oslo'] } }), {
    reason: 'TopologyNotSupported',
    message: 'via: expected none while brokers of an earlier release serve this store: old-0',
  })
  t.equal((await commands.set({ topology: hubs })).changed, true, 'without via')
})

t.test('refusals of one address are bounded, and a member beside it is told', async (t) => {
  const harness = await started(t)
  const request = await joinRequest(harness, { secret: 'z'.repeat(43) })
  await harness.lines()
  for (let i = 0; i < 60; i += 1) await failure(harness.broker.join({ ...request, cluster: `c${i}` }, '192.0.2.66'))
  await join_(harness, 'paris')
  const lines = (await harness.lines()).map(shortLine)
  t.equal(lines.filter((line) => line.startsWith('join refused')).length, 10)
  t.ok(lines.includes('join ok paris'))
  await harness.clock.advance(300_000)
  const reported = await eventually(async () =>
    (await harness.lines()).find(({ what }) => what.act === 'audit.suppressed'),
  )
  t.same(reported.what.details, { lines: 50, sources: 1, most: ['192.0.2.66: 50'] })
})

const cidrs = (i: number): string[] => ['10.42.0.0/16', `10.${100 + i}.0.0/16`]
const NEW = Array.from({ length: 65 }, (_, i) => cidrs(i))
/**
 * The facts are sent one after the other, or all at once. Sent at once, the first facts form one group, and the other
 * 64 form a second one.
 */
const restated: readonly (readonly [say: string, sent: string[][], atOnce: boolean, want: string[][]])[] = [
  ['what the join said, again and again', [['10.42.0.0/16'], ['10.42.0.0/16'], ['10.42.0.0/16']], false, []],
  ['what is new, and then again', [cidrs(1), cidrs(1), cidrs(1)], false, [cidrs(1)]],
  ['new, and back', [cidrs(1), ['10.42.0.0/16']], false, [cidrs(1), ['10.42.0.0/16']]],
  ['65 at once', NEW, true, [cidrs(0), cidrs(64)]],
]
for (const [say, sent, atOnce, want] of restated) {
  t.test(`facts are told where they change: ${say}`, async (t) => {
    const harness = await started(t)
    const { peer } = await join_(harness, 'milano')
    const publisher = new Publisher(harness, peer)
    await publisher.send(declaration([]))
    await harness.lines()
    const before = harness.log.revision
    for (const podCIDRs of sent) {
      const taken = publisher.facts(facts(podCIDRs))
      if (atOnce) continue
      await taken
      await publisher.acknowledged()
    }
    await publisher.acknowledged()
    t.equal(harness.log.revision === before, want.length === 0, 'what does not change costs the store nothing')
    const reported = (await harness.lines()).filter(({ what }) => what.act === 'facts')
    t.same(
      reported.map(({ what }) => what.details?.['podCIDRs']),
      want,
    )
  })
}

t.test('who holds a stolen key does not hide behind its own refusals', async (t) => {
  const harness = await started(t)
  const { peer, response } = await join_(harness, 'milano')
  const shown = { ...peer, fingerprint: fingerprint(response.certificate) }
  const publisher = new Publisher(harness, shown)
  await publisher.send(declaration([]))
  for (let i = 0; i < 30; i += 1) await publisher.put(anExport(`web-${i}`, {}, 'kube-system'))
  await publisher.facts(facts(cidrs(1)))
  await publisher.acknowledged()
  const renewed = peerOf('milano', await harness.broker.renew(shown, await createCsr(createKey())))
  const next = new Publisher(harness, renewed)
  await next.send(declaration([]))
  await harness.clock.advance(6 * 60_000)
  await failure(() => harness.broker.watch(shown, {}, never)[Symbol.asyncIterator]().next())
  const lines = (await harness.lines()).map(shortLine)
  t.equal(lines.filter((line) => line.startsWith('record refused')).length, 10)
  for (const want of ['facts ok milano', 'renew ok milano', 'certificate.copied refused CertificateCopied milano'])
    t.ok(lines.includes(want), want)
})

const scans: readonly (readonly [say: string, isAudited: boolean, secret: string, want: number])[] = [
  ['no token can be of that form', true, 'no token', 0],
  ['nobody wants to know which one it was', false, 'q'.repeat(43), 1],
  ['it may be one of ours', true, 'q'.repeat(43), 2],
]
for (const [say, isAudited, secret, want] of scans) {
  t.test(`a refused join looks at all tokens as seldom as it can: ${say}`, async (t) => {
    const harness = isAudited ? await started(t) : await startBroker(t)
    const request = await joinRequest(harness, { secret })
    const { log } = harness
    const list = log.list.bind(log)
    let scanned = 0
    log.list = (scope, group) => {
      if (scope === 'token') scanned += 1
      return list(scope, group)
    }
    await t.rejects(harness.broker.join(request, '192.0.2.9'))
    t.equal(scanned, want)
  })
}
