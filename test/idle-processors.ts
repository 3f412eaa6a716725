/** The idle share of this machine's processors, as the kernel counts it (proc(5), /proc/stat). */
import { readFileSync } from 'node:fs'
import { availableParallelism, cpus } from 'node:os'

export interface ProcessorTimes {
  /** Ticks of all processors since the machine started. */
  readonly idle: number
  readonly busy: number
}

/**
 * Processes of low priority delay no others, so their time counts as idle. Time stolen by another guest counts as busy.
 */
export function parseProcessorTimes(stat: string): ProcessorTimes {
  const words = /^cpu +(.*)$/m.exec(stat)?.[1]?.split(' ').map(Number) ?? []
  const [user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, softIrq = 0, stolen = 0] = words
  return { idle: nice + idle + wait, busy: user + system + irq + softIrq + stolen }
}

/** The idle share between two readings, from 0 to 1; 0 if no time passed. */
export function idleShare(before: ProcessorTimes, after: ProcessorTimes): number {
  const idle = Math.max(0, after.idle - before.idle)
  const busy = Math.max(0, after.busy - before.busy)
  return idle + busy === 0 ? 0 : idle / (idle + busy)
}

/**
 * Returns a function that gives the idle share since its last call. It gives 0 if this process may not use all the
 * processors that the kernel counts.
 */
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
