/**
 * Three clustersets at one broker process, each with clusters of the same ids that export services of the same names.
 * Broker, agents, DNS servers and commands are real. Nothing of one clusterset is ever seen, changed or let in at
 * another.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { openState } from '../../broker/admin/command-state.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { runCli, startCli } from '../cli/run-cli.ts'
import { eventually } from '../support/eventually.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { BrokerProcess } from '../story/broker-process.ts'
import { StorySite } from '../story/site.ts'

const DB = 'db.shop.svc.clusterset.local'
const OTHERS = ['blue', 'green'] as const
const SETS = ['demo', ...OTHERS] as const
type SetName = (typeof SETS)[number]
/** Milano and paris have the same pods in every clusterset, so that each clusterset translates them by itself. */
const PODS: Readonly<Record<string, string>> = { milano: '10.41.0.0/16', paris: '10.41.0.0/16', oslo: '10.50.0.0/16' }
const ANSWER: Readonly<Record<SetName, string>> = { demo: '10.50.0.1', blue: '10.50.0.2', green: '10.50.0.3' }

const NAMESPACE = 'apiVersion: v1\nkind: Namespace\nmetadata: { name: shop }\n'
const service = (address: string): string => `---
apiVersion: v1
kind: Service
metadata: { name: db, namespace: shop }
spec: { clusterIP: None, ports: [{ name: sql, port: 5432 }] }
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: { name: db-1, namespace: shop, labels: { kubernetes.io/service-name: db } }
addressType: IPv4
ports: [{ name: sql, port: 5432 }]
endpoints: [{ addresses: [${address}], hostname: db-0, conditions: { ready: true } }]
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: { name: db, namespace: shop }
`

const dirOf = (broker: BrokerProcess, set: SetName): string =>
  set === 'demo' ? broker.state : `${broker.state}/clustersets/${set}`
const which = (set: SetName): readonly string[] => (set === 'demo' ? [] : ['--clusterset', set])

async function cli(broker: BrokerProcess, ...words: readonly string[]) {
  return runCli([...words, '--state', broker.state])
}

async function json<T>(t: Test, broker: BrokerProcess, ...words: readonly string[]): Promise<T> {
  const { code, stdout, stderr } = await cli(broker, ...words, '-o', 'json')
  t.equal(code, 0, `${words.join(' ')}: ${stderr}`)
  return JSON.parse(stdout) as T
}

interface Listed {
  readonly items: readonly { readonly id: string; readonly state: string; readonly globalCIDRs: readonly string[] }[]
}

t.test('three clustersets at one broker', { timeout: 180_000 }, async (t) => {
  const audit = join(temporaryFolder(t), 'audit.log')
  const broker = await BrokerProcess.start(t, ['--audit-log', audit])
  /** The sites live longer than a part of the story. */
  const whole = t

  await t.test('they are made by name, and by no mistake', async (t) => {
    t.match(await cli(broker, 'token', 'create', '--clusterset', 'blue'), {
      code: 1,
      stderr:
        /^sealane: clusterset "blue": expected a clusterset that this broker serves: demo\nreason: ClustersetUnknown\n/,
    })
    for (const set of OTHERS) {
      const made = await json<Record<string, unknown>>(t, broker, 'broker', 'clusterset', 'create', set)
      t.match(made, { name: set, repeated: false, opened: true, members: 0 })
      const again = await json<Record<string, unknown>>(t, broker, 'broker', 'clusterset', 'create', set)
      t.match(again, { name: set, repeated: true, opened: true }, 'a second time nothing is done')
    }
    const other = await cli(broker, 'broker', 'clusterset', 'create', 'blue', '--global-range', '242.0.0.0/8')
    t.match(other, { code: 1, stderr: /globalRange 242\.0\.0\.0\/8 of clusterset "blue": expected 244\.0\.0\.0\/8/ })
    const own = await cli(broker, 'broker', 'clusterset', 'create', 'demo')
    t.match(own, { code: 1, stderr: /expected a name other than that of the/ })
    for (const bad of [
      '..',
      'a/b',
      '../blue',
      'Blue',
      'bl\u00fcv',
      '',
      'x'.repeat(64),
      'a-',
      'a.b',
      'blue\n',
      '\u202eb',
    ]) {
      for (const words of [
        ['broker', 'clusterset', 'create', bad],
        ['cluster', 'list', '--clusterset', bad],
      ]) {
        const { code, stderr } = await cli(broker, ...words)
        t.equal(code, 2, JSON.stringify(words))
        t.match(stderr, /expected an RFC 1123 label/)
      }
    }
    const typed = await cli(broker, 'cluster', 'list', '--clusterset', 'bleu')
    t.match(typed, {
      code: 1,
      stderr: /clusterset "bleu": expected a clusterset that this broker serves: demo, blue, green/,
    })
    const { items } = await json<{ items: readonly object[] }>(t, broker, 'broker', 'clusterset', 'list')
    t.match(items, [
      { name: 'demo', state: 'own', members: 0 },
      { name: 'blue', state: 'listed', members: 0 },
      { name: 'green', state: 'listed', members: 0 },
    ])
    t.equal(items.length, 3)
  })

  const sites = new Map<SetName, readonly StorySite[]>()
  const siteOf = (set: SetName, id: string): StorySite =>
    sites.get(set)?.find((site) => site.id === id) ?? (undefined as never)

  await t.test('members of the same ids', async (t) => {
    for (const set of SETS) {
      const joined: StorySite[] = []
      for (const id of ['milano', 'paris', 'oslo'])
        joined.push(await StorySite.join(whole, id, { token: () => broker.token(set) }, [PODS[id] ?? '']))
      sites.set(set, joined)
    }
    for (const set of SETS) {
      const { items } = await json<Listed>(t, broker, 'cluster', 'list', ...which(set))
      t.same(items.map(({ id }) => id).sort(), ['milano', 'oslo', 'paris'], set)
      // Two of three members overlap in each clusterset: a block of one clusterset is not taken from another.
      const blocks = items.flatMap(({ globalCIDRs }) => globalCIDRs)
      t.same(blocks.sort(), ['244.0.0.0/16', '244.1.0.0/16'], set)
    }
  })

  await t.test('services of the same names', async (t) => {
    await Promise.all([...sites.values()].flat().map((site) => site.start()))
    for (const set of SETS) {
      for (const id of ['milano', 'paris']) {
        siteOf(set, id).write('shop.yaml', NAMESPACE)
        await siteOf(set, id).tunnel('oslo', 'up')
      }
      siteOf(set, 'oslo').write('shop.yaml', NAMESPACE + service(ANSWER[set]))
    }
    for (const set of SETS) {
      for (const id of ['milano', 'paris']) {
        const answered = async (): Promise<boolean> => (await siteOf(set, id).dig(DB)) === ANSWER[set]
        await eventually(answered, { deadlineMs: 20_000, say: `${set}/${id} is answered` })
        t.equal(siteOf(set, id).imports().length, 2, 'one import, one slice')
      }
    }
    const text = await broker.metrics()
    for (const set of SETS) {
      const label = set === 'demo' ? '' : `,clusterset="${set}"`
      const members = text.split('\n').filter((line) => line.startsWith('sealane_broker_members{state="live"'))
      t.ok(members.includes(`sealane_broker_members{state="live"${label},component="broker"} 3`), members.join('\n'))
    }
  })

  await t.test('approval', async (t) => {
    const made = await json<{ token: string }>(t, broker, 'token', 'create', '--approve', ...which('green'))
    const tokyo = StorySite.make(t, 'tokyo', ['10.44.0.0/16'])
    const join = startCli(['join', '--site', tokyo.folder.file, '--token', made.token])
    await join.remarked(/waits for approval/)
    for (const set of ['demo', 'blue'] as const) {
      t.same((await json<Listed>(t, broker, 'cluster', 'waiting', ...which(set))).items, [])
      t.equal((await cli(broker, 'cluster', 'accept', 'tokyo', ...which(set))).code, 1)
    }
    t.same((await json<Listed>(t, broker, 'cluster', 'waiting', ...which('green'))).items.length, 1)
    for (const _ of [1, 2]) t.equal((await cli(broker, 'cluster', 'refuse', 'tokyo', ...which('green'))).code, 0)
    t.match(await join.result, { code: 1, stderr: /JoinRefusedByOperator/ })
  })

  await t.test('quota, new identity and eviction', async (t) => {
    for (const _ of [1, 2])
      t.equal((await cli(broker, 'cluster', 'quota', 'oslo', '--records', '77', ...which('blue'))).code, 0)
    for (const set of SETS) {
      const { stdout } = await cli(broker, 'cluster', 'quota', 'oslo', ...which(set))
      t.match(stdout, set === 'blue' ? /of 77,/ : /of 50,?000/, set)
    }
    t.equal((await cli(broker, 'cluster', 'rekey', 'milano', ...which('green'))).code, 0)
    for (const _ of [1, 2])
      t.equal((await cli(broker, 'cluster', 'evict', 'oslo', '--force', ...which('blue'))).code, 0)
    const gone = (): boolean => ['milano', 'paris'].every((id) => siteOf('blue', id).knownOf('oslo').length === 0)
    await eventually(gone, { deadlineMs: 10_000, say: 'blue drops it' })
    for (const set of ['demo', 'green'] as const) {
      t.equal(await siteOf(set, 'paris').dig(DB), ANSWER[set], `${set} goes on`)
      const { items } = await json<Listed>(t, broker, 'cluster', 'list', ...which(set))
      t.equal(items.length, 3, set)
    }
    t.equal(await siteOf('blue', 'paris').dig(DB), 'NXDOMAIN')
  })

  await t.test('the authority of one is rotated', async (t) => {
    const fingerprints = async (): Promise<readonly string[]> =>
      Promise.all(SETS.map(async (set) => (await cli(broker, 'broker', 'ca', 'status', ...which(set))).stdout))
    const before = await fingerprints()
    t.equal(new Set(before).size, 3, 'each has its own')
    for (const _ of [1, 2]) t.equal((await cli(broker, 'broker', 'ca', 'rotate', ...which('blue'))).code, 0)
    const after = await fingerprints()
    t.same([after[0] === before[0], after[1] === before[1], after[2] === before[2]], [true, false, true])
  })

  await t.test('backup and verify of one, and of the others', async (t) => {
    for (const set of SETS) {
      const file = join(temporaryFolder(t), `${set}.backup`)
      const backup = await cli(broker, 'broker', 'backup', '--output', file, ...which(set))
      t.equal(backup.code, 0, backup.stderr)
      const of = await runCli(['broker', 'verify', '--backup', file])
      t.match(of, { code: 0, stdout: new RegExp(`clusterset ${set},`) })
      t.match(await cli(broker, 'broker', 'verify', ...which(set)), {
        code: 0,
        stdout: new RegExp(`clusterset ${set},`),
      })
      for (const other of SETS.filter((one) => one !== set)) {
        const into = await cli(broker, 'broker', 'restore', file, '--at-next-start', '--force', ...which(other))
        t.equal(into.code, 1, `${set} does not become ${other}`)
      }
    }
  })

  await t.test('kill -9 of the broker: all come back, each into its own', async (t) => {
    await broker.kill()
    await broker.start()
    for (const set of SETS) {
      const silent = async (): Promise<number> => {
        const { stdout } = await cli(broker, 'cluster', 'list', ...which(set), '-o', 'json')
        return (JSON.parse(stdout) as Listed).items.filter(({ state }) => state === 'silent').length
      }
      // A cluster with a new identity has not joined again, and an evicted cluster is not a member.
      await eventually(async () => (await silent()) <= (set === 'green' ? 1 : 0), {
        deadlineMs: 90_000,
        intervalMs: 500,
        say: set,
      })
    }
    siteOf('demo', 'oslo').write('shop.yaml', NAMESPACE + service('10.50.0.9'))
    const moved = async (): Promise<boolean> => (await siteOf('demo', 'paris').dig(DB)) === '10.50.0.9'
    await eventually(moved, { deadlineMs: 60_000, say: 'a change arrives' })
    t.equal(await siteOf('green', 'paris').dig(DB), ANSWER.green)
    t.equal(await siteOf('blue', 'paris').dig(DB), 'NXDOMAIN')
  })

  await t.test('one is removed, and taken up again', async (t) => {
    t.match(await cli(broker, 'broker', 'clusterset', 'remove', 'green'), {
      code: 1,
      stderr: /clusterset "green": it has 3 members; evict them first, or use --force\nreason: ClustersetInUse/,
    })
    t.match(await cli(broker, 'broker', 'clusterset', 'remove', 'gren'), {
      code: 1,
      stderr: /reason: ClustersetUnknown/,
    })
    t.match(await cli(broker, 'broker', 'clusterset', 'remove', 'demo'), { code: 1, stderr: /the broker's own/ })
    for (const said of [/removed/, /was already removed/])
      t.match(await cli(broker, 'broker', 'clusterset', 'remove', 'green', '--force'), { code: 0, stdout: said })
    const served = async (): Promise<string> =>
      /sealane_broker_clusterset_served\{clusterset="green".*\} (\d)/.exec(await broker.metrics())?.[1] ?? '-'
    await eventually(async () => (await served()) === '0', { say: 'it is served no more' })
    t.equal(await siteOf('green', 'paris').dig(DB), ANSWER.green, 'the broker may vanish')
    t.equal(await siteOf('demo', 'paris').dig(DB), '10.50.0.9', 'the others go on')
    t.match(await json<object>(t, broker, 'broker', 'clusterset', 'create', 'green'), { repeated: false })
    await eventually(async () => (await served()) === '1', { deadlineMs: 15_000, say: 'it is served again' })
    siteOf('green', 'oslo').write('shop.yaml', NAMESPACE + service('10.50.0.8'))
    const moved = async (): Promise<boolean> => (await siteOf('green', 'paris').dig(DB)) === '10.50.0.8'
    await eventually(moved, { deadlineMs: 60_000, say: 'its members go on with their certificates' })
  })

  await t.test('what each has in its store', async (t) => {
    for (const set of SETS) {
      const opened = await openState(dirOf(broker, set), new SystemClock())
      t.equal(opened.log.get('settings', 'settings')?.clusterset, set)
      t.equal(opened.log.count('clusterset'), set === 'demo' ? 2 : 0, "only the broker's own knows of others")
      await opened.close()
    }
    const lines = readFileSync(audit, 'utf8').split('\n')
    const of = (set: string): number => lines.filter((line) => line.includes(`"clusterset":"${set}"`)).length
    t.ok(of('blue') > 10 && of('green') > 10, `${of('blue')} and ${of('green')} lines`)
    t.ok(lines.length > of('blue') + of('green') + 10, 'lines of its own name none, as before')
    t.equal(of('demo'), 0)
  })
})
