/** Members learn of relays on port 443: as the most recently started broker states them, and whenever that changes. */
import t, { type Test } from 'tap'
import { RelayCommands } from '../../../broker/admin/relay-commands.ts'
import { DEFAULT_BROKER_CONFIG } from '../../../broker/config/broker-config.ts'
import type { EtcdStore } from '../../../broker/store/etcd/etcd-store.ts'
import { formatSession } from '../../../broker/store/etcd/replica-session.ts'
import { fixSettings } from '../../../broker/store/open-store.ts'
import type { ShadowedRelay } from '../../../broker/store/stated-relays.ts'
import type { Peer } from '../../../protocol/broker-api.ts'
import { type Harness, Watcher, join_, startBroker } from '../support/harness.ts'

const [ONE, OTHER] = ['wss://one.example/', 'wss://other.example:8443/relay']

/** What the first message of a watch says. Undefined: nothing. */
async function atStart({ broker }: Harness, peer: Peer): Promise<readonly string[] | undefined> {
  const stop = new AbortController()
  for await (const message of broker.watch(peer, {}, stop.signal)) {
    stop.abort()
    if (message.t !== 'reset') throw new Error(`the first message is ${message.t}`)
    return message.relays
  }
  throw new Error('no message')
}

/** Another replica starts on the same store. */
function startReplica(
  { log, stateDir }: Harness,
  relays?: readonly string[],
  relaysHere = false,
): Promise<readonly ShadowedRelay[]> {
  const config = { ...DEFAULT_BROKER_CONFIG, stateDir, clusterset: 'demo', advertise: ['127.0.0.1:7443'] }
  return fixSettings(log, { ...config, relaysHere, ...(relays === undefined ? {} : { relays }) })
}

async function joined(t: Test, relays?: readonly string[]): Promise<{ harness: Harness; peer: Peer }> {
  const harness = await startBroker(t, relays === undefined ? {} : { config: { relays } })
  const { peer } = await join_(harness, 'milano')
  return { harness, peer }
}

t.test('a watch begins with the relays, and hears of each change', async (t) => {
  const { harness, peer } = await joined(t, [ONE])
  t.same(await atStart(harness, peer), [ONE])
  const watcher = new Watcher(harness, peer)
  await watcher.line(/^synced/)
  await startReplica(harness, [ONE, OTHER])
  await watcher.line(`relays ${ONE} ${OTHER}`)
  await startReplica(harness, [ONE, OTHER])
  await startReplica(harness)
  await watcher.line('relays')
  t.same(await atStart(harness, peer), [], 'a list that became empty is stated: members forget theirs')
  t.equal(watcher.lines.filter((line) => line.startsWith('relays')).length, 2, 'nothing is said twice')
  await watcher.stop()
})

t.test('a clusterset that has never had relays says nothing of them', async (t) => {
  const { harness, peer } = await joined(t)
  t.equal(await atStart(harness, peer), undefined)
  const watcher = new Watcher(harness, peer)
  await watcher.line(/^synced/)
  await startReplica(harness)
  t.notOk(watcher.lines.some((line) => line.startsWith('relays')))
  await watcher.stop()
})

function commands({ log, stateDir, clock }: Harness): RelayCommands {
  const state = { log, etcd: undefined, stateDir }
  return new RelayCommands({ state, clock, who: { kind: 'operator' }, signal: new AbortController().signal })
}

t.test('relays of flags and those that operators add are one list', async (t) => {
  const { harness, peer } = await joined(t, [ONE])
  const admin = commands(harness)
  const watcher = new Watcher(harness, peer)
  await watcher.line(/^synced/)
  t.match(await admin.add({ address: OTHER }), { name: 'other.example:8443', changed: true, isFlagged: false })
  await watcher.line(`relays ${ONE} ${OTHER}`)
  t.match(await admin.add({ address: OTHER }), { changed: false })
  // The flag goes, and the relay stays, because an operator has added it too.
  t.match(await admin.add({ address: ONE }), { changed: true, isFlagged: true })
  await startReplica(harness)
  await watcher.line(`relays ${OTHER} ${ONE}`)
  t.match(await admin.list(), [
    { address: OTHER, isFlagged: false },
    { address: ONE, isFlagged: false },
  ])
  const other = `${ONE}#${'b'.repeat(64)}`
  t.match(await startReplica(harness, [other]), [{ address: ONE, why: `${other} has the same name` }])
  await watcher.line(`relays ${other} ${OTHER}`)
  t.match(await admin.list(), [
    { address: other, isFlagged: true, flag: '--relay' },
    { address: OTHER, isFlagged: false },
    { address: ONE, isFlagged: false, notStated: /same name/ },
  ])
  await startReplica(harness, [ONE])
  t.match(await admin.remove({ relay: 'one.example' }), { changed: true, stays: true })
  await t.rejects(admin.remove({ relay: 'one.example' }), { reason: 'InvalidValue', message: /--relay wss:/ })
  await startReplica(harness)
  await admin.remove({ relay: OTHER })
  await watcher.line('relays')
  t.same(await atStart(harness, peer), [], 'members forget the last one')
  t.same(await admin.remove({ relay: OTHER }), { name: 'other.example:8443', changed: false, stays: false })
  await watcher.stop()
})

t.test('flags and added relays are no more than members take', async (t) => {
  const { harness } = await joined(t)
  const admin = commands(harness)
  for (const name of ['a', 'b', 'c']) await admin.add({ address: `wss://${name}.example/` })
  t.match(await startReplica(harness, [ONE, OTHER]), [{ address: 'wss://c.example/', why: '4 others come first' }])
  t.match(
    (await admin.list()).map(({ address, notStated }) => [address, notStated]),
    [
      [ONE, undefined],
      [OTHER, undefined],
      ['wss://a.example/', undefined],
      ['wss://b.example/', undefined],
      ['wss://c.example/', '4 others come first'],
    ],
  )
  t.same(await startReplica(harness, [ONE]), [])
  await t.rejects(admin.add({ address: OTHER }), { field: 'address', message: /at most 4 relays/ })
})

t.test('a relay on the port of the broker whose key has changed stops no start', async (t) => {
  const { harness } = await joined(t)
  const admin = commands(harness)
  const [before, after] = ['a', 'b'].map((pin) => `${ONE}#${pin.repeat(64)}`) as [string, string]
  await admin.add({ address: before })
  for (const when of ['once', 'again']) t.match(await startReplica(harness, [after], true), [{ address: before }], when)
  t.match(await admin.list(), [
    { address: after, isFlagged: true, flag: '--relay-here' },
    { address: before, isFlagged: false, notStated: `${after} has the same name` },
  ])
  t.match(await admin.remove({ relay: 'one.example' }), { changed: true, stays: true, flag: '--relay-here' })
  await t.rejects(admin.remove({ relay: 'one.example' }), { message: /states it \(--relay-here\): start/ })
  await startReplica(harness, [after])
  t.match(await admin.list(), [{ flag: '--relay' }], 'the flag is another one')
})

t.test('beside a replica whose members would not learn of it, a relay is not added', async (t) => {
  const { harness } = await joined(t, [ONE])
  const { log, stateDir, clock } = harness
  const sessions = new Map([
    ['new', formatSession({ members: [], keepsAddedRelays: true })],
    ['old', formatSession({ members: [], host: 'old-0', keepsTokenLabels: true })],
  ])
  const kvs = () => [...sessions].map(([key, value]) => ({ key: Buffer.from(key), value }))
  const etcd = {
    client: { range: () => Promise.resolve({ kvs: kvs() }) },
    keys: { replicas: {}, parseReplica: (key: Buffer) => key.toString() },
  } as unknown as EtcdStore
  const { signal } = new AbortController()
  const admin = new RelayCommands({ state: { log, etcd, stateDir }, clock, who: { kind: 'operator' }, signal })
  for (let i = 0; i < 2; i += 1)
    await t.rejects(admin.add({ address: OTHER }), {
      reason: 'RelayNotSupported',
      message:
        'address: expected none while brokers that do not state that they keep added relays serve this store: old-0',
    })
  t.match(await admin.list(), [{ address: ONE }])
  sessions.delete('old')
  t.match(await admin.add({ address: OTHER }), { changed: true })
  sessions.set('old', formatSession({ members: [] }))
  t.match(await admin.remove({ relay: OTHER }), { changed: true }, 'a removal leaves none behind')
})
