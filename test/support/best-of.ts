/** The shortest of several runs in milliseconds, which leaves out other work on the machine and pauses of it. */
export function bestOf(runs: number, run: () => void): number {
  const times = Array.from({ length: runs }, () => {
    const started = performance.now()
    run()
    return performance.now() - started
  })
  return Math.min(...times)
}
