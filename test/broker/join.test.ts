import t from 'tap'
import type { Peer, RefusedError } from '../../protocol/broker-api.ts'
import { createKey } from '../../protocol/identity/keys.ts'
import { readCertificate } from '../../protocol/identity/certificates.ts'
import { createCsr } from '../../protocol/identity/x509.ts'
import { type Harness, Publisher, Watcher, facts, joinRequest, join_, peerOf, startBroker } from './support/harness.ts'

const HOUR = 3_600_000

async function refusal(work: Promise<unknown>): Promise<string> {
  try {
    await work
    return 'no refusal'
  } catch (error) {
    const { code, field, message } = error as RefusedError
    return `${code} ${field} | ${message}`
  }
}

/** The clock starts at 2026-01-01T00:00:00Z. */
t.test('a member joins', async (t) => {
  const harness = await startBroker(t)
  const { response } = await join_(harness, 'milano')
  t.match(response, {
    clusterset: 'demo',
    clusterIndex: 1,
    globalCIDRs: [],
    globalRange: '244.0.0.0/8',
    clustersetIpRange: '245.0.0.0/16',
    observedAddress: '192.0.2.1',
  })
  const certificate = readCertificate(response.certificate)
  t.match(certificate, { clusterset: 'demo', cluster: 'milano', isCa: false })
  t.equal(certificate.notAfterMs, harness.clock.now() + 24 * HOUR)
  t.equal(readCertificate(response.caBundle[0] ?? new Uint8Array()).isCa, true)
  t.match(await harness.tokens.list(), [{ state: 'used', usesLeft: 0, usedBy: ['milano'] }])
})

const TAKEN =
  'AlreadyExists cluster | cluster: "milano" is already a member (joined 2026-01-01T00:00:00Z, last seen 2026-01-01T00:00:00Z): ' +
  'choose another cluster id; or, if this is the same cluster, run "sealane leave" there first or join with a token for this id: ' +
  '"sealane token create --cluster-id milano"'

function used(id: string, cluster: string): string {
  return `Unauthenticated token | token: ${id} was already used by cluster "${cluster}" at 2026-01-01T00:00:00Z: create a new one with "sealane token create"`
}

t.test('token refusals', async (t) => {
  const harness = await startBroker(t)
  const { tokens, clock, broker } = harness
  const again = 'create a new one with "sealane token create"'
  const attempt = async (change: Parameters<typeof joinRequest>[1]): Promise<string> =>
    refusal(broker.join(await joinRequest(harness, change), '192.0.2.1'))

  t.equal(await attempt({ secret: 'nonsense' }), `Unauthenticated token | token: malformed: ${again}`)
  t.equal(
    await attempt({ secret: 'A'.repeat(43) }),
    `Unauthenticated token | token: not known to this broker: another broker created it, or it was removed; ${again}`,
  )
  const used = await tokens.create({})
  await join_(harness, 'milano', { token: used.text })
  t.equal(
    await attempt({ token: used.text, cluster: 'paris' }),
    `Unauthenticated token | token: ${used.id} was already used by cluster "milano" at 2026-01-01T00:00:00Z: ${again}`,
  )
  const revoked = await tokens.create({})
  await tokens.revoke(revoked.id)
  t.equal(
    await attempt({ token: revoked.text }),
    `Unauthenticated token | token: ${revoked.id} was revoked at 2026-01-01T00:00:00Z: ${again}`,
  )
  const bound = await tokens.create({ cluster: 'tokyo' })
  t.equal(
    await attempt({ token: bound.text, cluster: 'paris' }),
    `PermissionDenied token | token: ${bound.id} is for cluster "tokyo", not "paris"`,
  )
  const old = await tokens.create({})
  await clock.advance(15 * 60_000)
  t.equal(
    await attempt({ token: old.text }),
    `Unauthenticated token | token: ${old.id} expired at 2026-01-01T00:15:00Z: ${again}`,
  )
  t.notMatch(JSON.stringify(harness.logger.lines), new RegExp(old.text.slice(20, 60)), 'no secret in the log')
})

t.test('strangers cannot fill the log', async (t) => {
  const harness = await startBroker(t)
  const request = await joinRequest(harness, { secret: 'nonsense' })
  const reported = async (): Promise<number> => {
    for (let i = 0; i < 150; i += 1) await refusal(harness.broker.join(request, '192.0.2.1'))
    return harness.logger.lines.filter(({ level, message }) => level === 'warn' && message === 'join refused').length
  }
  t.equal(await reported(), 100)
  await harness.broker.tidy()
  t.equal(await reported(), 200)
})

t.test('a token for several clusters', async (t) => {
  const harness = await startBroker(t)
  const { id, text } = await harness.tokens.create({ uses: 2 })
  await join_(harness, 'milano', { token: text })
  await join_(harness, 'paris', { token: text })
  t.equal(await refusal(join_(harness, 'tokyo', { token: text })), used(id, 'paris'))
})

t.test('a lost answer: the same request again is granted, another key is not', async (t) => {
  const harness = await startBroker(t)
  const { id, text } = await harness.tokens.create({})
  const csr = await createCsr(createKey())
  const first = await join_(harness, 'milano', { token: text, csr })
  const second = await join_(harness, 'milano', { token: text, csr })
  t.equal(second.response.clusterIndex, first.response.clusterIndex)
  t.equal(await refusal(join_(harness, 'milano', { token: text })), used(id, 'milano'))
})

t.test('a spent token is no way back: not after leaving, not after an eviction, not past a successor', async (t) => {
  const harness = await startBroker(t)
  const { broker, tokens } = harness
  const { id, text } = await tokens.create({})
  const csr = await createCsr(createKey())
  const attempt = { token: text, csr }
  const first = await join_(harness, 'milano', attempt)
  await broker.leave(first.peer)
  t.equal(await refusal(join_(harness, 'milano', attempt)), used(id, 'milano'), 'left')
  const bound = await tokens.create({ cluster: 'milano' })
  const again = { token: bound.text, csr }
  await join_(harness, 'milano', again)
  await tokens.evict({ cluster: 'milano', force: true })
  t.equal(await refusal(join_(harness, 'milano', again)), used(bound.id, 'milano'), 'evicted')
  await join_(harness, 'milano')
  t.equal(await refusal(join_(harness, 'milano', again)), used(bound.id, 'milano'), 'succeeded')
})

t.test('other refusals of a join', async (t) => {
  const harness = await startBroker(t)
  const { clock } = harness
  const rows: [Parameters<typeof joinRequest>[1], string][] = [
    [
      { nowMs: clock.now() + HOUR },
      'FailedPrecondition clock | clock: the time is 2026-01-01T01:00:00Z on this machine and 2026-01-01T00:00:00Z on the broker: correct the clock that is wrong (the maximum difference is 5 minutes)',
    ],
    [
      { nowMs: clock.now() - HOUR },
      'FailedPrecondition clock | clock: the time is 2025-12-31T23:00:00Z on this machine and 2026-01-01T00:00:00Z on the broker: correct the clock that is wrong (the maximum difference is 5 minutes)',
    ],
    [
      { nowMs: 1e300 },
      'FailedPrecondition clock | clock: the time is 1e+300 on this machine and 2026-01-01T00:00:00Z on the broker: correct the clock that is wrong (the maximum difference is 5 minutes)',
    ],
    [
      { cluster: 'Milano' },
      'InvalidArgument cluster | cluster "Milano": expected an RFC 1123 label: 1 to 63 of a-z, 0-9 and -',
    ],
    [
      { cluster: 'a.b' },
      'InvalidArgument cluster | cluster "a.b": expected an RFC 1123 label: 1 to 63 of a-z, 0-9 and -',
    ],
    [
      { facts: facts(['10.42.0.0/33']) },
      'InvalidArgument podCIDRs[0] | podCIDRs[0]: "10.42.0.0/33": expected a prefix length of at most 32',
    ],
    [{ csr: Buffer.from('nonsense') }, 'InvalidArgument csr | certificate request: not PKCS #10 in DER form'],
  ]
  for (const [change, want] of rows) t.equal(await refusal(join_(harness, 'milano', change)), want)
  t.equal(harness.log.count('member'), 0)
  t.same(
    (await harness.tokens.list()).map((token) => token.usesLeft),
    rows.map(() => 1),
    'a refused join costs no use of the token',
  )
})

t.test('two sites with one id', async (t) => {
  const harness = await startBroker(t)
  const { clock, tokens } = harness
  const first = await join_(harness, 'milano')
  t.equal(await refusal(join_(harness, 'milano')), TAKEN)
  await clock.advance(23 * HOUR)
  t.equal(await refusal(join_(harness, 'milano')), TAKEN, 'as long as its certificate is good')

  // A token that names this cluster is the operator's consent.
  const second = await join_(harness, 'milano', { token: (await tokens.create({ cluster: 'milano' })).text })
  t.equal(second.response.clusterIndex, first.response.clusterIndex)
  t.equal(
    await refusal(harness.broker.renew(first.peer, await createCsr(createKey()))),
    `PermissionDenied certificate | certificate ${first.peer.serial} of cluster "milano" was replaced: another site has joined as "milano", or this one has joined again`,
  )

  await clock.advance(30 * 24 * HOUR)
  t.match(await refusal(join_(harness, 'milano')), /^AlreadyExists /, 'as long as its certificate can be renewed')

  // Once no certificate can be renewed, the cluster has to join again anyway.
  await clock.advance(25 * HOUR)
  const third = await join_(harness, 'milano')
  t.equal(third.response.clusterIndex, first.response.clusterIndex)
})

t.test('a member that is connected keeps its id, whatever its certificates say', async (t) => {
  const harness = await startBroker(t)
  const { peer } = await join_(harness, 'milano')
  const stream = new Publisher(harness, peer)
  await harness.clock.advance(32 * 24 * HOUR)
  t.equal(await refusal(join_(harness, 'milano')), TAKEN)
  stream.end()
  await join_(harness, 'milano')
})

t.test('renewal', async (t) => {
  const harness = await startBroker(t)
  const { broker, clock } = harness
  const { peer } = await join_(harness, 'milano')
  await clock.advance(16 * HOUR)
  const renewed = await broker.renew(peer, await createCsr(createKey()))
  t.equal(readCertificate(renewed.certificate).notAfterMs, clock.now() + 24 * HOUR)
  const next = peerOf('milano', renewed)
  await broker.renew(next, await createCsr(createKey()))
  t.ok(new Publisher(harness, peer), 'the old one is good for a moment more')
  await clock.advance(9 * HOUR)
  t.match(
    await refusal(broker.renew(peer, await createCsr(createKey()))),
    /^PermissionDenied certificate \| .* replaced/,
  )
  await broker.renew(next, await createCsr(createKey()))
})

t.test('a member that was off for weeks renews its certificate; one that is no member any more does not', async (t) => {
  const harness = await startBroker(t)
  const { broker, clock, tokens } = harness
  const csr = await createCsr(createKey())
  const members = new Map<string, Peer>()
  for (const id of ['milano', 'paris', 'roma', 'tokyo']) members.set(id, (await join_(harness, id)).peer)
  const peer = (id: string): Peer => members.get(id)!
  await broker.leave(peer('paris'))
  await clock.advance(29 * 24 * HOUR)
  await tokens.evict({ cluster: 'roma', force: true })
  await tokens.rekey({ cluster: 'tokyo' })
  const renewed = await broker.renew(peer('milano'), csr)
  t.match(await refusal(broker.renew(peer('paris'), csr)), /^PermissionDenied .* left at /)
  t.match(await refusal(broker.renew(peer('roma'), csr)), /^PermissionDenied .* was evicted at /)
  t.match(await refusal(broker.renew(peer('tokyo'), csr)), /^PermissionDenied .* was revoked at /)
  t.throws(() => new Publisher(harness, peer('milano')), /expired at/, 'the expired one is good for a renewal only')
  t.ok(new Publisher(harness, peerOf('milano', renewed)), 'the renewed one is good for all')
  await clock.advance(HOUR)
  t.match(
    await refusal(broker.renew(peer('milano'), csr)),
    /^PermissionDenied .* was replaced/,
    'a copy of it is refused',
  )
  await clock.advance(31 * 24 * HOUR)
  t.match(
    await refusal(broker.renew(peerOf('milano', renewed), csr)),
    /^Unauthenticated .* expired at \S+, and the broker renews it for 720h after that: join again with a new token$/,
  )
})

t.test("an id is nobody else's while a certificate that was issued for it lasts, used or not", async (t) => {
  const harness = await startBroker(t)
  const { broker, clock } = harness
  const { peer } = await join_(harness, 'milano')
  await clock.advance(16 * HOUR)
  const renewed = await broker.renew(peer, await createCsr(createKey()))
  await clock.advance(10 * HOUR)
  t.match(await refusal(join_(harness, 'milano')), /^AlreadyExists cluster /)
  t.ok(new Publisher(harness, peerOf('milano', renewed)), 'it was away, and comes back')
})

t.test('overlapping members are all translated, and keep their blocks over leaving and coming back', async (t) => {
  const harness = await startBroker(t)
  const milano = await join_(harness, 'milano')
  const watcher = new Watcher(harness, milano.peer)
  await watcher.line('put milano/Cluster//milano')
  const paris = await join_(harness, 'paris')
  t.same(paris.response.globalCIDRs, ['244.1.0.0/16'])
  await watcher.line('put milano/Cluster//milano 244.0.0.0/16')
  await watcher.line('put paris/Cluster//paris 244.1.0.0/16')

  await harness.broker.leave(paris.peer)
  await watcher.line('remove paris/Cluster//paris')
  t.equal(
    await refusal(harness.broker.renew(paris.peer, await createCsr(createKey()))),
    'PermissionDenied certificate | cluster "paris" left at 2026-01-01T00:00:00Z: join again with a new token',
  )
  await harness.broker.leave(paris.peer)
  t.pass('leaving twice is leaving once: the first answer may have been lost')

  const tokyo = await join_(harness, 'tokyo')
  t.same(tokyo.response.globalCIDRs, ['244.2.0.0/16'])
  const back = await join_(harness, 'paris')
  t.equal(back.response.clusterIndex, paris.response.clusterIndex)
  t.same(back.response.globalCIDRs, ['244.1.0.0/16'])
  await watcher.stop()
})

t.test('an exhausted global range', async (t) => {
  const harness = await startBroker(t, { config: { globalRange: '244.0.0.0/16' } })
  await join_(harness, 'milano')
  t.equal(
    await refusal(join_(harness, 'paris')),
    'ResourceExhausted podCIDRs | podCIDRs: the global range 244.0.0.0/16 is exhausted: pod CIDR 10.42.0.0/16 of cluster "paris" overlaps another cluster\'s and needs a /16 block, and no block is free (0 of 65536 addresses are free, 1 block is given): choose pod CIDRs that no other cluster uses, or smaller ones; or evict members that are gone for good ("sealane cluster list", "sealane cluster evict"); or create a clusterset with a larger range (--global-range at the first start of its broker)',
  )
  t.equal(harness.log.count('member'), 1, 'nothing of it stays')
  await join_(harness, 'paris', { facts: facts(['10.50.0.0/16']) })
})

t.test('a certificate of the CA for a cluster that never joined', async (t) => {
  const harness: Harness = await startBroker(t)
  const { peer } = await join_(harness, 'milano')
  const stranger = { ...peer, cluster: 'paris' as typeof peer.cluster }
  t.throws(() => new Publisher(harness, stranger), {
    code: 'PermissionDenied',
    message: 'cluster "paris" is not a member of this clusterset: join with a token',
  })
})

t.test('an id that is reserved now: members that have it stay, and nobody else gets it', async (t) => {
  const harness = await startBroker(t)
  const { log, tokens, broker } = harness
  await join_(harness, 'milano')
  const row = log.get('member', 'milano')
  await log.transact((tx) => {
    if (row !== undefined) tx.put('member', 'broker', { ...row, index: 7 })
  })
  const { text } = await tokens.create({ cluster: 'broker' })
  const again = await join_(harness, 'broker', { token: text })
  t.equal(again.response.clusterIndex, 7)
  await broker.leave(again.peer)
  const reserved = 'InvalidArgument cluster | cluster: "broker" is reserved: expected an id that names the cluster'
  t.match(await refusal(tokens.create({ cluster: 'broker' })), reserved)
  t.match(await refusal(join_(harness, 'broker')), reserved)
  t.equal(await refusal(join_(harness, 'broker-east')), 'no refusal')
})

t.test('a look at a join names whom it renumbers, and changes nothing', async (t) => {
  const harness = await startBroker(t)
  const { broker, log, tokens } = harness
  const look = async (cluster: string, podCIDRs: string[], change: { token?: string; secret?: string } = {}) => {
    const request = await joinRequest(harness, { cluster, facts: facts(podCIDRs), ...change })
    return broker.lookAtJoin({ ...request, csr: new Uint8Array(), look: true }, '192.0.2.1')
  }
  t.same(await look('milano', ['10.42.0.0/16']), { globalCIDRs: [], renumbered: [] }, 'the first one')
  await join_(harness, 'milano')
  await join_(harness, 'lyon', { facts: facts(['10.50.0.0/16']) })
  const renumbered = [{ cluster: 'milano', globalCIDRs: ['244.0.0.0/16'] }]
  const { text: token } = await tokens.create({})
  await log.refresh()
  const before = log.revision
  t.same(await look('paris', ['10.42.0.0/16'], { token }), { globalCIDRs: ['244.1.0.0/16'], renumbered })
  t.equal(log.revision, before, 'nothing is written')
  t.equal(log.get('member', 'paris'), undefined)
  const { response } = await join_(harness, 'paris', { token })
  t.same(response.renumbered, renumbered, 'the join itself says so too, by the same token')
  t.same((await look('tokyo', ['10.42.0.0/16'])).renumbered, [], 'who is translated already notices nothing')
  t.match(await refusal(look('tokyo', ['10.60.0.0/16'], { token })), /was already used/, 'a spent token does not look')
  t.match(await refusal(look('tokyo', ['10.60.0.0/16'], { secret: 'A'.repeat(43) })), /not known to this broker/)
  t.match(await refusal(look('milano', ['10.60.0.0/16'])), /is already a member/, 'what the join would be refused for')
})

t.test('a look, and the join, say what a renumbered member told of its open connections', async (t) => {
  const harness = await startBroker(t)
  const { broker } = harness
  const openConnections = { count: 12, atLeast: false }
  const { peer } = await join_(harness, 'milano')
  const stream = new Publisher(harness, peer)
  await stream.publish([])
  await stream.status({ notImported: [], leftOut: 0, openConnections })
  await stream.acknowledged()
  await join_(harness, 'lyon', { facts: facts(['10.50.0.0/16']) })
  const both = facts(['10.42.0.0/16', '10.50.0.0/16'])
  const request = await joinRequest(harness, { cluster: 'paris', facts: both })
  const want = [
    { cluster: 'lyon', globalCIDRs: ['244.0.0.0/16'] },
    { cluster: 'milano', globalCIDRs: ['244.1.0.0/16'], openConnections },
  ]
  const look = await broker.lookAtJoin({ ...request, csr: new Uint8Array(), look: true }, '192.0.2.1')
  t.strictSame(look.renumbered, want)
  t.strictSame((await join_(harness, 'paris', { facts: both })).response.renumbered, want)
  stream.end()
})

t.test('after a restore an id is nobody else’s while a certificate of the lost time may last', async (t) => {
  const harness = await startBroker(t)
  await join_(harness, 'milano')
  await harness.clock.advance(30 * HOUR)
  const now = harness.clock.now()
  await harness.log.transact((tx) => {
    const row = tx.get('member', 'milano')
    if (row !== undefined) tx.put('member', 'milano', { ...row, restored: { takenAtMs: now - 29 * HOUR, atMs: now } })
  })
  await t.rejects(join_(harness, 'milano'), { code: 'AlreadyExists', field: 'cluster' })
  await harness.clock.advance(31 * 24 * HOUR)
  await t.resolves(join_(harness, 'milano'))
})
