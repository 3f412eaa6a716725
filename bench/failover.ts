/**
 * `npm run bench:failover -- [--json] [--rounds N]`: what a gateway's node costs that is gone at once. Two sites of the
 * same pod addresses with two gateways each, on one machine; both pods send 1,000 datagrams a second over 20 flows and
 * a byte each 20 ms over 50 TCP connections. In each round one gateway node loses all its packets and its process stops,
 * in turn on both sides, and comes back. Beside it, in the same run: two plain WireGuard devices with ECMP routes over
 * them and a script that pings each far end once a second, which is what one would build by hand.
 *
 * A loss is the longest time in which one flow got no answer, beyond the time between two of its datagrams. Calm is the
 * same without any fault: what this machine adds.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { requirePackages } from '../scripts/install-system-packages.ts'
import { Caller, type Load, answerIn } from '../test/failover/caller.ts'
import { HAND_ADDRESSES, withHandMadeLanes } from '../test/failover/hand-made.ts'
import { POD_ADDRESSES, type SiteNode, type TwoSites, withTwoSites } from '../test/failover/sites.ts'
import { netnsMissing } from '../test/support/netns.ts'
import { percentile, progress, round } from './figures.ts'

const LOAD: Load = { flows: 20, pps: 1000, connections: 50 }
/** After a fault: longer than any way to notice it. */
const FAULT_MS = 4000
/** After the return: groups give back its share after ten seconds. */
const RETURN_MS = 15_000
const CALM_MS = 5000
/** Until nothing flows over a gateway that is drained, and until it has its share again. */
const DRAIN_MS = 12_000
/** A new key is announced, and taken when all far ends know it. */
const ROTATE_MS = 10_000
/** Each gateway once. */
const DRAINS = 4

interface Losses {
  readonly calmMs: number[]
  readonly lossMs: number[]
  readonly returnMs: number[]
  readonly tcpGapMs: number[]
  broken: number
}

/** What can be cut off and brought back, in turn. */
type Cut = Pick<SiteNode, 'cutOff' | 'bringBack'>

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { json: { type: 'boolean' }, rounds: { type: 'string', default: '20' } } })
  const rounds = Number(values.rounds)
  if (!(Number.isInteger(rounds) && rounds > 0)) {
    throw new Error(`--rounds ${JSON.stringify(values.rounds)}: expected a whole number above 0`)
  }
  const missing = netnsMissing()
  if (missing !== undefined) throw new Error(missing)
  requirePackages('bench')
  const folder = mkdtempSync(join(tmpdir(), 'sealane-failover-'))
  try {
    const sealane = await withTwoSites(folder, async ({ pods, gateways, drain, rotate }) => {
      for (const pod of Object.values(pods)) await answerIn(pod)
      const callers = [
        new Caller(pods.milano, POD_ADDRESSES.paris, LOAD),
        new Caller(pods.paris, POD_ADDRESSES.milano, LOAD),
      ]
      const [left, right] = [gateways('milano'), gateways('paris')]
      const inTurn = [...left.slice(0, 1), ...right.slice(1), ...left.slice(1), ...right.slice(0, 1)]
      const losses = await measure('sealane', callers, inTurn, rounds)
      const drainLost = await drained(callers, inTurn.slice(0, DRAINS), drain)
      const rotateLost = await rotated(callers, inTurn.slice(0, DRAINS), rotate)
      await Promise.all(callers.map((caller) => caller.stop()))
      return { ...losses, drainLost, rotateLost }
    })
    const alone = await withTwoSites(join(folder, 'alone'), rotatedAlone, ['gw0', 'worker'])
    const byHand = await withHandMadeLanes(async ({ pods, lanes }) => {
      for (const pod of pods) await answerIn(pod)
      const [left, right] = pods
      const [toLeft, toRight] = HAND_ADDRESSES
      const callers = [new Caller(left, toRight, LOAD), new Caller(right, toLeft, LOAD)]
      const losses = await measure('by hand', callers, lanes, Math.min(rounds, 8))
      await Promise.all(callers.map((caller) => caller.stop()))
      return losses
    })
    report({ ...sealane, rotateAloneLost: alone }, byHand, rounds)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

async function measure(say: string, callers: readonly Caller[], cuts: readonly Cut[], rounds: number): Promise<Losses> {
  await Promise.all(callers.map(({ started }) => started))
  const losses: Losses = { calmMs: [], lossMs: [], returnMs: [], tcpGapMs: [], broken: 0 }
  const seen = () => Promise.all(callers.map((caller) => caller.seen()))
  const longest = async (): Promise<number> => Math.max(...(await seen()).map((one) => one.longestGapMs))
  await sleep(RETURN_MS)
  await seen()
  await sleep(CALM_MS)
  losses.calmMs.push(await longest())
  for (let i = 0; i < rounds; i += 1) {
    const cut = cuts[i % cuts.length]
    if (cut === undefined) throw new Error('nothing to cut off')
    await longest()
    // Any moment between two probes.
    await sleep(Math.random() * 200)
    await cut.cutOff()
    await sleep(FAULT_MS)
    const after = await seen()
    losses.lossMs.push(Math.max(...after.map((one) => one.longestGapMs)))
    losses.tcpGapMs.push(Math.max(...after.map((one) => one.longestTcpGapMs)))
    await cut.bringBack()
    await sleep(RETURN_MS)
    losses.returnMs.push(await longest())
    process.stderr.write(`${say}: round ${i + 1} of ${rounds}, ${round(losses.lossMs.at(-1) ?? NaN)} ms
`)
  }
  losses.broken = (await seen()).reduce((sum, one) => sum + one.broken, 0)
  return losses
}

/** Datagrams without an answer, of each drain and return. */
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

/** Datagrams without an answer, of each new key. */
async function rotated(
  callers: readonly Caller[],
  gateways: readonly SiteNode[],
  rotate: (gateway: SiteNode, request: string) => void,
): Promise<number[]> {
  const seen = () => Promise.all(callers.map((caller) => caller.seen()))
  const lost: number[] = []
  await seen()
  for (const [i, gateway] of gateways.entries()) {
    rotate(gateway, `request ${i}`)
    await sleep(ROTATE_MS)
    const all = await seen()
    lost.push(all.reduce((sum, { sent, answered }) => sum + sent - answered, 0))
    const broken = all.reduce((sum, one) => sum + one.broken, 0)
    process.stderr.write(`${gateway.port} has a new key: ${lost.at(-1)} lost, ${broken} broken since the start\n`)
  }
  return lost
}

/** One gateway on each side: nothing else can carry. */
async function rotatedAlone({ pods, gateways, rotate }: TwoSites): Promise<number[]> {
  for (const pod of Object.values(pods)) await answerIn(pod)
  const callers = [
    new Caller(pods.milano, POD_ADDRESSES.paris, LOAD),
    new Caller(pods.paris, POD_ADDRESSES.milano, LOAD),
  ]
  await Promise.all(callers.map(({ started }) => started))
  await sleep(CALM_MS)
  const both = [...gateways('milano'), ...gateways('paris')]
  const lost = await rotated(callers, [...both, ...both], rotate)
  await Promise.all(callers.map((caller) => caller.stop()))
  return lost
}

interface Rotations {
  readonly drainLost: readonly number[]
  readonly rotateLost: readonly number[]
  readonly rotateAloneLost: readonly number[]
}

function report(sealane: Losses & Rotations, byHand: Losses, rounds: number): void {
  const figures = {
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
    handLossP50Ms: round(percentile(byHand.lossMs, 0.5)),
    handLossP99Ms: round(percentile(byHand.lossMs, 0.99)),
    handReturnLossP99Ms: round(percentile(byHand.returnMs, 0.99)),
    handTcpBroken: byHand.broken,
  }
  progress(figures, JSON.stringify(figures, undefined, 2))
}

await main()
