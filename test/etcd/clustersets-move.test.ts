/**
 * `sealane broker migrate` moves three clustersets of one broker from its database to a real etcd of three members and
 * back. Each clusterset moves by itself, with `--clusterset`. Members with the same ids stay connected in each of them.
 */
import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { aSlice, anExport } from '../broker/support/harness.ts'
import { TlsMember } from '../broker/support/tls-member.ts'
import { LoopbackBroker } from '../cli/loopback-broker.ts'
import { runCli } from '../cli/run-cli.ts'
import { eventually } from '../support/eventually.ts'
import { failure } from '../support/failure.ts'
import { startEtcdCluster } from './support/etcd-cluster.ts'
import { etcdLogin } from './support/etcd-login.ts'

t.setTimeout(300_000)

const OTHERS = ['blue', 'green'] as const
const SETS = ['demo', ...OTHERS] as const
const IDS = ['milano', 'paris', 'oslo'] as const
type SetName = (typeof SETS)[number]
const IN_TIME = { deadlineMs: 40_000 }

t.test('three clustersets, there and back', async (t) => {
  const cluster = await startEtcdCluster(t)
  const login = etcdLogin(t, cluster)
  const url = `etcd://${cluster.members.map(({ port }) => `127.0.0.1:${port}`).join(',')}/sealane/moved`
  const flags = ['--etcd-ca', login.caFile, '--etcd-cert', login.certificateFile, '--etcd-key', login.keyFile]
  const broker = await LoopbackBroker.start(t)
  const { state } = broker
  const migrate = (from: string, to: string, ...words: string[]) =>
    runCli(['broker', 'migrate', '--state', state, '--from', from, '--to', to, ...flags, ...words])
  const which = (set: SetName): string[] => (set === 'demo' ? [] : ['--clusterset', set])
  const dirOf = (set: SetName): string => (set === 'demo' ? state : join(state, 'clustersets', set))
  const served = async (set: SetName): Promise<boolean> =>
    new RegExp(`sealane_broker_clusterset_served{clusterset="${set}".*} 1`).test(await broker.metrics.text())

  for (const set of OTHERS) {
    t.equal((await runCli(['broker', 'clusterset', 'create', set, '--state', state])).code, 0)
    await eventually(() => served(set), { ...IN_TIME, say: `${set} is served` })
  }
  const members = new Map<SetName, TlsMember[]>()
  for (const set of SETS) {
    const joined: TlsMember[] = []
    for (const id of IDS) joined.push(await TlsMember.join(t, dirOf(set), id))
    members.set(set, joined)
  }
  const of = (set: SetName, i: number): TlsMember => members.get(set)?.[i] ?? (undefined as never)
  let round = 0
  /**
   * Publishes a new record in each of these clustersets, and waits until the members of that clusterset alone receive
   * it.
   */
  const goesOn = async (...sets: readonly SetName[]): Promise<void> => {
    round += 1
    for (const set of sets) of(set, 0).publish(anExport('web'), aSlice('web', '10.42.1.7'), anExport(`${set}-${round}`))
    for (const set of sets) {
      for (const i of [1, 2])
        await eventually(of(set, i).has(`milano/ServiceExport/shop/${set}-${round}`), {
          ...IN_TIME,
          say: `${set} ${i}`,
        })
      const names = [...of(set, 1).replica.records.values()].map(({ key }) => key.name)
      t.strictSame(
        [...new Set(names.filter((name) => /^(demo|blue|green)-/.test(name)))],
        [`${set}-${round}`],
        `${set} has its own alone`,
      )
    }
  }
  const own = (set: SetName) =>
    ['/ClusterSetIP/shop/web', ...IDS.map((id) => `${id}/Cluster//${id}`)].map(
      (key) => of(set, 1).replica.records.get(key)?.body,
    )
  await goesOn(...SETS)
  for (const set of SETS) await eventually(of(set, 1).has('/ClusterSetIP/shop/web'), IN_TIME)
  const before = SETS.map(own)

  const busy = await migrate('sqlite', url, '--clusterset', 'blue')
  t.match(busy, { code: 1, stderr: /is in use by another broker: stop it.*\nreason: StateLocked/ })
  await broker.stop()
  const unknown = {
    code: 1,
    stderr:
      /clusterset "bleu": expected a clusterset that this broker serves: demo, blue, green\nreason: ClustersetUnknown/,
  }
  t.match(await migrate('sqlite', url, '--clusterset', 'bleu'), unknown)
  t.strictSame(readdirSync(join(state, 'clustersets')).sort(), [...OTHERS], 'and nothing was made of it')
  t.match(await migrate('sqlite', url, '--clusterset', '../blue'), { code: 2, stderr: /expected an RFC 1123 label/ })
  t.match(await migrate(url, 'sqlite', '--clusterset', 'blue'), { code: 1, stderr: /reason: StateAbsent/ })

  t.match(await migrate('sqlite', url), {
    code: 0,
    stdout: /^moved: \d+ rows; 3 members/,
    stderr: /move each other clusterset separately: run the same command with --clusterset blue, green\n/,
  })
  t.match(await migrate('sqlite', url, '--clusterset', 'blue'), {
    code: 0,
    stdout: /^clusterset blue: moved: \d+ rows; 3 members/,
  })
  t.match(await failure(broker.start()), { code: 'Moved' }, 'the database is not served any more')
  await broker.start({ store: { ...login, url } })
  await goesOn('demo', 'blue')
  t.match(await migrate(url, 'sqlite'), { code: 1, stderr: /is in use by a broker/ })
  t.notOk(await served('green'), 'what was not moved is not served')
  const said = (): boolean =>
    broker.logger.lines.some(
      (line) => line.message === 'cannot serve a clusterset' && line.fields['clusterset'] === 'green',
    )
  await eventually(said, { ...IN_TIME, say: 'the broker says that green is not served' })
  await broker.stop()
  t.match(await migrate('sqlite', url, '--clusterset', 'green'), {
    code: 0,
    stdout: /green: moved: \d+ rows; 3 members/,
  })
  for (const set of SETS)
    t.match(await migrate('sqlite', url, ...which(set)), { code: 0, stdout: /already moved; 3 members/ }, set)
  await broker.start({ store: { ...login, url } })
  await goesOn(...SETS)
  t.strictSame(SETS.map(own), before, 'numbers and addresses are the same')
  await of('green', 2).renew()
  await broker.stop()

  t.match(await migrate(url, 'sqlite', '--clusterset', 'bleu'), unknown)
  for (const set of SETS) t.match(await migrate(url, 'sqlite', ...which(set)), { code: 0, stdout: /3 members/ }, set)
  t.match(await failure(broker.start({ store: { ...login, url } })), { code: 'Moved' }, 'nor etcd now')
  await broker.start()
  await goesOn(...SETS)
  t.strictSame(SETS.map(own), before)
  for (const set of SETS) {
    const { code, stdout } = await runCli(['broker', 'verify', ...which(set), '--state', state])
    t.equal(code, 0, stdout)
    t.match(stdout, new RegExp(`clusterset ${set}, 3 members`))
  }
  t.notOk(existsSync(join(state, 'clustersets', 'bleu')))
})
