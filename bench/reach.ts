/**
 * `npm run bench:reach -- [--json] [--rounds N] [--seconds N]`: how soon two sites reach each other by each way, and how
 * much each way carries. Sites are namespaces in which the command line runs (test/netns/support/plain-sites.ts). Each
 * round makes three new worlds: paris and roma can be called; they are behind NATs that nobody passes, and milano and oslo
 * relay; no UDP passes at all, and a relay on port 443 runs beside the broker.
 *
 * - `directMs`, `relayFirstMs`, `tcp443FirstMs`: from roma's first datagram, while paris and the relays run, until the
 *   first answer from pod to pod.
 * - `fallbackMs`: the longest time without an answer when the relay that carries the link loses power.
 * - `relayRatio`, `tcp443Ratio`: one TCP stream from pod to pod, relative to the direct link of the same round.
 *
 * All are medians of the rounds.
 */
import type { ChildProcess } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { readRounds } from './read-rounds.ts'
import { hide } from '../test/netns/support/lost-faults.ts'
import { type PlainSite, type PlainWorld, type SitePlan, withPlainSites } from '../test/netns/support/plain-sites.ts'
import { eventually } from '../test/support/eventually.ts'
import { type Netns, withNetns } from '../test/support/netns.ts'
import { median, progress, round } from './figures.ts'

const SEALANE = join(import.meta.dirname, '../bin/sealane')
const PARIS = { name: 'paris', uplinks: '198.51', pods: '10.52', nodes: ['gw1'] }
const ROMA = { name: 'roma', uplinks: '198.52', pods: '10.62', nodes: ['gw1'] }
const ROMA_ADDRESS = `${ROMA.uplinks}.11.2`
const AIMS = { directMs: 2000, fallbackMs: 3000, relayRatio: 0.9, tcp443Ratio: 0.5 }
/** The usual time after which a world that does not come up has failed. */
const UP_MS = 120_000
const PING_EVERY_MS = 20

/** Counts datagrams of roma before any other rule of the router. */
const COUNT = `table ip bench {
  counter roma { }
  chain first {
    type filter hook prerouting priority -320;
    ip saddr ${ROMA_ADDRESS} meta l4proto udp counter name roma
  }
}`
const NO_UDP = 'table ip closed { chain forward { type filter hook forward priority 0; ip protocol udp drop; }; }'

interface Settings {
  readonly folder: string
  readonly seconds: number
}

interface Way {
  readonly firstMs: number
  readonly mbit: number
}

interface Sample {
  readonly direct: Way
  readonly relayed: Way & { readonly fallbackMs: number }
  readonly web: Way
}

async function main(): Promise<void> {
  const { rounds, seconds } = readRounds({ rounds: 3, seconds: 5 })
  const samples: Sample[] = []
  for (let i = 0; i < rounds; i += 1) {
    const direct = await inFolder(seconds, measureDirect)
    const relayed = await inFolder(seconds, measureRelayed)
    const web = await inFolder(seconds, measureWeb)
    console.error(`round ${i + 1}: ${JSON.stringify({ direct, relayed, web })}`)
    samples.push({ direct, relayed, web })
  }
  const mid = (of: (sample: Sample) => number): number => median(samples.map(of))
  const figures = {
    directMs: Math.round(mid(({ direct }) => direct.firstMs)),
    relayFirstMs: Math.round(mid(({ relayed }) => relayed.firstMs)),
    tcp443FirstMs: Math.round(mid(({ web }) => web.firstMs)),
    fallbackMs: Math.round(mid(({ relayed }) => relayed.fallbackMs)),
    relayRatio: round(
      mid(({ relayed, direct }) => relayed.mbit / direct.mbit),
      2,
    ),
    tcp443Ratio: round(
      mid(({ web, direct }) => web.mbit / direct.mbit),
      2,
    ),
    directMbit: round(
      mid(({ direct }) => direct.mbit),
      0,
    ),
  }
  progress(
    figures,
    `first answer: direct ${figures.directMs} ms (aim ${AIMS.directMs}), relayed ${figures.relayFirstMs} ms, over port ` +
      `443 ${figures.tcp443FirstMs} ms\n` +
      `a relay loses power: ${figures.fallbackMs} ms without an answer (aim ${AIMS.fallbackMs})\n` +
      `of ${figures.directMbit} Mbit/s direct: relayed ${figures.relayRatio} (aim ${AIMS.relayRatio}), over port 443 ` +
      `${figures.tcp443Ratio} (aim ${AIMS.tcp443Ratio}; ${rounds} rounds)`,
  )
}

async function inFolder<T>(seconds: number, measured: (settings: Settings) => Promise<T>): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), 'sealane-reach-'))
  try {
    return await measured({ folder, seconds })
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

function measureDirect({ folder, seconds }: Settings): Promise<Way> {
  const called = (plan: Omit<SitePlan, 'spec'>) => ({
    ...plan,
    spec: `  gateways: [{ node: gw1, publicAddress: ${plan.uplinks}.11.2 }]\n`,
  })
  return withPlainSites(folder, [called(PARIS), called(ROMA)], ([paris, roma], { internet }) =>
    measureWay({ paris, roma, internet, seconds }),
  )
}

function measureRelayed({ folder, seconds }: Settings): Promise<Way & { readonly fallbackMs: number }> {
  const relay = (name: string, uplinks: string, pods: string) => ({
    ...{ name, uplinks, pods, nodes: ['gw1'] },
    spec: `  gateways: [{ node: gw1, publicAddress: ${uplinks}.11.2, relay: true }]\n`,
  })
  const plans = [relay('milano', '192.0', '10.42'), relay('oslo', '192.1', '10.72'), hidden(PARIS), hidden(ROMA)]
  return withPlainSites(
    folder,
    plans,
    async ([milano, oslo, paris, roma], { internet }) => {
      for (const site of [milano, oslo]) site?.up('gw1')
      const way = await measureWay({ paris, roma, internet, seconds, linksFirst: 2 })
      if (paris === undefined || roma === undefined) throw new Error('no sites')
      // Both are bound at both relays by then, or the loss of one would show how soon they bind.
      await eventually(() => relayOf(paris) !== undefined && relayOf(paris) === relayOf(roma), {
        deadlineMs: UP_MS,
        say: 'both ends use one relay',
      })
      const lost = [milano, oslo].find((site) => site?.plan.name === relayOf(paris))
      if (lost === undefined) throw new Error(`no relay carries the link: ${JSON.stringify(relayOf(paris))}`)
      const answers = new Answers(paris, roma)
      try {
        const startMs = await answers.first()
        await answers.steadyFor(3000, startMs)
        const lostMs = performance.now()
        await lost.machine('gw1').lose()
        await eventually(() => answers.afterMs(lostMs + 50) !== undefined, { deadlineMs: UP_MS, say: 'calls go on' })
        const goneOnMs = answers.afterMs(lostMs + 50) ?? Number.NaN
        await answers.steadyFor(3000, goneOnMs)
        return { ...way, fallbackMs: answers.longestGapMs(lostMs) }
      } finally {
        answers.stop()
      }
    },
    { prepare: hide },
  )
}

function measureWeb({ folder, seconds }: Settings): Promise<Way> {
  return withPlainSites(
    folder,
    [hidden(PARIS), hidden(ROMA)],
    async ([paris, roma], world) => {
      await serveWeb(folder, world)
      return measureWay({ paris, roma, internet: world.internet, seconds })
    },
    { prepare: (internet) => internet.exec('nft', [NO_UDP]) },
  )
}

function hidden(plan: Omit<SitePlan, 'spec'>): SitePlan {
  return { ...plan, spec: '  gateways: [{ node: gw1 }]\n' }
}

/** Starts a relay on port 443 beside the broker, which gives its address to the members. */
async function serveWeb(folder: string, { broker, startBroker }: PlainWorld): Promise<void> {
  const relay = broker.netns.spawn(SEALANE, [
    ...['relay', 'serve', '--ca', join(folder, 'broker', 'ca.crt'), '--status-listen', '127.0.0.1:0'],
    ...['--listen', '0.0.0.0:443', '--state', join(folder, 'relay')],
  ])
  let said = ''
  for (const stream of [relay.stdout, relay.stderr]) stream?.on('data', (data: Buffer) => (said += data.toString()))
  await eventually(() => /#[0-9a-f]{64}/.test(said), { deadlineMs: UP_MS, say: 'the relay listens' })
  const [pin = ''] = /[0-9a-f]{64}/.exec(said) ?? []
  await broker.stop()
  startBroker(['--relay', `wss://${broker.address}/#${pin}`])
}

interface WayInit {
  readonly paris: PlainSite | undefined
  readonly roma: PlainSite | undefined
  readonly internet: Netns
  readonly seconds: number
  /** Links of paris that are to be up before roma starts: those with relays. Absent: none. */
  readonly linksFirst?: number
}

/** Starts paris, and roma a moment later. */
async function measureWay({ paris, roma, internet, seconds, linksFirst = 0 }: WayInit): Promise<Way> {
  if (paris === undefined || roma === undefined) throw new Error('no sites')
  await internet.exec('nft', ['-f', '-'], { input: COUNT })
  paris.up('gw1')
  await eventually(() => (paris.gateway('gw1')?.lanes ?? []).length > 0, { deadlineMs: UP_MS, say: 'paris runs' })
  await eventually(() => linksUp(paris) >= linksFirst, { deadlineMs: UP_MS, say: 'paris has its other links' })
  const answers = new Answers(paris, roma)
  try {
    roma.up('gw1')
    const startMs = await firstDatagram(internet)
    const firstMs = (await answers.first()) - startMs
    await answers.steadyFor(1000, startMs + firstMs)
    return { firstMs, mbit: await throughput(paris, roma, seconds) }
  } finally {
    answers.stop()
  }
}

function linksUp(site: PlainSite): number {
  return site.gateway('gw1')?.connections.filter(({ state }) => state === 'up').length ?? 0
}

/** The relay of the link between paris and roma, as one of them reports it. */
function relayOf(site: PlainSite): string | undefined {
  const link = site.gateway('gw1')?.connections.find(({ cluster }) => cluster === 'paris' || cluster === 'roma')
  return link?.state === 'up' ? link.usingRelay : undefined
}

/** When roma's first datagram passed the router, or a moment earlier: when the last look began that saw none. */
async function firstDatagram(internet: Netns): Promise<number> {
  let noneMs = performance.now()
  const sent = async (): Promise<boolean> => {
    const beganMs = performance.now()
    const text = await internet.exec('nft', ['list', 'counter', 'ip', 'bench', 'roma'])
    const isSent = Number(/packets (\d+)/.exec(text)?.[1]) > 0
    if (!isSent) noneMs = beganMs
    return isSent
  }
  await eventually(sent, { deadlineMs: UP_MS, intervalMs: 5, say: 'roma sends a datagram' })
  return noneMs
}

/** Pings from pod to pod, and when each was answered. */
class Answers {
  readonly #child: ChildProcess
  readonly #atMs: number[] = []

  constructor(from: PlainSite, to: PlainSite) {
    const { netns, podAddress } = from.machine('gw1')
    const args = ['-n', '-i', String(PING_EVERY_MS / 1000), '-I', podAddress, to.machine('gw1').podAddress]
    this.#child = netns.spawn('ping', args)
    if (this.#child.stdout === null) return
    createInterface(this.#child.stdout).on('line', (line) => {
      if (line.includes('bytes from')) this.#atMs.push(performance.now())
    })
  }

  async first(): Promise<number> {
    await eventually(() => this.#atMs.length > 0, { deadlineMs: UP_MS, intervalMs: 5, say: 'an answer' })
    return this.#atMs[0] ?? Number.NaN
  }

  /** Waits until answers have come for so long after a time. */
  async steadyFor(ms: number, sinceMs: number): Promise<void> {
    await eventually(() => (this.#atMs.at(-1) ?? -Infinity) >= sinceMs + ms, { deadlineMs: UP_MS, say: 'answers' })
  }

  afterMs(ms: number): number | undefined {
    return this.#atMs.find((at) => at > ms)
  }

  /** The longest time between two answers, the later of which came after `sinceMs`. */
  longestGapMs(sinceMs: number): number {
    const gaps = this.#atMs.map((at, i) => (at < sinceMs ? 0 : at - (this.#atMs[i - 1] ?? sinceMs)))
    return Math.max(0, ...gaps)
  }

  stop(): void {
    this.#child.kill('SIGKILL')
  }
}

interface IperfReport {
  readonly error?: string
  readonly end?: { readonly sum_received?: { readonly bits_per_second: number } }
}

/** Mbit/s of one TCP stream from a pod of paris to one of roma. Gateways themselves take no connections from lanes. */
function throughput(paris: PlainSite, roma: PlainSite, seconds: number): Promise<number> {
  return withNetns((from) =>
    withNetns(async (to) => {
      await addPod(paris, from)
      return measureStream(from, to, await addPod(roma, to), seconds)
    }),
  )
}

/** Makes the namespace a pod of the site's only node. Returns its address. */
async function addPod(site: PlainSite, pod: Netns): Promise<string> {
  const { netns: node, podAddress: router } = site.machine('gw1')
  const address = router.replace(/\d+$/, '5')
  await pod.exec('ip', `link add eth0 type veth peer name pod netns ${node.name}`.split(' '))
  await node.exec('ip', 'link set pod master cni0 up'.split(' '))
  await pod.exec('ip', `address add ${address}/24 dev eth0`.split(' '))
  // As a network plugin sets it: not more than fits into the narrowest lane.
  await pod.exec('ip', 'link set eth0 mtu 1280 up'.split(' '))
  await pod.exec('ip', `route add default via ${router}`.split(' '))
  return address
}

async function measureStream(from: Netns, to: Netns, address: string, seconds: number): Promise<number> {
  const server = to.spawn('iperf3', ['-s'])
  try {
    const args = ['-c', address, '-t', String(seconds), '-O', '1', '-J']
    const once = async (): Promise<number> => {
      const { stdout } = await from.tryExec('iperf3', args, { timeoutMs: (seconds + 30) * 1000 })
      const report = JSON.parse(stdout === '' ? '{}' : stdout) as IperfReport
      const { bits_per_second: bits = 0 } = report.end?.sum_received ?? {}
      if (bits === 0) throw new Error(report.error ?? 'nothing arrived')
      return bits / 1e6
    }
    return await eventually(once, { deadlineMs: 60_000, say: 'iperf3 measures' })
  } finally {
    server.kill('SIGKILL')
  }
}

await main()
