/**
 * `npm run bench:failover -- [--json] [--rounds N] [--fault NAME,… | all | --busy] [--minutes N] [--load PERCENT]`: the
 * cost of faults. Two sites with the same pod addresses have two gateways each, on one machine. The pods call each
 * other over 20 flows and 50 TCP connections, half of them from each side: 1,000 datagrams a second in each direction,
 * and a byte in each direction every 20 ms. That keeps two cores busy; figures with less load are those of machines
 * with spare capacity.
 *
 * If no fault is named, one gateway node in each round loses all its packets and its process stops, in turn on both
 * sides, and recovers. The peer in the same run is what an administrator would build by hand: two plain WireGuard
 * devices with ECMP routes over them, and a script that pings each far end once a second. failover/faults.ts has the
 * other faults: network faults while all processes run, and the broker is away. Faults that should change nothing last
 * N minutes.
 *
 * With --busy the node of a gateway disappears while two programs use both cores (failover/busy-cores.ts), and nothing
 * else is measured. The default load is then a tenth, because the load need not keep the machine busy.
 *
 * A loss is the longest time in which one flow got no answer, beyond the interval between two of its datagrams. Calm is
 * the same without any fault: what this machine adds.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { requirePackages } from '../scripts/install-system-packages.ts'
import { Caller, type Load, answerIn } from '../test/failover/caller.ts'
import { nodeGone } from '../test/failover/faults.ts'
import { HAND_ADDRESSES, withHandMadeLanes } from '../test/failover/hand-made.ts'
import { POD_ADDRESSES, type SiteNode, type TwoSites, withTwoSites } from '../test/failover/sites.ts'
import { netnsMissing } from '../test/support/netns.ts'
import { withBusyCores } from './failover/busy-cores.ts'
import { FAULTS, inTurn } from './failover/faults.ts'
import { type Losses, measure } from './failover/measure-cuts.ts'
import { rotated, rotatedAlone } from './failover/rotations.ts'
import { percentile, progress, round } from './figures.ts'

/** The load of each of two callers, all of which is answered. It uses two cores fully. */
const LOAD: Load = { flows: 10, pps: 500, connections: 25 }
/** The percentage of that load. */
const FULL_LOAD = '100'
const BUSY_LOAD = '10'
/** The time until no traffic uses a drained gateway, and until it has its share again. */
const DRAIN_MS = 12_000
/** Each gateway is drained once. */
const DRAINS = 4

async function main(): Promise<void> {
  // The test processes raise their priority as the product does.
  process.env['SEALANE_TEST_FAVOURED'] = '1'
  const { values } = parseArgs({
    options: {
      json: { type: 'boolean' },
      rounds: { type: 'string', default: '20' },
      fault: { type: 'string', default: 'node' },
      minutes: { type: 'string', default: '10' },
      load: { type: 'string' },
      busy: { type: 'boolean', default: false },
    },
  })
  const share = positive('--load', values.load ?? (values.busy ? BUSY_LOAD : FULL_LOAD)) / 100
  const load = { flows: LOAD.flows, pps: LOAD.pps * share, connections: Math.ceil(LOAD.connections * share) }
  const rounds = positive('--rounds', values.rounds)
  const steadyMs = positive('--minutes', values.minutes) * 60_000
  const faults = faultNames(values.fault)
  if (values.busy && values.fault !== NODE) throw new Error(`--fault ${values.fault}: expected ${NODE} with --busy`)
  const missing = netnsMissing()
  if (missing !== undefined) throw new Error(missing)
  requirePackages('bench')
  const folder = mkdtempSync(join(tmpdir(), 'sealane-failover-'))
  try {
    if (values.busy) {
      const figures = await busyFigures({ folder: join(folder, 'busy'), load }, rounds)
      progress(figures, JSON.stringify(figures, undefined, 2))
      return
    }
    const figures = faults.includes(NODE) ? await nodeFigures({ folder: join(folder, NODE), load }, rounds) : { rounds }
    const others = faults.filter((name) => name !== NODE)
    const more =
      others.length === 0 ? {} : await faultFigures({ folder: join(folder, 'faults'), load }, others, rounds, steadyMs)
    const all = { ...figures, ...more }
    progress(all, JSON.stringify(all, undefined, 2))
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** The fault that is measured if none is named: the node of a gateway disappears. */
const NODE = 'node'

function faultNames(text: string): string[] {
  const known = [NODE, ...Object.keys(FAULTS)]
  const names = text === 'all' ? known : text.split(',')
  const unknown = names.find((name) => !known.includes(name))
  if (unknown !== undefined) throw new Error(`--fault ${JSON.stringify(unknown)}: expected all or ${known.join(', ')}`)
  return names
}

function positive(option: string, text: string): number {
  const value = Number(text)
  if (Number.isInteger(value) && value > 0) return value
  throw new Error(`${option} ${JSON.stringify(text)}: expected a whole number above 0`)
}

interface CallersInit {
  readonly folder: string
  readonly load: Load
}

async function withCallers<T>(
  { folder, load }: CallersInit,
  story: (sites: TwoSites, callers: readonly Caller[]) => Promise<T>,
  names?: readonly string[],
): Promise<T> {
  const init = names === undefined ? {} : { names }
  const run = async (sites: TwoSites): Promise<T> => {
    const { pods } = sites
    for (const pod of Object.values(pods)) await answerIn(pod)
    const callers = [
      new Caller(pods.milano, POD_ADDRESSES.paris, load),
      new Caller(pods.paris, POD_ADDRESSES.milano, load),
    ]
    const result = await story(sites, callers)
    await Promise.all(callers.map((caller) => caller.stop()))
    return result
  }
  return withTwoSites(folder, run, init)
}

/** Measures with the broker away, since no fault may need one. */
async function faultFigures({ folder, load }: CallersInit, names: readonly string[], rounds: number, steadyMs: number) {
  const all: Record<string, number> = {}
  for (const name of names) {
    const figures = await withCallers({ folder: join(folder, name), load }, async (sites, callers) => {
      sites.broker.goAway()
      await Promise.all(callers.map(({ started }) => started))
      return FAULTS[name]?.(name, { sites, callers, rounds, steadyMs })
    })
    Object.assign(all, figures)
  }
  return all
}

/** Builds the sites before the cores are busy, because only the cost of a fault is measured. */
async function busyFigures(init: CallersInit, rounds: number) {
  const losses = await withCallers(init, (sites, callers) =>
    withBusyCores(() => measure('busy', callers, inTurn(sites).map(nodeGone), rounds)),
  )
  return {
    rounds,
    busyCalmMs: round(Math.max(...losses.calmMs)),
    busyLossP50Ms: round(percentile(losses.lossMs, 0.5)),
    busyLossP99Ms: round(percentile(losses.lossMs, 0.99)),
    busyReturnLossP99Ms: round(percentile(losses.returnMs, 0.99)),
    busyTcpBroken: losses.broken,
  }
}

async function nodeFigures({ folder, load }: CallersInit, rounds: number) {
  const sealane = await withCallers({ folder, load }, async (sites, callers) => {
    const gateways = inTurn(sites)
    const losses = await measure('sealane', callers, gateways.map(nodeGone), rounds)
    const drainLost = await drained(callers, gateways.slice(0, DRAINS), sites.drain)
    const rotateLost = await rotated(callers, gateways.slice(0, DRAINS), sites.rotate)
    return { ...losses, drainLost, rotateLost }
  })
  const rotateAloneLost = await withCallers({ folder: join(folder, 'alone'), load }, rotatedAlone, ['gw0', 'worker'])
  const byHand = await withHandMadeLanes(async ({ pods, lanes }) => {
    for (const pod of pods) await answerIn(pod)
    const [left, right] = pods
    const [toLeft, toRight] = HAND_ADDRESSES
    const callers = [new Caller(left, toRight, load), new Caller(right, toLeft, load)]
    const losses = await measure('by hand', callers, lanes, Math.min(rounds, 8))
    await Promise.all(callers.map((caller) => caller.stop()))
    return losses
  })
  return report({ ...sealane, rotateAloneLost }, byHand, rounds)
}

/** Datagrams without an answer in each drain and return. */
async function drained(
  callers: readonly Caller[],
  gateways: readonly SiteNode[],
  drain: (gateway: SiteNode, on: boolean) => void,
): Promise<number[]> {
  const seen = () => Promise.all(callers.map((caller) => caller.seen()))
  const lost: number[] = []
  await seen()
  for (const gateway of gateways) {
    for (const on of [true, false]) {
      drain(gateway, on)
      await sleep(DRAIN_MS)
      lost.push((await seen()).reduce((sum, { sent, answered }) => sum + sent - answered, 0))
      process.stderr.write(`${gateway.port} ${on ? 'is drained' : 'is back'}: ${lost.at(-1)} lost\n`)
    }
  }
  return lost
}

interface Rotations {
  readonly drainLost: readonly number[]
  readonly rotateLost: readonly number[]
  readonly rotateAloneLost: readonly number[]
}

function report(sealane: Losses & Rotations, byHand: Losses, rounds: number) {
  return {
    rounds,
    calmMs: round(Math.max(...sealane.calmMs)),
    lossP50Ms: round(percentile(sealane.lossMs, 0.5)),
    lossP99Ms: round(percentile(sealane.lossMs, 0.99)),
    tcpGapP99Ms: round(percentile(sealane.tcpGapMs, 0.99)),
    tcpBroken: sealane.broken,
    drainLost: Math.max(...sealane.drainLost),
    rotateLost: Math.max(...sealane.rotateLost),
    rotateAloneLost: Math.max(...sealane.rotateAloneLost),
    returnLossP50Ms: round(percentile(sealane.returnMs, 0.5)),
    returnLossP99Ms: round(percentile(sealane.returnMs, 0.99)),
    returnLostMost: Math.max(...sealane.returnLost),
    carriesP99Ms: round(percentile(sealane.carriesMs, 0.99)),
    handCalmMs: round(Math.max(...byHand.calmMs)),
    handLossP50Ms: round(percentile(byHand.lossMs, 0.5)),
    handLossP99Ms: round(percentile(byHand.lossMs, 0.99)),
    handReturnLossP99Ms: round(percentile(byHand.returnMs, 0.99)),
    handTcpBroken: byHand.broken,
  }
}

await main()
