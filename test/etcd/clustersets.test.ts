/**
 * Three brokers on one etcd serve three clustersets, each with three members of the same ids. Each member connects to
 * all three brokers. Brokers, etcd and commands are real processes. A record, change or certificate of one clusterset
 * has no effect in another.
 *
 *   demo, blue, green: milano, paris, oslo ─► broker 0, 1, 2 ─► etcd (three members)
 */
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { connect } from 'node:tls'
import t, { type Test } from 'tap'
import { recordKeyText } from '../../model/records.ts'
import { fingerprint } from '../../protocol/identity/certificates.ts'
import { AuthorityCommands, PATIENCE, isFree } from '../broker/support/authority-commands.ts'
import { aSlice, anExport } from '../broker/support/harness.ts'
import { LinkedMember } from '../broker/support/linked-member.ts'
import { runCli } from '../cli/run-cli.ts'
import { eventually } from '../support/eventually.ts'
import { startEtcdCluster } from './support/etcd-cluster.ts'
import { type ServedBroker, type ServedBrokers, threeBrokers } from './support/served-brokers.ts'

t.setTimeout(300_000)

const OTHERS = ['blue', 'green'] as const
const SETS = ['demo', ...OTHERS] as const
const IDS = ['milano', 'paris', 'oslo'] as const
type SetName = (typeof SETS)[number]

let brokers: ServedBrokers
const members = new Map<SetName, LinkedMember[]>()

t.before(async () => {
  brokers = await threeBrokers(t, await startEtcdCluster(t), '/sets/demo')
  await Promise.all(brokers.map((broker) => broker.start()))
})

const which = (set: SetName): readonly string[] => (set === 'demo' ? [] : ['--clusterset', set])
const dirOf = ({ state }: ServedBroker, set: SetName): string =>
  set === 'demo' ? state : `${state}/clustersets/${set}`

async function cli(broker: ServedBroker, ...words: readonly string[]) {
  return runCli([...words, '--state', broker.state])
}

async function json<T>(t: Test, broker: ServedBroker, ...words: readonly string[]): Promise<T> {
  const { code, stdout, stderr } = await cli(broker, ...words, '-o', 'json')
  t.equal(code, 0, `${words.join(' ')}: ${stderr}`)
  return JSON.parse(stdout) as T
}

async function token(t: Test, broker: ServedBroker, set: SetName): Promise<string> {
  return (await json<{ token: string }>(t, broker, 'token', 'create', ...which(set))).token
}

interface Row {
  readonly id: string
  readonly state: string
  readonly globalCIDRs: readonly string[]
}

/** Returns the members that have not left, ordered by id. */
async function list(t: Test, broker: ServedBroker, set: SetName): Promise<readonly Row[]> {
  const { items } = await json<{ readonly items: readonly Row[] }>(t, broker, 'cluster', 'list', ...which(set))
  return [...items].sort((a, b) => (a.id < b.id ? -1 : 1))
}

/** Waits until the broker serves these clustersets; without a list, all of them. */
async function serves(broker: ServedBroker, sets: readonly string[] = OTHERS): Promise<void> {
  const isSo = async (): Promise<boolean> => {
    const text = await (await fetch(`http://${broker.status}/metrics`)).text()
    return sets.every((set) => new RegExp(`sealane_broker_clusterset_served{clusterset="${set}".*} 1`).test(text))
  }
  await eventually(isSo, { ...PATIENCE, say: `${sets.join()} are served` })
}

const of = (set: SetName, id: string): LinkedMember => {
  const found = members.get(set)?.find((member) => member.id === id)
  if (found === undefined) throw new Error(`${set} has no ${id}`)
  return found
}
/** An address that differs in each clusterset, so that it shows which clusterset a record belongs to. */
const addressOf = (set: SetName, n = 1): string => `10.42.${SETS.indexOf(set)}.${n}`

t.test('made at one broker, opened by all; typed twice at each', async (t) => {
  for (const set of OTHERS) {
    for (const [i, broker] of brokers.entries()) {
      const made = await json<object>(t, broker, 'broker', 'clusterset', 'create', set)
      // Another replica counts members once it has opened the set.
      t.match(made, { name: set, repeated: i > 0, ...(i === 0 ? { members: 0 } : {}) }, `${set} at broker ${i}`)
    }
  }
  await Promise.all(brokers.map((broker) => serves(broker)))
  for (const broker of brokers) {
    const { items } = await json<{ items: readonly { name: string }[] }>(t, broker, 'broker', 'clusterset', 'list')
    t.strictSame(
      items.map(({ name }) => name),
      [...SETS],
    )
  }
  const authorities = SETS.flatMap((set) =>
    brokers.map((broker) => readFileSync(join(dirOf(broker, set), 'ca.crt'), 'utf8')),
  )
  t.equal(new Set(authorities).size, 3, 'one for each set, the same at each broker')
})

t.test('members of the same ids: blocks are of each set alone', async (t) => {
  for (const set of SETS) {
    const joins = IDS.map(async (id, i) => LinkedMember.join(t.parent as Test, await token(t, brokers[i]!, set), id))
    members.set(set, await Promise.all(joins))
  }
  for (const [i, set] of SETS.entries()) {
    const rows = await list(t, brokers[i]!, set)
    t.strictSame(
      rows.map(({ id }) => id),
      [...IDS].sort(),
      set,
    )
    const blocks = rows.flatMap(({ globalCIDRs }) => globalCIDRs).sort()
    t.strictSame(blocks.slice(0, 2), ['244.0.0.0/16', '244.1.0.0/16'], 'no block of one is one less for another')
  }
})

t.test('what one set publishes, its own see and nobody else', async (t) => {
  for (const set of SETS) of(set, 'milano').publish(anExport('web'), aSlice('web', addressOf(set)))
  for (const set of SETS) {
    for (const id of ['paris', 'oslo']) {
      const knows = (): boolean =>
        of(set, id).knows('milano/EndpointSlice/shop/web-1')?.includes(addressOf(set)) === true
      await eventually(knows, { ...PATIENCE, say: `${id} of ${set} knows it` })
      await eventually(() => of(set, id).knows('/ClusterSetIP/shop/web'), { ...PATIENCE, say: 'and its address' })
    }
  }
  const ips = SETS.map((set) => of(set, 'paris').knows('/ClusterSetIP/shop/web'))
  t.equal(new Set(ips).size, 1, `the first address of the range, in each set by itself: ${String(ips[0])}`)
  of('blue', 'oslo').publish(anExport('only-blue'))
  await eventually(() => of('blue', 'paris').knows('oslo/ServiceExport/shop/only-blue'), PATIENCE)
  for (const set of ['demo', 'green'] as const) {
    of(set, 'milano').publish(anExport('web'), aSlice('web', addressOf(set)), anExport('after'))
    await eventually(() => of(set, 'paris').knows('milano/ServiceExport/shop/after'), PATIENCE)
    for (const id of IDS) {
      const keys = [...of(set, id).link.replica.records()].map(({ key }) => recordKeyText(key))
      t.notOk(
        keys.some((key) => key.includes('only-blue')),
        `${id} of ${set}`,
      )
    }
  }
})

t.test('the authority of one is rotated: the others feel nothing', async (t) => {
  const served = async (broker: ServedBroker, set: SetName): Promise<string> =>
    (await new AuthorityCommands({ state: dirOf(broker, set) }).status()).current.fingerprint
  const all = async (set: SetName): Promise<readonly string[]> =>
    Promise.all(brokers.map((broker) => served(broker, set)))
  const [demo, blue, green] = [await all('demo'), await all('blue'), await all('green')]
  const ca = new AuthorityCommands({ state: dirOf(brokers[1], 'blue') })
  const { next } = await ca.step(t, 'rotate')
  await ca.until('switched', isFree)
  await ca.step(t, 'finish')
  for (const broker of brokers) {
    const isNew = async (): Promise<boolean> => (await served(broker, 'blue')) === next?.fingerprint
    await eventually(isNew, { ...PATIENCE, say: 'blue has the new one at each broker' })
  }
  t.not(blue[0], next?.fingerprint)
  t.strictSame([await all('demo'), await all('green')], [demo, green])
  for (const set of SETS) {
    const want = set === 'blue' ? next?.fingerprint : (set === 'demo' ? demo : green)[0]
    for (const id of IDS) {
      await eventually(async () => (await of(set, id).bundle()).join() === want, { ...PATIENCE, say: `${set}/${id}` })
      t.strictSame(of(set, id).refusals, [], `${id} of ${set} was never refused`)
    }
  }
  t.equal(await shownBy(brokers[0]), demo[0], 'who asks for none is shown the own one')
})

t.test('one of the same id is evicted in one set; a broker is killed, and all goes on', async (t) => {
  t.equal((await cli(brokers[2], 'cluster', 'evict', 'oslo', '--force', ...which('blue'))).code, 0)
  t.equal((await cli(brokers[1], 'cluster', 'evict', 'oslo', '--force', ...which('blue'))).code, 0, 'a second time')
  const gone = (): boolean =>
    ['milano', 'paris'].every((id) => of('blue', id).knows('oslo/Cluster//oslo') === undefined)
  await eventually(gone, { deadlineMs: 10_000, say: 'blue drops it' })
  await of('blue', 'oslo').stop()
  for (const set of ['demo', 'green'] as const) {
    t.ok(of(set, 'milano').knows('oslo/Cluster//oslo'), `${set} keeps its own`)
    t.equal((await list(t, brokers[0], set)).length, 3)
  }

  await brokers[0].kill()
  const made = await json<object>(t, brokers[1], 'broker', 'clusterset', 'create', 'red')
  t.match(made, { repeated: false }, 'made with one broker down')
  await Promise.all(brokers.slice(1).map((broker) => serves(broker, [...OTHERS, 'red'])))
  for (const set of SETS) {
    of(set, 'milano').publish(anExport('web'), aSlice('web', addressOf(set, 9)))
    const knows = (): boolean =>
      of(set, 'paris').knows('milano/EndpointSlice/shop/web-1')?.includes(addressOf(set, 9)) === true
    await eventually(knows, { ...PATIENCE, say: `${set} goes on` })
  }
  for (const round of [/removed/, /was already removed/])
    t.match(await cli(brokers[2], 'broker', 'clusterset', 'remove', 'red'), { code: 0, stdout: round })
  t.match(await cli(brokers[2], 'broker', 'clusterset', 'remove', 'green'), { code: 1, stderr: /it has 3 members/ })

  await brokers[0].start()
  await serves(brokers[0])
  const sizes = await Promise.all(SETS.map(async (set) => (await list(t, brokers[0], set)).length))
  t.strictSame(sizes, [3, 2, 3], 'what happened meanwhile is there')
  const { items } = await json<{ items: readonly object[] }>(t, brokers[0], 'broker', 'clusterset', 'list')
  t.match(items, [{ name: 'demo' }, { name: 'blue' }, { name: 'green' }, { name: 'red', state: 'removed' }])
})

/** Returns the fingerprint of the authority that a broker presents to a client without a server name. */
async function shownBy({ address }: ServedBroker): Promise<string> {
  const [host = '', port = ''] = address.split(':')
  const socket = connect({ host, port: Number(port), ALPNProtocols: ['h2'], rejectUnauthorized: false })
  await once(socket, 'secureConnect')
  const chain = socket.getPeerCertificate(true)
  socket.destroy()
  return fingerprint(chain.issuerCertificate.raw)
}
