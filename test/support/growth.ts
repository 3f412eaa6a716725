/**
 * How the cost of a task grows with its size. The absolute time depends on the machine and is measured in bench/; these
 * tests check that a larger task does not cost disproportionately more.
 */

/** How many times as large the larger task is. */
export const LARGER = 4
/** A quadratic task would take 16 times as much; a linear one takes 4 times as much, and sorting somewhat more. */
export const MOST_GROWTH = 9
/** Other processes share caches and memory, so a task that seems too slow is measured again. */
const TRIES = 3
const MOST_TRIES = 9

/** Does the task at a size, and resolves with its processor time in milliseconds. */
export type Task = (size: number) => number | Promise<number>

/** The processor time of work in this process in milliseconds; pauses of the machine do not count. */
export async function processorMs(work: () => unknown): Promise<number> {
  const started = process.cpuUsage()
  await work()
  const { user, system } = process.cpuUsage(started)
  return (user + system) / 1000
}

/**
 * How many times as much a task of `size` takes as one of a quarter of it, by the least of three tries each, or of up to
 * nine while that is MOST_GROWTH or more.
 */
export async function growth(size: number, task: Task): Promise<number> {
  const [small, large] = [[] as number[], [] as number[]]
  for (let tries = 1; ; tries += 1) {
    small.push(await task(size / LARGER))
    large.push(await task(size))
    const times = Math.min(...large) / Math.max(Math.min(...small), 1)
    if (tries >= (times < MOST_GROWTH ? TRIES : MOST_TRIES)) return times
  }
}
