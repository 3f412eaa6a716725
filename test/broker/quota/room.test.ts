/**
 * A member of this release reaches its quota at a broker: which records stay, which are left out, and which follow
 * without a further request.
 */
import t, { type Test } from 'tap'
import { DEFAULT_BROKER_CONFIG } from '../../../broker/config/broker-config.ts'
import { DEFAULT_MEMBER_QUOTA, type MemberQuota } from '../../../model/member-quota.ts'
import type { MemberRecord } from '../../../model/records.ts'
import type { BrokerApi, Peer, PublishMessage } from '../../../protocol/broker-api.ts'
import { memberKey, memberKeyText } from '../../../protocol/codec/content-hash.ts'
import { type InMemoryLink, inMemoryBroker } from '../../../protocol/transport/in-memory.ts'
import { PublishSession } from '../../../protocol/sessions/publish-session.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { eventually } from '../../support/eventually.ts'
import { type Harness, Publisher, aSlice, anExport, facts, join_, startBroker } from '../support/harness.ts'

const signal = AbortSignal.timeout(60_000)

interface Member {
  readonly session: PublishSession
  readonly logger: CapturingLogger
  readonly link: InMemoryLink
  /** Returns the number of puts that the member has sent so far. */
  sent(): number
  want(...records: readonly MemberRecord[]): Promise<void>
  /** Returns the names of its ServiceExports and slices, each with its state. */
  states(): string
  stop(): Promise<void>
}

const known = new WeakMap<PublishSession, readonly MemberRecord[]>()

function runMember(t: Test, harness: Harness, peer: Peer): Member {
  const logger = new CapturingLogger()
  let sent = 0
  const api: BrokerApi = {
    join: (...args) => harness.broker.join(...args),
    lookAtJoin: (...args) => harness.broker.lookAtJoin(...args),
    renew: (...args) => harness.broker.renew(...args),
    leave: (...args) => harness.broker.leave(...args),
    watch: (...args) => harness.broker.watch(...args),
    openPublish(...args) {
      const session = harness.broker.openPublish(...args)
      const onMessage = (message: PublishMessage, bytes?: number): Promise<void> => {
        if (message.t === 'put') sent += 1
        return session.onMessage(message, bytes)
      }
      return { onMessage, onLast: () => session.onLast(), onEnd: () => session.onEnd() }
    },
  }
  const link = inMemoryBroker(api, peer)
  const deps = { cluster: peer.cluster, connect: () => link.connect(), clock: new SystemClock(), logger }
  const session = new PublishSession(deps, { retryMinMs: 1, retryMaxMs: 20 })
  const stopping = new AbortController()
  const done = session.run(stopping.signal)
  const stop = async (): Promise<void> => {
    stopping.abort()
    await done
  }
  t.teardown(stop)
  return {
    session,
    logger,
    link,
    stop,
    sent: () => sent,
    async want(...records) {
      known.set(session, records)
      session.setDesired(new Map(records.map((record) => [memberKeyText(memberKey(record)), record])))
      await session.whenSettled(signal)
    },
    states() {
      return (known.get(session) ?? [])
        .map((record) => {
          const state = session.recordState(memberKeyText(memberKey(record)))
          return `${record.name}:${state.t === 'refused' ? state.reason : state.t}`
        })
        .join(' ')
    },
  }
}

function limited(quota: Partial<MemberQuota>) {
  const limits = { ...DEFAULT_BROKER_CONFIG.limits, quota: { ...DEFAULT_MEMBER_QUOTA, ...quota } }
  return { config: { limits } }
}

const headless = (name: string, size = 0): MemberRecord =>
  anExport(name, { type: 'Headless', exportedAnnotations: size === 0 ? {} : { 'x/y': 'x'.repeat(size) } })

const gateway: MemberRecord = {
  namespace: '',
  name: 'milano.gw-lane0',
  body: {
    kind: 'Endpoint',
    spec: {
      cluster: 'milano',
      node: 'gw',
      lane: 0,
      publicKey: Buffer.alloc(32, 1).toString('base64'),
      candidates: [],
      capabilities: [],
    },
  },
}

async function held(harness: Harness, cluster = 'milano'): Promise<string[]> {
  await harness.log.refresh()
  const rows = harness.log.list('record', cluster).map(({ key }) => key.split('/').slice(1).join('/'))
  return rows.filter((key) => !key.startsWith('Cluster/'))
}

t.test('what is new is left out by name, what is held stays, and comes in when there is room', async (t) => {
  const harness = await startBroker(t, limited({ records: 3 }))
  const { peer } = await join_(harness, 'milano')
  const member = runMember(t, harness, peer)
  await member.want(headless('a'), headless('b'), headless('c'), headless('d'), headless('e'))
  t.equal(member.states(), 'a:stored b:stored c:stored d:QuotaRecords e:QuotaRecords')
  t.same(member.session.recordState('ServiceExport/shop/d'), {
    t: 'refused',
    field: 'records',
    reason: 'QuotaRecords',
    message:
      'the broker holds 3 records of cluster "milano", and its quota is 3: withdraw exports, or ask for more at the ' +
      'broker: sealane cluster quota milano --records N',
  })
  const warned = member.logger.lines.filter(({ level }) => level === 'warn')
  t.equal(warned.length, 1, 'said once, not for each')

  // The quota cuts no lane, and changing a stored record needs no further room.
  await member.want(gateway, headless('a', 10), headless('b'), headless('c'), headless('d'), headless('e'))
  t.equal(member.states(), 'milano.gw-lane0:stored a:stored b:stored c:stored d:QuotaRecords e:QuotaRecords')
  const sent = member.sent()
  await member.want(gateway, headless('a', 10), headless('b'), headless('c'), headless('d', 5), headless('e', 5))
  t.equal(member.sent(), sent, 'other content is no room: nothing is sent')

  await member.want(gateway, headless('d', 5), headless('e', 5), headless('b'))
  t.equal(await whenStates(member, 'milano.gw-lane0:stored d:stored e:QuotaRecords b:stored'), true, member.states())
  t.equal(member.sent(), sent + 1, 'and only what fits is sent')

  // The broker enforces a changed quota once its replica has read the operator's change.
  t.equal(await harness.tokens.changeQuota({ cluster: 'milano', change: { records: 4 } }), true)
  t.equal(await harness.tokens.changeQuota({ cluster: 'milano', change: { records: 4 } }), false, 'a second time')
  await harness.log.refresh()
  t.equal(await whenStates(member, 'milano.gw-lane0:stored d:stored e:stored b:stored'), true, member.states())
  t.match(member.logger.lines.at(-1), { message: 'the quota allows all records again' })
})

async function whenStates(member: Member, want: string): Promise<boolean> {
  return eventually(() => member.states() === want).then(
    () => true,
    () => false,
  )
}

t.test('a quota that is lowered takes nothing away, also over streams and restarts of both', async (t) => {
  const first = await startBroker(t)
  const { peer } = await join_(first, 'milano')
  const member = runMember(t, first, peer)
  const slices = [aSlice('a', '10.42.0.1'), aSlice('b', '10.42.0.2')]
  const [a, b] = slices as [MemberRecord, MemberRecord]
  await member.want(headless('a'), a, headless('b'), b)
  await first.tokens.changeQuota({ cluster: 'milano', change: { records: 1, bytes: 0 } })
  await first.log.refresh()
  const before = await held(first)
  t.equal(before.length, 4)

  member.link.cut()
  await eventually(() => member.session.state().t === 'waiting')
  member.link.mend()
  await member.want(headless('a'), aSlice('a', '10.42.0.9'), headless('b'), b, headless('c'))
  t.equal(member.states(), 'a:stored a-1:stored b:stored b-1:stored c:QuotaRecords')
  t.same(await held(first), before, 'and what is held may change')
  await member.stop()
  await first.stop()

  const second = await startBroker(t, { stateDir: first.stateDir, clock: first.clock })
  const again = runMember(t, second, peer)
  await again.want(headless('a'), a, headless('b'), b, headless('c'))
  t.equal(again.states(), 'a:stored a-1:stored b:stored b-1:stored c:QuotaRecords', 'the quota outlives the process')
  t.same(await held(second), before)
  const third = await startBroker(t, { stateDir: first.stateDir, clock: first.clock })
  const stream = new Publisher(third, peer)
  await stream.publish([headless('a'), a, headless('b'), b])
  await stream.put(headless('c'))
  await stream.acknowledged()
  t.match(
    stream.replies.find((reply) => reply.t === 'refused'),
    { reason: 'QuotaRecords' },
    'another replica, the same',
  )
  t.match((await third.tokens.members())[0]?.quota, {
    limit: { records: 1, bytes: 0, changes: 100, streams: 10 },
    used: { records: 4 },
    own: ['records', 'bytes'],
  })
})

t.test('a service that is in keeps its endpoints, beyond the quota as well', async (t) => {
  const harness = await startBroker(t, limited({ records: 2 }))
  const { peer } = await join_(harness, 'milano')
  const member = runMember(t, harness, peer)
  const part = (service: string, i: number): MemberRecord => ({
    ...aSlice(service, '10.42.0.1'),
    name: `${service}-${i}`,
  })
  const parts = Array.from({ length: 150 }, (_, i) => part('web', i))
  await member.want(headless('web'), ...parts.slice(0, 1), headless('zoo'), part('zoo', 0))
  t.equal(member.states(), 'web:stored web-0:stored zoo:QuotaRecords zoo-0:QuotaRecords')
  await member.want(headless('web'), ...parts, headless('zoo'), part('zoo', 0))
  const stored = member
    .states()
    .split(' ')
    .filter((one) => one.endsWith(':stored'))
  t.equal(stored.length, 102, 'a hundred more, and no further')
  t.notOk(stored.some((one) => one.startsWith('zoo')))
  await member.want(headless('web'), parts[149] as MemberRecord, headless('zoo'), part('zoo', 0))
  t.equal(
    await whenStates(member, 'web:stored web-149:stored zoo:QuotaRecords zoo-0:QuotaRecords'),
    true,
    member.states(),
  )
})

t.test('too large a change is refused, and the version before it stays with all others', async (t) => {
  const harness = await startBroker(t, limited({ bytes: 10_000 }))
  const { peer } = await join_(harness, 'milano')
  const member = runMember(t, harness, peer)
  const big = (name: string, size: number): MemberRecord => {
    const many = Array.from({ length: size }, (_, i) => [`x/k${i}`, 'y'.repeat(4000)])
    return anExport(name, { type: 'Headless', exportedAnnotations: Object.fromEntries(many) as Record<string, string> })
  }
  const names = Array.from({ length: 20 }, (_, i) => `s${String(i).padStart(2, '0')}`)
  const small = names.map((name) => big(name, 0))
  await member.want(...small)
  t.ok(
    member
      .states()
      .split(' ')
      .every((one) => one.endsWith(':stored')),
    member.states(),
  )
  await member.want(...names.map((name) => big(name, 15)))
  const refused = (): number =>
    member
      .states()
      .split(' ')
      .filter((one) => one.endsWith(':QuotaBytes')).length
  t.ok(refused() > 0 && refused() < 20, `${refused()} have no room to grow`)
  t.equal((await held(harness)).length, 20, 'nothing is withdrawn')
  const missing = refused()
  for (let i = 0; i < 3; i += 1) {
    member.link.cut()
    await eventually(() => member.session.state().t === 'waiting')
    member.link.mend()
    await member.session.whenSettled(signal)
    await eventually(() => refused() === missing, { say: `${missing} are refused again` })
    t.equal((await held(harness)).length, 20, 'nor after a new stream')
  }
  await member.stop()
  const again = runMember(t, harness, peer)
  await again.want(...names.map((name) => big(name, 15)))
  t.equal((await held(harness)).length, 20, 'nor by an agent that was started anew')
  await harness.tokens.changeQuota({ cluster: 'milano', change: { bytes: 5_000_000 } })
  await harness.log.refresh()
  const all = names.map((name) => `${name}:stored`).join(' ')
  t.equal(await whenStates(again, all), true, again.states())
})

t.test('a member of an earlier release gets no message that it does not know', async (t) => {
  const harness = await startBroker(t, limited({ records: 1 }))
  const { peer } = await join_(harness, 'milano', { facts: facts() })
  const stream = new Publisher(harness, peer)
  await stream.publish([headless('a')])
  await stream.put(headless('b'))
  await stream.remove(headless('a'))
  await stream.acknowledged()
  t.same([...new Set(stream.replies.map((reply) => reply.t))].sort(), ['ack', 'need', 'refused', 'sendDigest'])
  t.match(stream.refusals(), [/^records: the broker holds 1 records of cluster "milano", and its quota is 1: /])
})

t.test('who is slowed down is told, and nothing is lost', async (t) => {
  const harness = await startBroker(t, limited({ records: 20, changes: 10 }))
  const { peer } = await join_(harness, 'milano')
  const member = runMember(t, harness, peer)
  const { clock } = harness
  const wants = async (from: number, to: number): Promise<void> => {
    for (let i = from; i <= to; i += 1) await member.want(...Array.from({ length: 10 }, (_, n) => headless(`s${n}`, i)))
  }
  const slow = ({ lines }: CapturingLogger): number =>
    lines.filter(({ fields }) => fields.reason === 'QuotaChanges').length
  await wants(1, 9)
  t.same([slow(member.logger), slow(harness.logger)], [0, 0], 'no time has passed: its burst')
  const done = wants(10, 40)
  await eventually(() => slow(member.logger) === 1 && slow(harness.logger) === 1, { say: 'it is told' })
  const turn = setInterval(() => void clock.advance(500), 5)
  t.teardown(() => clearInterval(turn))
  await done
  clearInterval(turn)
  t.equal((await held(harness)).length, 10)
  t.match(harness.log.get('record', 'milano/ServiceExport/shop/s9')?.body, {
    exportedAnnotations: { 'x/y': 'x'.repeat(40) },
  })
})

t.test('bad quotas are refused, with the field and what was expected', async (t) => {
  const harness = await startBroker(t)
  await join_(harness, 'milano')
  const change = (cluster: string, value: number | 'default') =>
    harness.tokens.changeQuota({ cluster, change: { records: value } })
  await t.rejects(change('milano', -1), { reason: 'InvalidValue', message: 'records -1: expected 0 to 200000' })
  await t.rejects(change('milano', 1.5), { message: 'records 1.5: expected 0 to 200000' })
  await t.rejects(change('paris', 1), {
    message: 'cluster "paris" is not a member; list the members: sealane cluster list',
  })
  await t.rejects(change('No', 1), { name: 'InvalidNameError' })
  t.equal(await change('milano', 'default'), false)
  await change('milano', 7)
  await join_(harness, 'milano', { token: (await harness.tokens.create({ cluster: 'milano' })).text })
  t.same((await harness.tokens.members())[0]?.quota.own, ['records'], 'it stays when the member joins again')
  await change('milano', 'default')
  t.same((await harness.tokens.members())[0]?.quota.own, [])
})
