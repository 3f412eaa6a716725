/** What it costs that something is taken away and given back under load, time and again. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Caller } from '../../test/failover/caller.ts'
import type { Cut } from '../../test/failover/faults.ts'
import { round } from '../figures.ts'

/** After a fault: longer than any way to notice it. */
const FAULT_MS = 4000
/** After the return: groups give back its share after ten seconds. */
const RETURN_MS = 15_000
/** So many rounds from one look at nothing happening to the next, which is as long as that at a return. */
const CALM_EVERY = 4
/** More than its own probes in all of RETURN_MS. */
const CARRIES_BYTES = 30_000
const LOOK_MS = 250

/** Milliseconds, but for counts. */
export interface Losses {
  readonly calmMs: number[]
  readonly lossMs: number[]
  readonly returnMs: number[]
  /** Datagrams without an answer from the return on: a gap may also be an answer that came late. */
  readonly returnLost: number[]
  readonly tcpGapMs: number[]
  /** From the return until it carries again; Infinity: it did not in RETURN_MS. None where that cannot be seen. */
  readonly carriesMs: number[]
  broken: number
}

export type Measured = Pick<Cut, 'cutOff' | 'bringBack'> & Partial<Pick<Cut, 'carriedBytes'>>

/** Takes them away in turn. */
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
    // Any moment between two probes.
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
