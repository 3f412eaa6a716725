/**
 * Three brokers on one log, each on an address of its own, and members that know one or all of them. Brokers stop and
 * return in turn under traffic: nothing is lost, nothing is sent twice, certificates are renewed, and members spread
 * over the brokers again.
 */
import t from 'tap'
import type { BrokerClient } from '../../protocol/broker-client.ts'
import { decodeRecordEvent } from '../../protocol/codec/records-codec.ts'
import { AddressBook } from '../../protocol/broker-addresses.ts'
import { memberKey, memberKeyText } from '../../protocol/codec/content-hash.ts'
import { createCsr } from '../../protocol/identity/x509.ts'
import { Replica } from '../../protocol/replica/record-replica.ts'
import { PublishSession } from '../../protocol/sessions/publish-session.ts'
import { WatchSession } from '../../protocol/sessions/watch-session.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { anExport } from '../broker/support/harness.ts'
import { silent } from '../protocol/site.ts'
import { eventually } from '../support/eventually.ts'
import { type Member, Replicas } from '../story/support/replicas.ts'

const clock = new SystemClock()
const LONG = { deadlineMs: 90_000 }

t.test('brokers stop in turn under traffic', { timeout: 240_000 }, async (t) => {
  const brokers = await Replicas.start(t, { connectionAgeMs: 0, drainMs: 300 })
  const { log } = brokers
  let stored = 0
  t.teardown(log.onCommit((changes) => void (stored += changes.filter(isExport).length)))
  const milano = await brokers.join('milano')
  const paris = await brokers.join('paris')
  const stop = new AbortController()
  // This member joined when there was only one address.
  const book = new AddressBook({ own: brokers.addresses.slice(0, 1), clock })
  const client = brokers.client(milano, book)
  const publish = new PublishSession({ connect: () => client, clock, logger: silent })
  let received = 0
  const seen = new Set<string>()
  const resets: boolean[] = []
  const watching = brokers.client(paris)
  const watch = new WatchSession({
    connect: () =>
      withWatch(async function* (request, signal) {
        for await (const message of watching.watch(request, signal)) {
          if (message.t === 'reset') resets.push(message.resumed)
          for (const bytes of message.t === 'batch' ? message.events : []) {
            const event = decodeRecordEvent(bytes)
            if (event?.t !== 'put' || event.record.body.kind !== 'ServiceExport') continue
            received += 1
            seen.add(event.record.key.name)
          }
          yield message
        }
      }),
    replica: new Replica(),
    clock,
    logger: silent,
    onChange: () => undefined,
  })
  // Both sessions use one client, as in an agent; it learns addresses from the watch.
  const deps = { connect: () => client, replica: new Replica(), clock, logger: silent, onChange: () => undefined }
  const runs = [publish.run(stop.signal), watch.run(stop.signal), new WatchSession(deps).run(stop.signal)]
  const wanted = new Map<string, ReturnType<typeof anExport>>()
  const exportOne = (): void => {
    const record = anExport(`web-${wanted.size}`)
    wanted.set(memberKeyText(memberKey(record)), record)
    publish.setDesired(new Map(wanted))
  }
  const settled = (): Promise<void> => publish.whenSettled(AbortSignal.timeout(30_000))
  exportOne()
  await settled()
  await eventually(() => book.all.length === 3, { ...LONG, say: 'the list of addresses has grown to three' })

  for (let round = 0; round < 6; round += 1) {
    for (let i = 0; i < 10; i += 1) exportOne()
    const [stopping, killed] = [round % 3, round % 2 === 1]
    const stopped = killed ? brokers.kill(stopping) : brokers.stop(stopping)
    for (let i = 0; i < 10; i += 1) {
      exportOne()
      if (i % 3 === 0) await settled()
    }
    await stopped
    const { certificate } = await client.renew(await createCsr(milano.key), AbortSignal.timeout(30_000))
    t.ok(certificate.length > 0, `round ${round}: renewed with one broker away`)
    await settled()
    await eventually(() => seen.size === wanted.size, { ...LONG, say: `round ${round}: all ${wanted.size} have come` })
    await brokers.begin(stopping)
  }
  t.equal(log.list('record').filter(({ value }) => value.body.kind === 'ServiceExport').length, wanted.size)
  t.equal(stored, wanted.size, 'each export was written once')
  t.equal(received, wanted.size, 'and given to the watcher once')
  t.ok(resets.length > 1, `the watcher began ${resets.length} streams`)
  t.same(
    resets.slice(1).filter((resumed) => !resumed),
    [],
    'each of them went on where the last had ended',
  )
  t.ok(book.proven.length >= 2, `${book.proven.join(', ')}: addresses that milano did not have when it joined`)
  stop.abort()
  await Promise.all(runs)
})

/**
 * Each member calls again every 3 s over TLS, at most eight calls a second in all, because the handshakes of thirty a
 * second filled a slow processor. MOST is less than all, because some members are between two connections.
 */
const MEMBERS = 24
const MOST = 20

t.test('24 members, and one broker that is started again', { timeout: 240_000 }, async (t) => {
  const brokers = await Replicas.start(t, { connectionAgeMs: 3000, drainMs: 500 })
  const members: Member[] = []
  for (let i = 0; i < MEMBERS; i += 1) members.push(await brokers.join(`m${i}`))
  const stop = new AbortController()
  const epochs = new Set<string>()
  let snapshots = 0
  const runs = members.map((member) => {
    const client = brokers.client(member)
    const counted = withWatch(async function* (request, signal) {
      for await (const message of client.watch(request, signal)) {
        if (message.t === 'reset') {
          epochs.add(message.epoch)
          // On a busy machine the first stream may end before it has brought anything.
          if (!message.resumed && request.resume !== undefined) snapshots += 1
        }
        yield message
      }
    })
    const deps = { connect: () => counted, replica: new Replica(), clock, logger: silent, onChange: () => undefined }
    return new WatchSession(deps).run(stop.signal)
  })
  const shares = (): readonly number[] => brokers.shares(members)
  const isSpread = (): boolean => {
    const now = shares()
    return now.reduce((sum, one) => sum + one, 0) >= MOST && now.every((one) => one >= 3 && one <= 15)
  }
  await eventually(isSpread, { ...LONG, say: 'members are spread' })
  await brokers.stop(1)
  await eventually(() => shares()[0]! + shares()[2]! >= MOST, { ...LONG, say: 'members are with the other two' })
  await brokers.begin(1)
  await eventually(isSpread, { ...LONG, say: 'members are spread again' })
  t.equal(epochs.size, 1)
  t.equal(snapshots, 0, 'nobody was sent anything again')
  stop.abort()
  await Promise.all(runs)
})

/** The only part of a client that a WatchSession uses. */
function withWatch(watch: BrokerClient['watch']): BrokerClient {
  return { watch } as BrokerClient
}

function isExport(change: { readonly scope: string; readonly key: string; readonly value?: unknown }): boolean {
  return change.scope === 'record' && change.key.includes('/ServiceExport/') && change.value !== undefined
}
