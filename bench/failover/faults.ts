/** The faults of `--fault` other than the loss of a node, each with its figures. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Caller } from '../../test/failover/caller.ts'
import {
  type Cut,
  LinkWatch,
  delayedTunnels,
  oneLink,
  oneOverlay,
  oneWayGateway,
  randomLoss,
  silentGateway,
} from '../../test/failover/faults.ts'
import { SITES, type SiteName, type SiteNode, type TwoSites } from '../../test/failover/sites.ts'
import { percentile, round } from '../figures.ts'
import { type Losses, measure } from './measure-cuts.ts'

export interface FaultRun {
  readonly sites: TwoSites
  readonly callers: readonly Caller[]
  readonly rounds: number
  /** How long a fault lasts that should change nothing. */
  readonly steadyMs: number
}

type Figures = Readonly<Record<string, number>>
type Measurement = (name: string, run: FaultRun) => Promise<Figures>

/** The faults by the name that `--fault` takes, with which the names of their figures begin. */
export const FAULTS: Readonly<Record<string, Measurement>> = {
  silent: cutsOf(({ internet }, gateways) => gateways.map((one) => silentGateway(internet, one))),
  oneway: cutsOf(({ internet }, gateways) =>
    gateways.map((one, i) => oneWayGateway(internet, one, i % 2 === 0 ? 'sent' : 'received')),
  ),
  onelink: cutsOf(({ internet, gateways }) =>
    gateways('milano').flatMap((a) => gateways('paris').map((b) => oneLink(internet, a, b))),
  ),
  overlay: cutsOf(({ internet, nodes }, gateways) =>
    gateways.map((one) => oneOverlay(internet, workerOf(nodes, one.site), one)),
  ),
  allgone,
  loss5: steady(({ internet }) => randomLoss(internet, 5)),
  loss7: steady(({ internet }) => randomLoss(internet, 7)),
  delay500: steady((sites) => delayedTunnels(sites, 500, 100)),
}

/** The gateways of both sides in turn. */
export function inTurn({ gateways }: TwoSites): SiteNode[] {
  const [left, right] = [gateways('milano'), gateways('paris')]
  return [...left.slice(0, 1), ...right.slice(1), ...left.slice(1), ...right.slice(0, 1)]
}

function cutsOf(cuts: (sites: TwoSites, gateways: readonly SiteNode[]) => readonly Cut[]): Measurement {
  return async (name, { sites, callers, rounds }) =>
    lossFigures(name, await measure(name, callers, cuts(sites, inTurn(sites)), rounds))
}

function lossFigures(name: string, losses: Losses): Figures {
  const at = (samples: readonly number[], share: number): number => round(percentile(samples, share))
  return {
    [`${name}LossP50Ms`]: at(losses.lossMs, 0.5),
    [`${name}LossP99Ms`]: at(losses.lossMs, 0.99),
    [`${name}ReturnLossP50Ms`]: at(losses.returnMs, 0.5),
    [`${name}ReturnLossP99Ms`]: at(losses.returnMs, 0.99),
    [`${name}ReturnLostMost`]: Math.max(...losses.returnLost),
    [`${name}CarriesP99Ms`]: at(losses.carriesMs, 0.99),
    [`${name}TcpBroken`]: losses.broken,
    [`${name}CalmMs`]: at(losses.calmMs, 1),
  }
}

/** How long both gateways of a site are away, in turn: a WireGuard session survives the first, and not the second. */
const GONE_MS = [4000, 25_000]
const SETTLED_MS = 15_000

/** Both gateways of a site disappear, then one is back: measures until all flows are answered. */
async function allgone(name: string, { sites, callers, rounds }: FaultRun): Promise<Figures> {
  const carriesMs: number[] = []
  let broken = 0
  for (let i = 0; i < rounds; i += 1) {
    await sleep(SETTLED_MS)
    const before = await brokenNow(callers)
    const both = sites.gateways(SITES[i % SITES.length] ?? 'milano')
    await Promise.all(both.map((one) => one.cutOff()))
    await sleep(GONE_MS[Math.floor(i / 2) % 2] ?? NaN)
    const first = both[Math.floor(i / 4) % both.length]
    if (first === undefined) throw new Error('no gateway to bring back')
    await first.bringBack()
    carriesMs.push(await untilAnswered(callers))
    process.stderr.write(`${name}: round ${i + 1} of ${rounds}, ${first.port} carries after ${carriesMs.at(-1)} ms\n`)
    for (const one of both) if (one !== first) await one.bringBack()
    broken += (await brokenNow(callers)) - before
  }
  return {
    [`${name}CarriesP50Ms`]: round(percentile(carriesMs, 0.5)),
    [`${name}CarriesP99Ms`]: round(percentile(carriesMs, 0.99)),
    [`${name}TcpBroken`]: broken,
  }
}

const ANSWERED_LOOK_MS = 100

async function untilAnswered(callers: readonly Caller[]): Promise<number> {
  const startMs = performance.now()
  await Promise.all(callers.map((caller) => caller.seen()))
  for (;;) {
    await sleep(ANSWERED_LOOK_MS)
    const seen = await Promise.all(callers.map((caller) => caller.seen()))
    if (seen.every(({ sent, answered }) => answered > 0.9 * sent)) return Math.round(performance.now() - startMs)
  }
}

async function brokenNow(callers: readonly Caller[]): Promise<number> {
  return (await Promise.all(callers.map((caller) => caller.seen()))).reduce((sum, { broken }) => sum + broken, 0)
}

/** A fault for which no lane should go down. */
function steady(cut: (sites: TwoSites) => Cut): Measurement {
  return async (name, { sites, callers, steadyMs }) => {
    const watch = new LinkWatch(sites)
    const before = await brokenNow(callers)
    const one = cut(sites)
    await one.cutOff()
    await sleep(steadyMs)
    const flapsDown = watch.downs
    const seen = await Promise.all(callers.map((caller) => caller.seen()))
    await one.bringBack()
    const [sent, answered] = [seen.map((s) => s.sent), seen.map((s) => s.answered)].map((all) =>
      all.reduce((sum, count) => sum + count, 0),
    )
    process.stderr.write(`${name}: ${one.name} for ${round(steadyMs / 1000)} s, ${flapsDown} down\n`)
    return {
      [`${name}FlapsDown`]: flapsDown,
      [`${name}Answered`]: round((answered ?? NaN) / (sent ?? NaN), 3),
      [`${name}TcpBroken`]: seen.reduce((sum, { broken }) => sum + broken, 0) - before,
      [`${name}Seconds`]: round(steadyMs / 1000),
    }
  }
}

function workerOf(nodes: readonly SiteNode[], of: SiteName): SiteNode {
  const found = nodes.find(({ site, name }) => site === of && name === 'worker')
  if (found === undefined) throw new Error(`no worker in ${of}`)
  return found
}
