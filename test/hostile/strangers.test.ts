/** What a stranger may send to the broker's port, and how much a member may have open. */
import { once } from 'node:events'
import { type ClientHttp2Session, connect as connectHttp2 } from 'node:http2'
import { gzipSync } from 'node:zlib'
import { BrokerService } from '../../protocol/gen/broker.ts'
import { SERVER_NAME } from '../../protocol/identity/certificates.ts'
import { eventually } from '../support/eventually.ts'
import { attack } from './support/attack.ts'
import { brokerHere } from './support/broker-here.ts'
import { type RawBroker, callUnary, openChannel } from './support/raw-channel.ts'
import { joinBytes, rawJoin, tokenSecret } from './support/raw-join.ts'
import { RawPublish } from './support/raw-publish.ts'
import { sayingRecord } from './support/raw-records.ts'

const { path } = BrokerService.join

function session({ address }: RawBroker, own: object = {}): ClientHttp2Session {
  const one = connectHttp2(`https://${address}`, { ...own, servername: SERVER_NAME, rejectUnauthorized: false })
  return one.on('error', () => undefined)
}

/** Sends one message with the length that `head` states, and returns the gRPC status. */
async function sent(
  one: ClientHttp2Session,
  body: Buffer,
  { compressed = 0, length = body.length } = {},
): Promise<string> {
  const stream = one.request({
    ...{ ':method': 'POST', ':path': path, 'content-type': 'application/grpc', te: 'trailers' },
    ...(compressed === 0 ? {} : { 'grpc-encoding': 'gzip' }),
  })
  stream.on('error', () => undefined)
  const status = Promise.race([once(stream, 'trailers'), once(stream, 'response')]) as Promise<[Record<string, string>]>
  const head = Buffer.alloc(5)
  head.writeUInt8(compressed)
  head.writeUInt32BE(length, 1)
  stream.write(Buffer.concat([head, body]))
  if (length === body.length) stream.end()
  const [headers] = await status
  stream.close()
  return headers['grpc-status'] ?? ''
}

await attack('join-too-large', async (t) => {
  const one = session(await brokerHere(t))
  t.teardown(() => one.destroy())
  t.equal(await sent(one, Buffer.alloc(10), { length: 4 * 1024 * 1024 }), '8', 'RESOURCE_EXHAUSTED, from its length')
})

await attack('join-gzip-bomb', async (t) => {
  const one = session(await brokerHere(t))
  t.teardown(() => one.destroy())
  const bomb = gzipSync(Buffer.alloc(40_000_000))
  t.ok(bomb.length < 65_536, 'small enough to be taken')
  t.equal(await sent(one, bomb, { compressed: 1 }), '8')
})

await attack('join-many-calls', async (t) => {
  const broker = await brokerHere(t)
  const one = session(broker)
  const closed = once(one, 'close')
  t.teardown(() => one.destroy())
  const answers: string[] = []
  for (let i = 0; i < 10 && !one.destroyed; i += 1) {
    const answer = await Promise.race([sent(one, Buffer.from('x')), closed.then(() => undefined)])
    if (answer !== undefined) answers.push(answer)
  }
  await closed
  t.same(answers, ['3', '3', '3', '3'])
})

await attack('join-strangers-of-one-address', async (t) => {
  const broker = await brokerHere(t)
  const member = await rawJoin(broker, 'milano')
  const publish = await new RawPublish(openChannel(broker, member)).open()
  t.teardown(() => publish.call.cancel())
  const strangers = Array.from({ length: 100 }, () => session(broker))
  t.teardown(() => strangers.forEach((one) => one.destroy()))
  const open = (): number => strangers.filter((one) => !one.destroyed).length
  await eventually(() => open() <= 64 && strangers.every((one) => !one.connecting), { say: '64 are left' })
  t.ok(strangers.at(-1)?.destroyed === false, 'the oldest went')
  await rawJoin(broker, 'paris')
  publish.sendPut(sayingRecord('web'))
  await publish.settled()
})

await attack('join-failed-by-address', async (t) => {
  const broker = await brokerHere(t)
  const bad = await joinBytes('x'.repeat(43), 'roma')
  const codes = new Map<number, number>()
  for (let i = 0; i < 40; i += 1) {
    const channel = openChannel(broker)
    const answer = await callUnary(channel, path, bad)
    channel.close()
    const code = Buffer.isBuffer(answer) ? 0 : answer.code
    codes.set(code, (codes.get(code) ?? 0) + 1)
    if (i === 39 && !Buffer.isBuffer(answer))
      t.match(answer.details, /too many joins from 127\.0\.0\.1 have failed: try again in \d+ s/)
  }
  t.ok((codes.get(16) ?? 0) >= 20, 'UNAUTHENTICATED first')
  t.ok((codes.get(8) ?? 0) >= 10, 'then RESOURCE_EXHAUSTED')
  const good = await joinBytes(await tokenSecret(broker.state), 'milano')
  await eventually(async () => {
    const channel = openChannel(broker)
    const answer = await callUnary(channel, path, good)
    channel.close()
    return Buffer.isBuffer(answer)
  })
  t.pass('a good token passes from the same address')
})

await attack('member-seventh-connection', async (t) => {
  const broker = await brokerHere(t)
  const { key, cert } = await rawJoin(broker, 'milano')
  const other = await rawJoin(broker, 'paris')
  const sessions: ClientHttp2Session[] = []
  t.teardown(() => sessions.forEach((one) => one.destroy()))
  for (let i = 0; i < 7; i += 1) {
    const one = session(broker, { key, cert })
    sessions.push(one)
    await once(one, 'remoteSettings')
  }
  await eventually(() => sessions[0]?.destroyed === true, { say: 'the oldest is closed' })
  t.same(
    sessions.map((one) => one.destroyed),
    [true, ...Array.from({ length: 6 }, () => false)],
  )
  const channel = openChannel(broker, other)
  t.teardown(() => channel.close())
  await new RawPublish(channel).open()
})

await attack('member-status-every-moment', async (t) => {
  const broker = await brokerHere(t)
  const [first, second] = [await rawJoin(broker, 'milano'), await rawJoin(broker, 'paris')]
  const channels = [openChannel(broker, first), openChannel(broker, second)] as const
  t.teardown(() => channels.forEach((channel) => channel.close()))
  const revision = async (): Promise<number> =>
    Number(/sealane_broker_revision\S* (\d+)/.exec(await broker.metrics.text())?.[1])
  const publish = await new RawPublish(channels[0]).open()
  const before = await revision()
  const reported = async (name: string): Promise<void> => {
    const notImported = [{ reason: 'NameTaken', namespace: 'shop', name, cluster: 'paris' }]
    publish.send({ $case: 'status', value: { sequence: (publish.sequence += 1), status: { notImported, leftOut: 0 } } })
    await publish.settled()
  }
  for (let i = 0; i < 100; i += 1) await reported(`s-${i}`)
  // The broker also writes when it last saw the status.
  t.ok((await revision()) - before <= 5, `${(await revision()) - before} writes for 100 statuses`)
})
