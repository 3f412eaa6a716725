/** How many runs a loop of a routeagent has completed, by its metrics. */
import type { Metrics } from '../../../runtime/metrics/instruments.ts'

/** Successful runs of the loop (`routes`, `balance`, `balance-ipv6`); 0 before the first. */
export async function loopRuns(metrics: Metrics, loop: string): Promise<number> {
  const lines = (await metrics.text()).split('\n').filter((line) => line.startsWith('sealane_routeagent_runs_total{'))
  const ok = lines.find((line) => line.includes(`loop="${loop}"`) && line.includes('result="ok"'))
  return Number(ok?.split(' ').at(-1) ?? 0)
}
