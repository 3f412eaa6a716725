/** Calls of one place that go on in the background while something else happens. */
import { type BackgroundCalls, type CallReport, callInBackground } from './background-calls.ts'
import type { Site } from './callers.ts'

export interface SteadyCalls {
  /** Hangs up. Throws when the calls had ended before. */
  stop(): Promise<CallReport>
}

/**
 * Calls TCP port 42 of `host` from the pod `request`, each over a connection of its own that has one second. Resolves
 * once `who` has answered.
 */
export async function callSteadily(site: Site, namespace: string, host: string, who: string): Promise<SteadyCalls> {
  const argv = ['nc', '-4', '-w', '1', host, '42']
  const target = { name: who, argv, seconds: 1, answer: new RegExp(`^${who}$`) }
  const calls: BackgroundCalls = await callInBackground(site, namespace, [target])
  return {
    stop: async () => {
      const report = (await calls.stop()).get(who)
      if (report === undefined) throw new Error(`nothing is known of the calls to ${host}`)
      return report
    },
  }
}
