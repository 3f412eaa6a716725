/** What happens over time: the broker dies, a site restarts, services come and go, a site leaves. */
import { readFile } from 'node:fs/promises'
import { siteProcesses } from '../sites.ts'
import { until } from '../until.ts'
import {
  DB,
  WEB,
  type Check,
  type World,
  digShort,
  digStatus,
  expectEqual,
  fetchPage,
  globalAddress,
  siteRow,
} from './world.ts'

const SENT = 'sealane_publish_messages_total'
const CONNECTED = 'sealane_publish_live'

async function callsBothWays(world: World): Promise<void> {
  expectEqual('db-0 in paris', await fetchPage(world, 'tokyo-client-1', `http://db-0.paris.${DB}:5432/`), 'paris/db-0')
  expectEqual(
    'db-0 in milano',
    await fetchPage(world, 'paris-client-0', `http://db-0.milano.${DB}:5432/`),
    'milano/db-0',
  )
  await fetchPage(world, 'paris-client-0', `http://${WEB}/`)
}

const brokerVanishes: Check = {
  name: 'the broker is killed: calls continue',
  async run(world) {
    await world.lab.stop('broker', 'SIGKILL')
    await callsBothWays(world)
    return 'paris and milano answer'
  },
}

/** Nothing of paris may depend on the broker to come up. */
const siteRestarts: Check = {
  name: 'every process of paris restarts without the broker: calls continue',
  async run(world) {
    const rows = siteProcesses(siteRow(world, 'paris'))
    for (const row of rows) {
      await world.lab.stop(row.name)
      await callsToParis(world)
      world.sites.start(row, 'paris')
    }
    await Promise.all(rows.map((row) => world.sites.ready(row)))
    await callsBothWays(world)
    return `${rows.length} processes restarted one by one`
  },
}

/** Paris' own DNS may be the process that is down, so tokyo asks. */
async function callsToParis(world: World): Promise<void> {
  expectEqual('db-0 in paris', await fetchPage(world, 'tokyo-client-1', `http://db-0.paris.${DB}:5432/`), 'paris/db-0')
}

/** milano has not changed meanwhile, so it must not send a single record. */
const brokerReturns: Check = {
  name: 'the broker returns: only the difference is sent',
  async run(world) {
    const agent = siteProcesses(siteRow(world, 'milano'))[0]
    if (agent === undefined) throw new Error('milano has no agent')
    await until('milano to notice', 20_000, async () => (await world.sites.metric(agent, CONNECTED)) === 0)
    const before = await world.sites.metric(agent, SENT, 'type="put"')
    if (before === 0) throw new Error('milano counts nothing that it sent: the check would see nothing')
    await world.sites.startBroker()
    const ms = await until(
      'milano to be connected',
      20_000,
      async () => (await world.sites.metric(agent, CONNECTED)) === 1,
    )
    for (const row of world.rows) {
      const other = siteProcesses(row)[0]
      if (other === undefined || other.name === agent.name) continue
      await until(`${row.name} to be connected`, 20_000, async () => (await world.sites.metric(other, CONNECTED)) === 1)
    }
    const after = await world.sites.metric(agent, SENT, 'type="put"')
    expectEqual('records that milano sent again', after - before, 0)
    return `connected after ${Math.round(ms)} ms, 0 records sent again`
  },
}

const unexport: Check = {
  name: 'unexport: NXDOMAIN elsewhere; export: answers again',
  async run(world) {
    const command = (verb: string, site: string): Promise<string> =>
      world.sites.sealane(`${site}-gw`, [verb, 'web', '--namespace', 'shop', '--site', world.sites.siteFile(site)])
    await Promise.all([command('unexport', 'milano'), command('unexport', 'paris')])
    const started = performance.now()
    for (const client of ['tokyo-client-1', 'paris-client-0']) {
      await until(`NXDOMAIN in ${client}`, 2000, async () => {
        const status = await digStatus(world, client, WEB)
        return status === 'NXDOMAIN' ? true : status
      })
    }
    const gone = performance.now() - started
    await command('export', 'milano')
    const back = await until(
      'web to answer again',
      2000,
      async () => (await digStatus(world, 'tokyo-client-1', WEB)) === 'NOERROR',
    )
    await until('milano to serve', 2000, async () => {
      const page = await fetchPage(world, 'tokyo-client-1', `http://${WEB}/`).catch((error: unknown) => String(error))
      return page.startsWith('milano/') ? true : page
    })
    await command('export', 'paris')
    return `gone after ${Math.round(gone)} ms, back after ${Math.round(back)} ms`
  },
}

/** For each process. */
const MEMORY_LIMIT_MIB = 120

const memory: Check = {
  name: `resident memory of each process at most ${MEMORY_LIMIT_MIB} MiB`,
  async run(world) {
    const rows = await Promise.all(world.lab.daemons().map((daemon) => residentMemory(daemon.process.pid ?? 0)))
    const parts = rows.flat().sort((a, b) => b.mib - a.mib)
    const largest = parts[0]
    if (largest === undefined) throw new Error('no process of Sealane found')
    const worst = new Map<string, number>()
    for (const { part, mib } of parts) worst.set(part, Math.max(mib, worst.get(part) ?? 0))
    const text = [...worst].map(([part, mib]) => `${part} ${mib} MiB`).join(', ')
    if (largest.mib > MEMORY_LIMIT_MIB) throw new Error(text)
    return text
  },
}

/** `ip netns exec` becomes the program itself, so the daemon's pid is Sealane's own. */
async function residentMemory(pid: number): Promise<{ part: string; mib: number }[]> {
  const words = (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).split('\0')
  const part = words[words.indexOf('--component') + 1] ?? ''
  const name = words.includes('--component') ? part : words.includes('broker') ? 'broker' : undefined
  if (name === undefined) return []
  const status = await readFile(`/proc/${pid}/status`, 'utf8')
  return [{ part: name, mib: Math.round(Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? 0) / 1024) }]
}

/** Everything of a node's kernel that Sealane could have touched, as text, once its own devices have come to rest. */
export async function kernelDump(world: World, node: string): Promise<string> {
  await until(`the IPv6 addresses of ${node} to be settled`, 10_000, async () => {
    return !(await world.lab.must(node, 'ip', ['-6', '-o', 'address'])).includes('tentative')
  })
  const questions: readonly (readonly [string, ...string[]])[] = [
    ['ip', '-o', 'link'],
    ['ip', '-o', 'address'],
    ['ip', 'route', 'show', 'table', 'all'],
    ['ip', '-6', 'route', 'show', 'table', 'all'],
    ['ip', 'rule'],
    ['ip', '-6', 'rule'],
    ['ip', 'neigh', 'show', 'nud', 'permanent'],
    ['bridge', 'fdb', 'show', 'permanent'],
    ['nft', '-s', 'list', 'ruleset'],
    ['sh', '-c', 'cat /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv4/conf/*/rp_filter'],
  ]
  const answers = await Promise.all(questions.map(([command, ...args]) => world.lab.must(node, command, args)))
  const sections = questions.map((question, i) => `# ${question.join(' ')}\n${answers[i] ?? ''}`)
  return sections.join('\n')
}

export const PARIS_NODES = ['paris-gw', 'paris-w1']

export function leaves(before: ReadonlyMap<string, string>): Check {
  return {
    name: 'paris leaves: removed elsewhere, kernel as before',
    async run(world) {
      const address = await globalAddress(world, 'paris', 'db-0')
      await world.sites.sealane('paris-gw', ['leave', '--yes', '--site', world.sites.siteFile('paris')])
      await until('paris to be gone from tokyo', 2000, async () => {
        const status = await digStatus(world, 'tokyo-client-1', `db-0.paris.${DB}`)
        return status === 'NXDOMAIN' ? true : status
      })
      const rest = await digShort(world, 'tokyo-client-1', 'A', DB)
      if (rest.includes(address)) throw new Error(`tokyo still answers ${address}`)
      for (const row of siteProcesses(siteRow(world, 'paris'))) await world.lab.stop(row.name)
      for (const node of PARIS_NODES) expectSameKernel(node, before.get(node) ?? '', await kernelDump(world, node))
      return `tokyo is left with ${rest.length} addresses; links, routes, rules, nft equal on both nodes`
    },
  }
}

function expectSameKernel(node: string, before: string, after: string): void {
  const old = new Set(before.split('\n'))
  const now = new Set(after.split('\n'))
  const added = [...now].filter((line) => !old.has(line))
  const lost = [...old].filter((line) => !now.has(line))
  if (added.length + lost.length === 0) return
  throw new Error(
    `${node} differs: ${[...added.map((line) => `+${line}`), ...lost.map((line) => `-${line}`)].join(' | ')}`,
  )
}

export const lifeChecks: readonly Check[] = [memory, brokerVanishes, siteRestarts, brokerReturns, unexport]
