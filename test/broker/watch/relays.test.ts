/** Members learn of relays on port 443: as the most recently started broker states them, and whenever that changes. */
import t, { type Test } from 'tap'
import { DEFAULT_BROKER_CONFIG } from '../../../broker/config/broker-config.ts'
import { fixSettings } from '../../../broker/store/open-store.ts'
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
function startReplica({ log, stateDir }: Harness, relays?: readonly string[]): Promise<void> {
  const config = { ...DEFAULT_BROKER_CONFIG, stateDir, clusterset: 'demo', advertise: ['127.0.0.1:7443'] }
  return fixSettings(log, { ...config, ...(relays === undefined ? {} : { relays }) })
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
