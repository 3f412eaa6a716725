/** An operator who approves joins also approves the ranges that a member states later. */
import t, { type Test } from 'tap'
import { endpointName } from '../../../model/objects.ts'
import type { MemberRecord } from '../../../model/records.ts'
import type { Peer } from '../../../protocol/broker-api.ts'
import { createKey, keyFingerprint } from '../../../protocol/identity/keys.ts'
import { createCsr } from '../../../protocol/identity/x509.ts'
import { eventually } from '../../support/eventually.ts'
import { failure } from '../../support/failure.ts'
import { MemorySink, shortLine } from '../audit/audit-lines.ts'
import { type Harness, Publisher, aSlice, facts, joinRequest, join_, peerOf, startBroker } from '../support/harness.ts'

const never = new AbortController().signal

async function started(t: Test, approve = true) {
  const sink = new MemorySink()
  const harness = await startBroker(t, { auditSink: sink, config: { approve } })
  const lines = async () => {
    await harness.log.refresh()
    await harness.audit.flush(never)
    return sink.lines()
  }
  return { ...harness, lines }
}

/** Asks to join, is accepted by the operator, and joins. */
async function accepted(harness: Harness, cluster: string, cidr: string, token?: string) {
  const made = token ?? (await harness.tokens.create({})).text
  const csr = await createCsr(createKey())
  const ranges = facts([cidr], { serviceCIDRs: [] })
  const request = await joinRequest(harness, { cluster, csr, waits: true, facts: ranges, token: made })
  const ask = (change: Partial<typeof request> = {}) =>
    harness.broker.join({ ...request, nowMs: harness.clock.now(), ...change }, '192.0.2.1')
  t.match(await failure(ask()), { reason: 'JoinAwaitsApproval' })
  await harness.tokens.accept({ cluster })
  return { peer: peerOf(cluster, await ask()), ask, ranges }
}

const reasons = ({ replies }: Publisher) => replies.flatMap((reply) => (reply.t === 'refused' ? [reply.reason] : []))

async function publisher(harness: Harness, peer: Peer): Promise<Publisher> {
  const stream = new Publisher(harness, peer)
  await stream.publish([])
  return stream
}

const translated = (harness: Harness, cluster: string) => harness.log.get('member', cluster)?.translated
const podsOf = (harness: Harness, cluster: string) => harness.log.get('member', cluster)?.facts.podCIDRs

t.test('ranges that are stated after the join wait, and the accepted ones stay in force', async (t) => {
  const harness = await started(t)
  const { tokens, log } = harness
  await accepted(harness, 'victim', '10.20.0.0/16')
  const { peer, ranges } = await accepted(harness, 'paris', '10.99.0.0/24')
  const stream = await publisher(harness, peer)
  const wide = { ...ranges, podCIDRs: ['10.99.0.0/24', '10.20.0.0/16'], version: 'v9', labels: { tier: 'gold' } }
  await stream.facts(wide)
  await stream.acknowledged()
  t.same(reasons(stream), ['RangesAwaitApproval'])
  t.equal(translated(harness, 'victim'), false, 'nobody is renumbered')
  t.same(podsOf(harness, 'paris'), ['10.99.0.0/24'])
  t.equal(log.get('member', 'paris')?.facts.version, 'v9', 'the rest of the facts counts')
  t.same(log.get('member', 'paris')?.facts.labels, {}, 'policies of others believe labels')
  await stream.put(aSlice('web', '10.20.0.9'))
  await stream.acknowledged()
  t.same(reasons(stream), ['RangesAwaitApproval', 'AddressOutsidePods'])
  const [waits] = await tokens.waiting()
  t.match(waits, {
    id: 'paris',
    what: 'ranges',
    state: 'waiting',
    podCIDRs: ['10.99.0.0/24', '10.20.0.0/16'],
    renumbers: ['victim'],
  })
  const [, paris] = (await tokens.members()).toSorted((a, b) => (a.id < b.id ? 1 : -1))
  t.same(paris?.notes, [
    'the cluster states ranges and labels that wait for approval (RangesAwaitApproval): ' +
      '10.99.0.0/24, 10.20.0.0/16, with labels tier=gold',
  ])
  const waiting = (await harness.lines()).find((line) => line.what.act === 'facts.waiting')
  t.match(waiting?.what.details, { renumbers: ['victim'], fingerprint: waits?.fingerprint })
  const counted = async () => {
    harness.broker.reportContact()
    return /waiting_joins\S* (\d+)/.exec(await harness.metrics.text())?.[1]
  }
  t.equal(await counted(), '1', 'the metric has it')

  t.match(await failure(tokens.accept({ cluster: 'paris', fingerprint: keyFingerprint('00'.repeat(32)) })), {
    reason: 'FingerprintDiffers',
  })
  const said = await tokens.accept({ cluster: 'paris', fingerprint: waits?.fingerprint ?? '' })
  t.match(said, { id: 'paris', repeated: false })
  await log.refresh()
  await eventually(() => translated(harness, 'victim') === true, { say: 'accepted ranges count' })
  t.same(podsOf(harness, 'paris'), wide.podCIDRs)
  t.same(log.get('member', 'paris')?.facts.labels, { tier: 'gold' })
  t.match(stream.ended, /accepted ranges of this cluster/, 'the member publishes anew')
  t.match(await tokens.accept({ cluster: 'paris', fingerprint: waits?.fingerprint ?? '' }), { repeated: true })
  t.same(await tokens.waiting(), [])
  t.equal(await counted(), '0')
  const last = (await harness.lines()).filter((line) => line.what.act === 'facts').at(-1)
  t.match(last?.what.details, { renumbered: ['victim'] })
})

t.test('refused ranges are refused until others are stated; who takes them back waits no more', async (t) => {
  const harness = await started(t)
  const { peer, ranges } = await accepted(harness, 'paris', '10.99.0.0/24')
  const stream = await publisher(harness, peer)
  const state = async (podCIDRs: string[]) => {
    await stream.facts({ ...ranges, podCIDRs })
    await stream.acknowledged()
    return reasons(stream).at(-1)
  }
  t.equal(await state(['10.20.0.0/16']), 'RangesAwaitApproval')
  t.match(await harness.tokens.refuse({ cluster: 'paris' }), { repeated: false })
  t.equal(await state(['10.20.0.0/16']), 'RangesRefusedByOperator')
  t.equal(await state(['10.21.0.0/16']), 'RangesAwaitApproval', 'others wait anew')
  const before = reasons(stream).length
  await state(['10.99.0.0/25'])
  t.equal(reasons(stream).length, before, 'a part of what was accepted is taken at once')
  t.same(await harness.tokens.waiting(), [])
  t.same(podsOf(harness, 'paris'), ['10.99.0.0/25'])
})

t.test('service ranges wait; node networks wait where they would renumber somebody', async (t) => {
  const harness = await started(t)
  await accepted(harness, 'victim', '10.20.0.0/16')
  const { peer, ranges } = await accepted(harness, 'paris', '10.99.0.0/24')
  const stream = await publisher(harness, peer)
  await stream.facts({ ...ranges, neededCIDRs: ['192.168.7.0/24'] })
  await stream.acknowledged()
  t.same(reasons(stream), [], 'nodes come and go')
  await stream.facts({ ...ranges, neededCIDRs: ['192.168.7.0/24', '10.20.0.0/24'] })
  await stream.acknowledged()
  await stream.facts({ ...ranges, serviceCIDRs: ['10.20.0.0/20'] })
  await stream.acknowledged()
  t.same(reasons(stream), ['RangesAwaitApproval', 'RangesAwaitApproval'])
  t.equal(translated(harness, 'victim'), false)
})

t.test("a gateway's address in others' pods is refused until its network is accepted", async (t) => {
  const harness = await started(t)
  await accepted(harness, 'victim', '10.20.0.0/16')
  const { peer, ranges } = await accepted(harness, 'paris', '10.99.0.0/24')
  const stream = await publisher(harness, peer)
  await stream.put(gateway('paris', '10.20.0.7'))
  await stream.acknowledged()
  t.same(reasons(stream), ['RangesAwaitApproval'])
  t.equal(translated(harness, 'victim'), false)
  await stream.facts({ ...ranges, neededCIDRs: ['10.20.0.7/32'] })
  await stream.acknowledged()
  await harness.tokens.accept({ cluster: 'paris' })
  await harness.log.refresh()
  await eventually(() => translated(harness, 'victim') === true, { say: 'accepted' })
  const again = await publisher(harness, peer)
  await again.put(gateway('paris', '10.20.0.7'))
  await again.acknowledged()
  t.same(reasons(again), [])
})

t.test('the same join once more does not bring other ranges in', async (t) => {
  const harness = await started(t)
  await accepted(harness, 'victim', '10.20.0.0/16')
  const { ask } = await accepted(harness, 'paris', '10.99.0.0/24')
  const response = await ask({ facts: facts(['10.20.0.0/16'], { serviceCIDRs: [] }) })
  t.same(response.podCIDRs, ['10.99.0.0/24'])
  t.equal(translated(harness, 'victim'), false)
})

t.test('a member whose token asked is asked about later, and so it is after a new identity', async (t) => {
  const harness = await started(t, false)
  await join_(harness, 'victim', { facts: facts(['10.20.0.0/16'], { serviceCIDRs: [] }) })
  const { text } = await harness.tokens.create({ approve: true })
  await accepted(harness, 'paris', '10.99.0.0/24', text)
  const { text: rekey } = await harness.tokens.rekey({ cluster: 'paris' })
  const wide = facts(['10.20.0.0/16'], { serviceCIDRs: [] })
  const { peer, response } = await join_(harness, 'paris', { token: rekey, facts: wide })
  t.same(response.podCIDRs, ['10.99.0.0/24'])
  const stream = await publisher(harness, peer)
  await stream.facts(wide)
  await stream.acknowledged()
  t.same(reasons(stream), ['RangesAwaitApproval'])
  t.equal(translated(harness, 'victim'), false)
})

t.test('without approval the audit log names who was renumbered by whom', async (t) => {
  const harness = await started(t, false)
  for (const [id, cidr] of [
    ['victim', '10.20.0.0/16'],
    ['other', '10.30.0.0/16'],
  ] as const)
    await join_(harness, id, { facts: facts([cidr], { serviceCIDRs: [] }) })
  const { peer } = await join_(harness, 'paris', { facts: facts(['10.99.0.0/24'], { serviceCIDRs: [] }) })
  const stream = await publisher(harness, peer)
  await stream.facts(facts(['10.99.0.0/24', '10.20.0.0/16'], { serviceCIDRs: [] }))
  await stream.put(gateway('paris', '10.30.0.7'))
  await stream.acknowledged()
  await join_(harness, 'oslo', { facts: facts(['10.99.0.0/25'], { serviceCIDRs: [] }) })
  await join_(harness, 'bern', { facts: facts(['10.40.0.0/16'], { serviceCIDRs: [] }) })
  await join_(harness, 'rome', { facts: facts(['10.40.0.0/17'], { serviceCIDRs: [] }) })
  const named = (await harness.lines()).flatMap((line) => {
    const { renumbered } = line.what.details ?? {}
    return renumbered === undefined
      ? []
      : [`${JSON.stringify(line.who['cluster'])} ${shortLine(line)}: ${JSON.stringify(renumbered)}`]
  })
  t.same(named, [
    '"paris" facts ok paris: ["victim"]',
    `"paris" record ok Endpoint//${gateway('paris', '10.30.0.7').name}: ["other"]`,
    '"rome" join ok rome: ["bern"]',
  ])
})

t.test('labels that are stated after the join wait, whatever node networks do meanwhile', async (t) => {
  const harness = await started(t)
  const { peer, ask, ranges } = await accepted(harness, 'paris', '10.99.0.0/24')
  const member = () => harness.log.get('member', 'paris')
  const stream = await publisher(harness, peer)
  const state = async (change: Partial<typeof ranges>) => {
    const before = reasons(stream).length
    await stream.facts({ ...ranges, ...change })
    await stream.acknowledged()
    return reasons(stream).slice(before)
  }
  const labels = { tier: 'prod' }
  t.same(await state({ labels }), ['RangesAwaitApproval'])
  t.same(member()?.facts.labels, {})
  const [waits] = await harness.tokens.waiting()
  t.match(waits, { what: 'ranges', labels, podCIDRs: ['10.99.0.0/24'] })
  const note = 'the cluster states labels that wait for approval (RangesAwaitApproval): labels tier=prod'
  t.same((await harness.tokens.members())[0]?.notes, [note])
  const text = /^cluster "paris" waits for approval of new labels, with the fingerprint /
  t.match(await failure(harness.tokens.accept({ cluster: 'paris', fingerprint: keyFingerprint('0'.repeat(64)) })), {
    message: text,
  })
  t.match(await harness.tokens.refuse({ cluster: 'paris' }), { repeated: false })
  const neededCIDRs = ['192.168.7.0/24']
  t.same(await state({ labels, neededCIDRs }), ['RangesRefusedByOperator'], 'a new node does not ask again')
  t.same(member()?.facts.neededCIDRs, neededCIDRs, 'and counts')
  await ask({ facts: { ...ranges, labels } })
  t.same(member()?.facts.labels, {}, 'nor does the same join once more')
  t.same(await state({ labels: {}, neededCIDRs }), [], 'taken back')
  t.same(await harness.tokens.waiting(), [])

  t.same(await state({ labels, neededCIDRs }), ['RangesAwaitApproval'])
  const fingerprint = waits?.fingerprint ?? ''
  t.match(await harness.tokens.accept({ cluster: 'paris', fingerprint }), { repeated: false })
  await harness.log.refresh()
  await eventually(() => member()?.facts.labels['tier'] === 'prod', { say: 'accepted labels count' })
  t.same(member()?.facts.neededCIDRs, neededCIDRs)
  t.match(stream.ended, /accepted ranges of this cluster/, 'the member publishes again')
  t.match(await harness.tokens.accept({ cluster: 'paris', fingerprint }), { repeated: true })
  const again = await publisher(harness, peer)
  await again.facts({ ...ranges, neededCIDRs })
  await again.acknowledged()
  t.same(reasons(again), ['RangesAwaitApproval'], 'a selector may look for the absence of a label')
  t.same(member()?.facts.labels, labels)
})

t.test('labels of the token stay, whatever the member states and however it joins again', async (t) => {
  const harness = await started(t, false)
  const labels = { tier: 'dev', team: 'shop' }
  const { text: token } = await harness.tokens.create({ cluster: 'paris', labels })
  const mine = { ...facts(['10.99.0.0/24'], { serviceCIDRs: [] }), labels: { tier: 'prod', room: 'b' } }
  const { peer } = await join_(harness, 'paris', { token, facts: mine })
  const stands = () => harness.log.get('member', 'paris')?.facts.labels
  t.same(stands(), { ...labels, room: 'b' })
  const stream = await publisher(harness, peer)
  await stream.facts(mine)
  await stream.acknowledged()
  t.same(reasons(stream), ['LabelFixedByToken'])
  await stream.facts({ ...mine, version: 'v9', labels: { room: 'c' } })
  await stream.acknowledged()
  t.same(reasons(stream), ['LabelFixedByToken'], 'what it does not state is no contradiction')
  t.same(stands(), { ...labels, room: 'c' }, 'other labels are its own word')
  const full = Object.fromEntries(Array.from({ length: 63 }, (_, i) => [`k${i}`, 'v']))
  await stream.facts({ ...mine, labels: full })
  await stream.acknowledged()
  t.same(reasons(stream), ['LabelFixedByToken', 'InvalidValue'])
  t.same(stands(), { ...labels, room: 'c' }, 'no room is made by leaving them out')

  const { text: rekey } = await harness.tokens.rekey({ cluster: 'paris' })
  await join_(harness, 'paris', { token: rekey, facts: mine })
  t.same(stands(), { ...labels, room: 'b' }, 'a new identity')
  const { text: other } = await harness.tokens.create({ cluster: 'paris', labels: { tier: 'prod' } })
  await join_(harness, 'paris', { token: other, facts: { ...mine, labels: {} } })
  t.same(stands(), { tier: 'prod' }, 'the operator changes them by another token')
  for (const wrong of [{ 'a b': 'c' }, { tier: 'x'.repeat(64) }])
    t.match(await failure(harness.tokens.create({ labels: wrong })), { field: /^labels/ })
  t.ok((await harness.tokens.list()).some((one) => one.labels?.['tier'] === 'prod'))
})

t.test('labels of a token are no part of what the next one gives, and go with the membership', async (t) => {
  const harness = await started(t, false)
  const { log, tokens, clock } = harness
  const bare = facts(['10.99.0.0/24'], { serviceCIDRs: [] })
  const tokenOf = async (init: Parameters<typeof tokens.create>[0]) => (await tokens.create(init)).text
  const stands = (cluster: string) => {
    const row = log.get('member', cluster)
    return [row?.facts.labels, row?.tokenLabels]
  }
  const prod = { tier: 'prod' }
  for (const [say, end, plain, want] of [
    ['evicted, a token for any cluster', 'evict', {}, [{}, undefined]],
    ['evicted, a token for this id', 'evict', { cluster: 'paris' }, [{}, undefined]],
    ['its certificates have ended, a token for any cluster', 'expire', {}, [{}, undefined]],
    ['its certificates have ended, a token for this id', 'expire', { cluster: 'paris' }, [prod, prod]],
    ['live, a token for this id', 'stay', { cluster: 'paris' }, [prod, prod]],
  ] as const) {
    await join_(harness, 'paris', { token: await tokenOf({ cluster: 'paris', labels: prod }), facts: bare })
    t.same(stands('paris'), [prod, prod], say)
    if (end === 'evict') {
      await tokens.evict({ cluster: 'paris', force: true })
      await log.refresh()
      t.equal(log.get('member', 'paris')?.tokenLabels, undefined, `${say}: it left none`)
    }
    if (end === 'expire') await clock.advance(400 * 24 * 3_600_000)
    await join_(harness, 'paris', { token: await tokenOf(plain), facts: bare })
    t.same(stands('paris'), want, say)
  }

  const token = await tokenOf({ cluster: 'rome', labels: prod, approve: true })
  await accepted(harness, 'rome', '10.98.0.0/24', token)
  t.same(stands('rome'), [prod, prod])
  const team = { team: 'x' }
  const mine = { ...facts(['10.98.0.0/24'], { serviceCIDRs: [] }), labels: { room: 'b' } }
  await join_(harness, 'rome', { token: await tokenOf({ cluster: 'rome', labels: team }), facts: mine })
  t.same(stands('rome'), [team, team], 'an operator still approves what it states itself')
})

function gateway(cluster: string, address: string): MemberRecord {
  const publicKey = Buffer.alloc(32, 7).toString('base64')
  const candidates = [{ kind: 'private' as const, address, port: 51_820 }]
  const spec = { cluster, node: 'gw0', lane: 0, publicKey, candidates, capabilities: [] }
  return { namespace: '', name: endpointName(cluster, 'gw0', 0), body: { kind: 'Endpoint', spec } }
}
