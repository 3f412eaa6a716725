import t from 'tap'
import type { ClusterId } from '../../model/ids.ts'
import { type PublishReply, RefusedError, type WatchMessage } from '../../protocol/broker-api.ts'
import { BrokerUnreachableError, CertificateError } from '../../protocol/broker-client.ts'
import { createKey } from '../../protocol/identity/keys.ts'
import { fingerprint } from '../../protocol/identity/certificates.ts'
import { createJoinToken } from '../../protocol/identity/token.ts'
import { createCsr } from '../../protocol/identity/x509.ts'
import { inMemoryBroker } from '../../protocol/transport/in-memory.ts'
import { AddressBook } from '../../protocol/broker-addresses.ts'
import { connectBroker, connectForJoin } from '../../protocol/transport/grpc-client.ts'
import { markHashOf, newProcessMark } from '../../protocol/identity/process-mark.ts'
import { ListenError } from '../../protocol/transport/grpc-server.ts'
import { eventually } from '../support/eventually.ts'
import { failure } from '../support/failure.ts'
import { FACTS, slice } from './samples.ts'
import { type Site, authority, clock, member, silent, startSite } from './site.ts'

const signal = AbortSignal.timeout(60_000)
const TIME = /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3})?Z/g
const by = await authority('demo')
const other = await authority('other')
const site: Site = await startSite(by)
t.teardown(() => site.close())
const milano = await member(by, 'milano')

async function firstWatched(client: ReturnType<Site['client']>): Promise<WatchMessage[]> {
  const messages: WatchMessage[] = []
  for await (const message of client.watch({}, signal)) {
    messages.push(message)
    break
  }
  return messages
}

t.test('join works without a certificate, with the CA pinned by the token', async (t) => {
  site.api.joinAnswer = (request, peerAddress) => ({
    certificate: request.csr,
    caBundle: [by.ca.certificate],
    clusterset: 'demo',
    clusterIndex: 3,
    podCIDRs: ['10.42.0.0/16'],
    serviceCIDRs: ['fd00:9::/108'],
    globalCIDRs: ['244.1.0.0/16'],
    globalRange: '244.0.0.0/8',
    clustersetIpRange: '245.0.0.0/16',
    observedAddress: peerAddress,
    observedCounts: true,
  })
  const token = createJoinToken({
    addresses: ['127.0.0.1:1', site.address],
    caPin: fingerprint(by.ca.certificate),
    clusterset: 'demo',
    expiresAtMs: clock.now() + 60_000,
  })
  const client = await connectForJoin({ token, clock, logger: silent }, signal)
  t.teardown(() => client.close())
  const csr = await createCsr(createKey())
  const answer = await client.join({ secret: token.secret(), cluster: 'milano', csr, facts: FACTS, nowMs: 1 }, signal)
  t.equal(answer.clusterIndex, 3)
  t.same([answer.podCIDRs, answer.serviceCIDRs], [['10.42.0.0/16'], ['fd00:9::/108']])
  t.equal(answer.observedAddress, '127.0.0.1')
  t.same(Buffer.from(answer.certificate), Buffer.from(csr))

  site.api.joinAnswer = () => {
    throw new RefusedError('TokenUnknown', 'token', 'the join token is not known')
  }
  const refused = await failure(client.join({ secret: 'x', cluster: 'milano', csr, facts: FACTS, nowMs: 1 }, signal))
  t.match(refused, {
    name: 'RefusedError',
    code: 'Unauthenticated',
    field: 'token',
    message: 'the join token is not known',
  })
})

t.test('a token of another broker is told from a broker that does not answer', async (t) => {
  const init = { addresses: [site.address], clusterset: 'demo', expiresAtMs: clock.now() + 60_000 }
  const cases = [
    {
      token: createJoinToken({ ...init, caPin: fingerprint(other.ca.certificate) }),
      want: `the broker at ${site.address} does not have the CA that the join token names: the token is from another broker, or something intercepts the connection`,
    },
    {
      token: createJoinToken({ ...init, clusterset: 'other', caPin: fingerprint(other.ca.certificate) }),
      want: `the broker at ${site.address} belongs to clusterset "demo", expected "other"`,
    },
    {
      token: createJoinToken({ ...init, addresses: ['127.0.0.1:1'], caPin: fingerprint(by.ca.certificate) }),
      want: 'broker at 127.0.0.1:1: connection refused: nothing listens there',
    },
  ]
  for (const { token, want } of cases) {
    t.equal((await failure(connectForJoin({ token, clock, logger: silent }, signal))).message, want)
  }
})

t.test('the peer is who its certificate says', async (t) => {
  const client = site.client(milano)
  await client.renew(Buffer.from('csr'), signal)
  t.match(site.api.peers.at(-1), { cluster: 'milano', address: '127.0.0.1' })
  t.match(site.api.peers.at(-1)?.serial, /^[0-9a-f]{32}$/)
  t.equal(site.api.peers.at(-1)?.process, undefined)
})

t.test('each call bears the mark of its process, which the broker knows as a hash', async (t) => {
  const marks = [newProcessMark(), newProcessMark()]
  const known = new Set<string>()
  for (const processMark of marks) {
    const client = site.client(milano, { processMark })
    const from = site.api.peers.length
    await client.renew(Buffer.from('csr'), signal)
    await firstWatched(client)
    const stop = new AbortController()
    client.publish(stop.signal)
    await eventually(() => site.api.peers.length === from + 3)
    stop.abort()
    const shown = new Set(site.api.peers.slice(from).map((peer) => peer.process ?? ''))
    t.equal(shown.size, 1, 'the same in all calls')
    for (const hash of shown) {
      t.match(hash, /^[0-9a-f]{64}$/)
      known.add(hash)
    }
  }
  t.equal(known.size, 2)
  await eventually(() => site.api.openStreams === 0)
  for (const text of ['', 'x'.repeat(32), 'a'.repeat(31), 'a'.repeat(20_000)])
    t.equal(markHashOf([text]), undefined, `${text.slice(0, 40)} is no mark`)
})

t.test('an expired certificate may renew itself, and nothing else', async (t) => {
  const client = site.client(await member(by, 'milano', 48 * 3600_000))
  const before = site.api.peers.length
  await client.renew(Buffer.from('csr'), signal)
  t.equal(site.api.peers.length, before + 1)
  t.match(site.api.peers.at(-1), { cluster: 'milano' })
  for (const call of [() => client.leave(signal), () => firstWatched(client), () => readReplies(client)])
    t.match(await failure(call()), { problem: 'expired' })
  t.equal(site.api.peers.length, before + 1)
})

t.test('certificates that are not good enough, and why', async (t) => {
  const early = await member(by, 'milano', -24 * 3600_000)
  const stranger = await member(other, 'milano')
  const namesake = await member(await authority('demo'), 'milano')
  const cases = [
    {
      say: 'none',
      identity: undefined,
      problem: 'missing',
      want: 'this call needs the certificate that a cluster gets by joining; the caller sent none',
    },
    {
      say: 'expired, of another CA',
      identity: await member(await authority('demo'), 'milano', 48 * 3600_000),
      problem: 'untrusted',
      want: "the certificate was not issued by this broker's CA",
    },
    {
      say: 'from the future',
      identity: early,
      problem: 'notYetValid',
      want: 'the certificate is valid from TIME: check the clocks',
    },
    {
      say: 'of another clusterset',
      identity: stranger,
      problem: 'otherClusterset',
      want: 'the certificate belongs to clusterset "other", this broker to "demo"',
    },
    {
      say: 'of a CA with the same name',
      identity: namesake,
      problem: 'untrusted',
      want: "the certificate was not issued by this broker's CA (UNABLE_TO_VERIFY_LEAF_SIGNATURE)",
    },
    {
      say: 'of the broker itself',
      identity: by.server,
      problem: 'wrongIdentity',
      want: 'the certificate is not for clients',
    },
  ]
  for (const { say, identity, problem, want } of cases) {
    const client = site.client(identity)
    const failures = [
      await failure(client.renew(Buffer.from('csr'), signal)),
      await failure(client.leave(signal)),
      await failure(firstWatched(client)),
      await failure(readReplies(client)),
    ]
    for (const error of failures) {
      t.ok(error instanceof CertificateError, `${say}: ${error.message}`)
      t.equal(error.message.replaceAll(TIME, 'TIME'), want, say)
      t.match(error, { problem }, say)
    }
  }
  t.equal(site.api.openStreams, 0)
})

async function readReplies(client: ReturnType<Site['client']>): Promise<PublishReply[]> {
  const stream = client.publish(signal)
  const replies: PublishReply[] = []
  for await (const reply of stream.replies) replies.push(reply)
  return replies
}

t.test('a broker that is not ours is not believed', async (t) => {
  const cases = [
    {
      say: 'another clusterset',
      by: other,
      problem: 'otherClusterset',
      want: 'the broker at BROKER belongs to clusterset "other", expected "demo"',
    },
    {
      say: 'same name, other CA',
      by: await authority('demo'),
      problem: 'untrusted',
      want: 'the certificate of the broker at BROKER is not from the CA of this clusterset (SELF_SIGNED_CERT_IN_CHAIN)',
    },
    {
      say: 'a member that plays the broker',
      by: { ...by, server: await member(by, 'paris') },
      problem: 'untrusted',
      want: 'the certificate of the broker at BROKER is not from the CA of this clusterset (INVALID_PURPOSE)',
    },
  ]
  for (const { say, by: foreign, want } of cases) {
    const imposter = await startSite(foreign)
    const client = site.client(milano, { address: imposter.address })
    for (const error of [
      await failure(client.renew(Buffer.from('csr'), signal)),
      await failure(firstWatched(client)),
    ]) {
      t.ok(error instanceof CertificateError, `${say}: ${String(error)}`)
      t.equal(error.message.replaceAll(imposter.address, 'BROKER'), want, say)
    }
    t.equal(imposter.api.peers.length, 0, 'no call went through')
    await imposter.close()
  }
})

t.test('nobody listens', async (t) => {
  const error = await failure(site.client(milano, { address: '127.0.0.1:1' }).renew(Buffer.from('csr'), signal))
  t.ok(error instanceof BrokerUnreachableError)
  t.equal(error.message, 'broker at 127.0.0.1:1: connection refused: nothing listens there')
})

t.test('the next address is tried', async (t) => {
  const client = connectBroker({
    addresses: [],
    book: new AddressBook({ own: ['127.0.0.1:1', site.address], first: '127.0.0.1:1', clock }),
    clusterset: 'demo',
    ca: [by.ca.certificate],
    identity: milano,
    clock,
    logger: silent,
  })
  t.teardown(() => client.close())
  await client.renew(Buffer.from('csr'), signal)
})

t.test('two streams that fail together move on by one address, not by two', async (t) => {
  const client = connectBroker({
    addresses: [],
    book: new AddressBook({ own: ['127.0.0.1:1', site.address], first: '127.0.0.1:1', clock }),
    clusterset: 'demo',
    ca: [by.ca.certificate],
    identity: milano,
    clock,
    logger: silent,
  })
  t.teardown(() => client.close())
  const failures = await Promise.all([failure(firstWatched(client)), failure(readReplies(client))])
  for (const error of failures)
    t.equal(error.message, 'broker at 127.0.0.1:1: connection refused: nothing listens there')
  t.equal((await firstWatched(client)).length, 1)
})

t.test('port taken', async (t) => {
  const error = await failure(startSite(by, { listen: { host: '127.0.0.1', port: site.server.address.port } }))
  t.ok(error instanceof ListenError)
  t.equal(error.message, `cannot listen on ${site.address}: another process uses the address`)
})

t.test('publish: bytes that say nothing, and a message that is too large', async (t) => {
  const client = site.client(milano)
  const stream = client.publish(signal)
  const endpoints = Array.from({ length: 1001 }, () => ({ addresses: ['10.42.0.7'] }))
  const record = slice('web-1')
  const tooMany = { ...record, body: { ...record.body, endpoints } } as typeof record
  await stream.send({ t: 'put', sequence: 1, record: tooMany })
  const error = await failure(
    (async () => {
      for await (const _ of stream.replies) t.fail('no reply is due')
    })(),
  )
  t.match(error, {
    name: 'RefusedError',
    code: 'InvalidArgument',
    field: 'record.body.endpoints',
    message: 'record.body.endpoints: 1001 entries: expected at most 1000',
  })
  t.equal(await failure(stream.send({ t: 'put', sequence: 2, record })), error, 'the writer is told the same')

  const huge = { ...record, body: { ...record.body, service: 'x'.repeat(5 * 1024 * 1024) } } as typeof record
  const next = client.publish(signal)
  const tooLarge = await failure(next.send({ t: 'put', sequence: 1, record: huge }))
  t.equal(`${tooLarge.name} ${tooLarge.message}`, 'CodecError message: 5242959 bytes: expected at most 4194304')
  next.close()
})

t.test('watch: a large snapshot is split, a slow reader holds the broker back', async (t) => {
  const own = await startSite(by)
  t.teardown(() => own.close())
  for (let i = 0; i < 30_000; i++) own.api.put('paris', slice(`web-${i}`))
  const client = own.client(milano)
  let batches = 0
  let events = 0
  for await (const message of client.watch({}, signal)) {
    if (message.t === 'batch') {
      batches += 1
      events += message.events.length
      if (message.revision !== 30_000) t.equal(message.revision, 0, 'a part must not claim the whole')
    }
    if (message.t === 'synced') break
  }
  t.equal(events, 30_000)
  t.ok(batches > 2, `${batches} parts`)
  await eventually(() => own.api.openStreams === 0, { say: 'the watch ends at the broker too' })
})

t.test('the broker vanishes in the middle of a stream', async (t) => {
  const own = await startSite(by)
  const client = own.client(milano)
  const watching = (async () => {
    for await (const message of client.watch({}, signal)) if (message.t === 'synced') void own.server.close()
  })()
  const error = await failure(watching)
  t.ok(error instanceof BrokerUnreachableError, String(error))
  client.close()
})

t.test('a signal ends calls with its own reason', async (t) => {
  const stop = new AbortController()
  const client = site.client(milano)
  const watching = (async () => {
    for await (const message of client.watch({}, stop.signal))
      if (message.t === 'synced') stop.abort(new Error('enough'))
  })()
  t.equal((await failure(watching)).message, 'enough')
  const publishing = client.publish(stop.signal)
  t.equal(
    (
      await failure(
        (async () => {
          for await (const _ of publishing.replies) t.fail('no reply')
        })(),
      )
    ).message,
    'enough',
  )
  await eventually(() => site.api.openStreams === 0)
})

t.test('a client that is closed ends its streams, with sockets and without', async (t) => {
  const memory = inMemoryBroker(site.api, { cluster: 'milano' as ClusterId, address: '127.0.0.1', serial: '0' })
  for (const client of [site.client(milano), memory.connect()]) {
    const publishing = failure(drain(client.publish(signal).replies))
    const watching = failure(
      (async () => {
        for await (const message of client.watch({}, signal)) if (message.t === 'synced') client.close()
      })(),
    )
    const closed = { name: 'BrokerUnreachableError', message: 'the connection to the broker was closed' }
    for (const ended of [watching, publishing]) t.match(await ended, closed)
    t.match(await failure(drain(client.watch({}, signal))), closed, 'and so does what is begun later')
    t.match(await failure(() => drain(client.publish(signal).replies)), closed)
    t.match(await failure(client.leave(signal)), closed)
  }
  await eventually(() => site.api.openStreams === 0, { say: 'the streams end at the broker too' })
})

async function drain(messages: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of messages);
}

t.test('a stream ends when its certificate expires', async (t) => {
  // The remaining part of the 24 h is over in about a second.
  const brief = await member(by, 'milano', 3600_000, 3600_000 + 1500)
  const client = site.client(brief)
  const error = await failure(
    (async () => {
      for await (const _ of client.watch({}, signal));
    })(),
  )
  t.match(error, { name: 'CertificateError', problem: 'expired' })
})

t.test('the server certificate can be replaced while serving', async (t) => {
  const own = await startSite(by)
  t.teardown(() => own.close())
  const next = await authority('demo')
  own.server.setTls({ ...next.server, ca: [next.ca.certificate, by.ca.certificate], clusterset: 'demo' })
  await own.client(milano, { ca: next.ca.certificate }).renew(Buffer.from('csr'), signal)
  t.match(await failure(own.client(milano).renew(Buffer.from('csr'), signal)), { problem: 'untrusted' })
})
