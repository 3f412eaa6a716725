/** Measures the cost of a path that is cut and restored under load, repeatedly. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Caller } from '../../test/failover/caller.ts'
import type { Cut } from '../../test/failover/faults.ts'
import { round } from '../figures.ts'

/** The wait after a fault, which is longer than any detection takes. */
const FAULT_MS = 4000
/** The wait after the return: groups give back its share after ten seconds. */
const RETURN_MS = 15_000
/** The number of rounds between two measurements without a fault, which last as long as one at a return. */
const CALM_EVERY = 4
/** More octets than its own probes take in all of RETURN_MS. */
const CARRIES_BYTES = 30_000
const LOOK_MS = 250

/** All times are in milliseconds; the others are counts. */
export interface Losses {
  readonly calmMs: number[]
  readonly lossMs: number[]
  readonly returnMs: number[]
  /** Datagrams without an answer since the return, because a gap may also be a late answer. */
  readonly returnLost: number[]
  readonly tcpGapMs: number[]
  /**
   * The time from the return until it carries again. Infinity: it did not within RETURN_MS. The list is empty if that
   * cannot be seen.
   */
  readonly carriesMs: number[]
  broken: number
}

export type Measured = Pick<Cut, 'cutOff' | 'bringBack'> & Partial<Pick<Cut, 'carriedBytes'>>

/** Cuts the paths in turn. */
export async function measure(
  say: string,
  callers: readonly Caller[],
  cuts: readonly Measured[],
  rounds: number,
): Promise<Losses> {
  await Promise.all(callers.map(({ started }) => started))
  const losses: Losses = {
    calmMs: [],
    lossMs: [],
    returnMs: [],
    returnLost: [],
    tcpGapMs: [],
    carriesMs: [],
    broken: 0,
  }
  const seen = () => Promise.all(callers.map((caller) => caller.seen()))
  const longest = async (): Promise<number> => Math.max(...(await seen()).map((one) => one.longestGapMs))
  await sleep(RETURN_MS)
  const brokenBefore = (await seen()).reduce((sum, one) => sum + one.broken, 0)
  for (let i = 0; i < rounds; i += 1) {
    if (i % CALM_EVERY === 0) {
      await longest()
      await sleep(RETURN_MS)
      losses.calmMs.push(await longest())
    }
    const cut = cuts[i % cuts.length]
    if (cut === undefined) throw new Error('nothing to cut off')
    await longest()
    // The cut is at a random moment between two probes.
    await sleep(Math.random() * 200)
    await cut.cutOff()
    await sleep(FAULT_MS)
    const after = await seen()
    losses.lossMs.push(Math.max(...after.map((one) => one.longestGapMs)))
    losses.tcpGapMs.push(Math.max(...after.map((one) => one.longestTcpGapMs)))
    await cut.bringBack()
    const over = sleep(RETURN_MS)
    if (cut.carriedBytes !== undefined) losses.carriesMs.push(await untilCarries(cut.carriedBytes))
    await over
    const back = await seen()
    losses.returnMs.push(Math.max(...back.map((one) => one.longestGapMs)))
    losses.returnLost.push(back.reduce((sum, { sent, answered }) => sum + sent - answered, 0))
    const figures = [losses.lossMs, losses.returnMs, losses.carriesMs].map((some) => round(some.at(-1) ?? NaN))
    process.stderr.write(
      `${say}: round ${i + 1} of ${rounds}: lost ${figures[0]} ms, at the return ${figures[1]} ms, carries after ${figures[2]} ms\n`,
    )
  }
  losses.broken = (await seen()).reduce((sum, one) => sum + one.broken, 0) - brokenBefore
  return losses
}

async function untilCarries(carriedBytes: () => Promise<number>): Promise<number> {
  const startMs = performance.now()
  const before = await carriedBytes()
  while (performance.now() - startMs < RETURN_MS) {
    await sleep(LOOK_MS)
    if ((await carriedBytes()) - before > CARRIES_BYTES) return performance.now() - startMs
  }
  return Infinity
}
