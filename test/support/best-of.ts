/**
 * The shortest of several runs, in milliseconds: other work on the machine, or a pause of all of it, is not what is
 * measured.
 */
export function bestOf(runs: number, run: () => void): number {
  const times = Array.from({ length: runs }, () => {
    const started = performance.now()
    run()
    return performance.now() - started
  })
  return Math.min(...times)
}
