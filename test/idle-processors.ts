/** How much of this machine's processors nobody uses, as the kernel counts it (proc(5), /proc/stat). */
import { readFileSync } from 'node:fs'
import { availableParallelism, cpus } from 'node:os'

export interface ProcessorTimes {
  /** Ticks since the machine started, of all processors. */
  readonly idle: number
  readonly busy: number
}

/** What runs with a low priority is in nobody's way, so it counts as idle. What another guest takes counts as busy. */
export function parseProcessorTimes(stat: string): ProcessorTimes {
  const words = /^cpu +(.*)$/m.exec(stat)?.[1]?.split(' ').map(Number) ?? []
  const [user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, softIrq = 0, stolen = 0] = words
  return { idle: nice + idle + wait, busy: user + system + irq + softIrq + stolen }
}

/** From 0 to 1, of the time between two looks; 0 where no time passed. */
export function idleShare(before: ProcessorTimes, after: ProcessorTimes): number {
  const idle = Math.max(0, after.idle - before.idle)
  const busy = Math.max(0, after.busy - before.busy)
  return idle + busy === 0 ? 0 : idle / (idle + busy)
}

/** The share since it was last called, or made; 0 where this process may not use all that the kernel counts. */
export function idleSince(): () => number {
  const look = (): ProcessorTimes => parseProcessorTimes(readFileSync('/proc/stat', 'utf8'))
  const isAllOurs = availableParallelism() === cpus().length
  let before = look()
  return () => {
    const now = look()
    const share = idleShare(before, now)
    before = now
    return isAllOurs ? share : 0
  }
}
