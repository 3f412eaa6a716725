/** Calls that go on in the background while something else happens, and the longest time in which nobody answered. */
import { eventually } from '../../support/eventually.ts'
import { type Site, inRequestPod } from './callers.ts'
import { execInPod } from './node.ts'

export interface SteadyCalls {
  /** Hangs up. Throws when the calls had ended before. */
  stop(): Promise<CallReport>
}

export interface CallReport {
  readonly calls: number
  readonly unanswered: number
  /** Longest time between two answers, from one call's end to the other's. */
  readonly longestGapMs: number
}

const LIMIT_SECONDS = 300
const LINES = '/tmp/steady-calls'
const HANG_UP = '/tmp/hang-up'

/**
 * Calls TCP port 42 of `host` from the pod `request`, each over a connection of its own that has one second, 200 ms
 * after the other. Resolves once `who` has answered.
 */
export async function callSteadily(site: Site, namespace: string, host: string, who: string): Promise<SteadyCalls> {
  const once = `answer=$(timeout 1 nc -4 -w 1 ${host} 42 < /dev/null 2> /dev/null)`
  const loop = `${once}; echo "$(date +%s%3N) \${answer:-nobody}" >> ${LINES}; sleep 0.2`
  const script = `rm -f ${HANG_UP}; : > ${LINES}; until [ -e ${HANG_UP} ]; do ${loop}; done; cat ${LINES}`
  const argv = ['sh', '-c', script]
  const ended = execInPod(site.kubeconfig, { namespace, pod: 'request', argv, timeoutSeconds: LIMIT_SECONDS })
  await eventually(async () => (await inRequestPod(site, namespace, `cat ${LINES}`)).includes(` ${who}\n`), {
    deadlineMs: 30_000,
    intervalMs: 200,
    say: `${who} answers the first call`,
  })
  return {
    stop: async () => {
      await inRequestPod(site, namespace, `touch ${HANG_UP}`)
      const { code, stdout, stderr } = await ended
      if (code !== 0) throw new Error(`the calls ended with code ${code}: ${stderr}`)
      return report(stdout, who)
    },
  }
}

function report(output: string, who: string): CallReport {
  const lines = output
    .trimEnd()
    .split('\n')
    .map((line) => line.split(' '))
  const times = lines.map(([ms]) => Number(ms))
  const answers = times.filter((_, i) => lines[i]?.[1] === who)
  // The last call may have gone unanswered for as long as any.
  const marks = [...answers, times.at(-1) ?? NaN]
  const gaps = marks.slice(1).map((ms, i) => ms - (marks[i] ?? NaN))
  return { calls: lines.length, unanswered: lines.length - answers.length, longestGapMs: Math.max(...gaps) }
}
