/**
 * Three brokers run as processes on one etcd, which requires a client certificate and a password. Each broker serves
 * each member:
 *
 *   milano ─► broker 0 ─┐
 *   paris  ─► broker 1 ─┼─► etcd (three members)
 *   roma   ─► broker 2 ─┘
 */
import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import type { RawBroker, RawIdentity } from '../hostile/support/raw-channel.ts'
import { callMethod, openChannel } from '../hostile/support/raw-channel.ts'
import { certificatePem, csrOf, joinWith, rawJoin, tokenSecret } from '../hostile/support/raw-join.ts'
import { RawPublish } from '../hostile/support/raw-publish.ts'
import { exportRecord } from '../hostile/support/raw-records.ts'
import { RawWatch, recordsOf } from '../hostile/support/raw-watch.ts'
import { BrokerService, RecordEvent, WatchRequest } from '../../protocol/gen/broker.ts'
import { runCli } from '../cli/run-cli.ts'
import { eventually } from '../support/eventually.ts'
import { type EtcdCluster, startEtcdCluster } from './support/etcd-cluster.ts'
import { type ServedBrokers, threeBrokers } from './support/served-brokers.ts'

const PREFIX = '/brokers/demo'

t.setTimeout(170_000)

let cluster: EtcdCluster
let brokers: ServedBrokers

t.before(async () => {
  cluster = await startEtcdCluster(t)
  brokers = await threeBrokers(t, cluster, PREFIX)
  // All three brokers start at the same moment on an empty prefix.
  await Promise.all(brokers.map((broker) => broker.start()))
})

/** Returns the exports that a watcher at a broker has received, each as `cluster/namespace/name`. */
function watchExports(
  t: Test,
  broker: RawBroker,
  identity: RawIdentity,
  request: Partial<WatchRequest> = {},
): ReadonlySet<string> {
  const channel = openChannel(broker, identity)
  t.teardown(() => channel.close())
  const seen = new Set<string>()
  const nothing: WatchRequest = { takes: [], followsAuthorities: false }
  const asked = WatchRequest.encode({ ...nothing, ...request }).finish()
  const onMessage: ConstructorParameters<typeof RawWatch>[1] = ({ message }) => {
    if (message?.$case !== 'batch' && message?.$case !== 'added') return
    for (const bytes of message.value.events) {
      const { event } = RecordEvent.decode(bytes)
      const name = event?.$case === 'put' ? event.value : event?.value.key
      const text = `${name?.cluster}/${name?.namespace}/${name?.name}`
      if (event?.$case === 'remove') seen.delete(text)
      else if (event?.value.body?.body?.$case === 'serviceExport') seen.add(text)
    }
  }
  new RawWatch(channel, onMessage, asked)
  return seen
}

t.test('all sign with one authority, whose key is private everywhere', async (t) => {
  const authorities = brokers.map(({ state }) => readFileSync(join(state, 'ca.crt'), 'utf8'))
  t.equal(new Set(authorities).size, 1)
  for (const { state } of brokers) {
    t.equal(statSync(join(state, 'ca.key')).mode & 0o777, 0o600)
    const remembered = readFileSync(join(state, 'store.json'), 'utf8')
    t.notMatch(remembered, /not-for-argv/)
    t.equal(statSync(join(state, 'store.json')).mode & 0o777, 0o600)
  }
})

t.test('one token, asked for at all three at once: it lets one in', async (t) => {
  for (let round = 0; round < 5; round += 1) {
    const secret = await tokenSecret(brokers[round % 3]!.state)
    const results = await Promise.allSettled(brokers.map((broker, i) => joinWith(broker, secret, `race-${round}-${i}`)))
    t.equal(results.filter(({ status }) => status === 'fulfilled').length, 1, `round ${round}`)
    for (const result of results)
      if (result.status === 'rejected') t.match(String(result.reason), /was already used by cluster/)
  }
})

t.test('numbers and addresses are given once, whoever asks where', async (t) => {
  const joins = Array.from({ length: 12 }, async (_, i) => {
    const secret = await tokenSecret(brokers[i % 3]!.state)
    return (await joinWith(brokers[(i + 1) % 3]!, secret, `many-${i}`)).response
  })
  const responses = await Promise.all(joins)
  t.equal(new Set(responses.map(({ clusterIndex }) => clusterIndex)).size, 12)
  const blocks = responses.flatMap(({ globalCidrs }) => globalCidrs)
  t.ok(blocks.length >= 11, 'all have the same pod CIDR')
  t.equal(new Set(blocks).size, blocks.length)
})

t.test(
  'who asks for some namespaces gets those, whichever broker it asks and whichever they were published at',
  async (t) => {
    const [bari, pisa, asti] = (await Promise.all(
      brokers.map((broker, i) => rawJoin(broker, ['bari', 'pisa', 'asti'][i] ?? '')),
    )) as [RawIdentity, RawIdentity, RawIdentity]
    const interest = (...namespaces: string[]): Partial<WatchRequest> => ({ interest: { namespaces, missing: [] } })
    const some = brokers.map((broker) => watchExports(t, broker, pisa, interest('bank', 'shop')))
    const none = watchExports(t, brokers[2], asti, interest())
    const all = watchExports(t, brokers[1], asti)
    for (const [i, broker] of brokers.entries()) {
      const channel = openAt(t, broker, bari)
      const publish = await new RawPublish(channel).open()
      for (const namespace of ['bank', 'shop', 'lab'])
        t.equal(await publish.put(exportRecord(namespace, `web-${i}`)), 'ok', `${namespace} at ${i}`)
      await eventually(() => all.has(`bari/lab/web-${i}`), { say: 'who asks for nothing gets all' })
      await eventually(() => some.every((one) => one.has(`bari/bank/web-${i}`) && one.has(`bari/shop/web-${i}`)))
      channel.close()
    }
    for (const one of some)
      t.notOk(
        [...one].some((name) => name.includes('/lab/')),
        'nothing of another one',
      )
    t.same([...none], [])
    const later = brokers.map((broker) => watchExports(t, broker, asti, interest('lab')))
    await eventually(() => later.every((one) => one.size > 0), { say: 'a new interest is served' })
    // Each publish stream declares the full set of its member again, so only the records of the last stream remain.
    for (const one of later) t.same([...one], ['bari/lab/web-2'])
  },
)

t.test('what is published at one is seen at the others; one is killed, and the others go on', async (t) => {
  const [first, second, third] = brokers
  // A certificate that one broker issued is valid at every broker.
  const milano = await rawJoin(first, 'milano')
  const paris = await rawJoin(second, 'paris')
  const seen = [second, third].map((broker) => watchExports(t, broker, paris))
  const channel = openChannel(first, milano)
  t.teardown(() => channel.close())
  const publish = await new RawPublish(channel).open()
  t.equal(await publish.put(exportRecord('shop', 'web')), 'ok')
  await eventually(() => seen.every((one) => one.has('milano/shop/web')), { say: 'seen at both', intervalMs: 2 })

  // The same member connects to another broker, and its older stream at the first broker ends.
  const moved = openChannel(second, milano)
  t.teardown(() => moved.close())
  const newer = await new RawPublish(moved).open()
  t.match((await publish.ended()).details, /a newer publish stream of cluster "milano" has taken over/)
  t.equal(await newer.put(exportRecord('shop', 'db')), 'ok')

  await first.kill()
  const { certificate } = await callMethod(openAt(t, third, paris), BrokerService.renew, {
    csr: await csrOf(paris.key),
  })
  const renewed = { ...paris, cert: certificatePem(certificate) }
  t.not(renewed.cert, paris.cert, 'certificates are renewed')
  t.ok((await recordsOf(openAt(t, second, renewed))).length > 0, 'and good at the others')
  t.equal(await newer.put(exportRecord('shop', 'cache')), 'ok')
  await eventually(() => seen.every((one) => one.has('milano/shop/cache')), { say: 'seen without the first' })
  const torino = await rawJoin(third, 'torino')
  t.equal((await recordsOf(openAt(t, third, torino))).filter(({ cluster }) => cluster === 'torino').length, 1)
  const { code, stderr } = await runCli(['cluster', 'evict', 'milano', '--force', '--state', second.state])
  t.equal(code, 0, stderr)
  t.match((await newer.ended()).details, /cluster "milano" was evicted/)
  await eventually(() => seen.every((one) => !one.has('milano/shop/web')), { say: 'its records are gone at both' })

  await first.start()
  const keys = (await recordsOf(openAt(t, first, paris))).map(({ cluster }) => cluster)
  t.ok(keys.includes('torino'), 'what happened meanwhile is there')
  t.notOk(keys.includes('milano'))
  await t.rejects(recordsOf(openAt(t, first, milano)), 'who was evicted at another is out here as well')
})

interface AuditLine {
  readonly id: string
  readonly result: string
  readonly what: { readonly act: string; readonly subject?: string }
}

t.test('each act has one line, in the audit log of one of them', async (t) => {
  const lines = (): AuditLine[] =>
    brokers.flatMap(({ audit }) =>
      readFileSync(audit, 'utf8')
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => JSON.parse(line) as AuditLine),
    )
  // A broker that is killed between writing an audit line and writing to the store leaves a line that appears twice
  // with the same id.
  const joins = (): Map<string, string> =>
    new Map<string, string>(
      lines().flatMap(({ id, result, what: { act, subject = '' } }) =>
        act === 'join' && result === 'ok' ? [[id, subject] as const] : [],
      ),
    )
  // The killed broker may have been the audit writer. Its place becomes free when its lease expires.
  await eventually(() => joins().size >= 23, { say: 'all joins', deadlineMs: 60_000, intervalMs: 200 })
  t.equal(joins().size, 23)
  t.equal(new Set(joins().values()).size, 23)
  for (const id of ['milano', 'paris', 'torino', 'many-0', 'many-11']) t.ok([...joins().values()].includes(id), id)
})

function openAt(t: Test, broker: RawBroker, identity: RawIdentity): ReturnType<typeof openChannel> {
  const channel = openChannel(broker, identity)
  t.teardown(() => channel.close())
  return channel
}

interface Shown {
  readonly health: string
  readonly problems: readonly { readonly text: string }[]
  readonly broker: {
    readonly log: { readonly revision: number }
    readonly replicas: readonly { readonly host?: string; readonly version?: string }[]
    readonly storeMembers: readonly { readonly why?: string }[]
  }
}

t.test('how they are, with a member of etcd away, with two, and again with all', async (t) => {
  const { state } = brokers[1]
  const look = async (): Promise<{ readonly code: number; readonly shown: Shown; readonly stderr: string }> => {
    const { code, stdout, stderr } = await runCli(['broker', 'status', '--state', state, '-o', 'json'])
    return { code, shown: JSON.parse(stdout) as Shown, stderr }
  }
  const isWell = async (): Promise<boolean> => (await look()).shown.broker.replicas.length === 3
  await eventually(isWell, { deadlineMs: 30_000, say: 'three replicas are seen' })
  const { code, shown } = await look()
  t.equal(code, 0, JSON.stringify(shown.problems))
  t.equal(shown.health, 'healthy')
  t.ok(shown.broker.log.revision > 0)
  t.ok(shown.broker.replicas.every(({ host, version }) => host !== undefined && version !== undefined))
  const table = await runCli(['broker', 'status', '--state', state])
  t.match(table.stdout, /^broker +healthy\nclusterset +demo\nstore +etcd etcd:/)

  await cluster.members[0]?.program.kill()
  const one = await look()
  t.equal(one.code, 1, one.stderr)
  t.match(one.stderr, /the broker is degraded: etcd at \S+: no connection/)
  await cluster.members[1]?.program.kill()
  const two = await look()
  t.equal(two.code, 2, two.stderr)
  t.match(two.stderr, /the broker is down: the store cannot be read: the majority of the etcd members does not answer/)
  for (const { program } of cluster.members.slice(0, 2)) program.start()
  const isUp = async (): Promise<boolean> => (await look()).code === 0
  await eventually(isUp, { deadlineMs: 40_000, say: 'all is well again' })
})

t.test('brokers that start while etcd is away say so, and serve when it comes', async (t) => {
  await Promise.all(brokers.map((broker) => broker.kill()))
  await Promise.all(cluster.members.map(({ program }) => program.kill()))
  const ready = Promise.all(brokers.map((broker) => broker.start()))
  for (const { status } of brokers) {
    const said = async (): Promise<string | undefined> => {
      const text = await (await fetch(`http://${status}/readyz`)).text()
      return text.includes('ECONNREFUSED') ? text : undefined
    }
    t.match(await eventually(said, { deadlineMs: 30_000 }), /state: etcd at 127\.0\.0\.1:\d+: no connection: /)
  }
  for (const { program } of cluster.members) program.start()
  await ready
  const { response } = await joinWith(brokers[1], await tokenSecret(brokers[2].state), 'after-all')
  t.ok(response.clusterIndex > 0)
})
