/**
 * How the cost of a task grows with its size. How long it takes is the machine's business, and measured in bench/; that
 * ten times as much does not take a hundred times as long is not.
 */

/** How many times as large the larger one is. */
export const LARGER = 4
/** The square of that would be 16; a task whose cost is in proportion takes 4 times as much, sorting somewhat more. */
export const MOST_GROWTH = 9
const TRIES = 3

/** Does the task at a size, and resolves with the processor time that it took, in milliseconds. */
export type Task = (size: number) => number | Promise<number>

/** The processor time of work in this process, in milliseconds: a pause of the machine is not counted. */
export async function processorMs(work: () => unknown): Promise<number> {
  const started = process.cpuUsage()
  await work()
  const { user, system } = process.cpuUsage(started)
  return (user + system) / 1000
}

/**
 * How many times as much a task of `size` takes as one of a quarter of it, the least of three tries each; compare with
 * MOST_GROWTH.
 */
export async function growth(size: number, task: Task): Promise<number> {
  const [small, large] = [[] as number[], [] as number[]]
  for (let i = 0; i < TRIES; i += 1) {
    small.push(await task(size / LARGER))
    large.push(await task(size))
  }
  return Math.min(...large) / Math.max(Math.min(...small), 1)
}
