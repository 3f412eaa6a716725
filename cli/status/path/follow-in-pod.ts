/** Follows and sends the packets of a probe in pods of a cluster, by the hidden command of this program there. */
import { MOST_TRACE_SECONDS, PROBE_SECONDS, type ProbeReport, type ProbeTask } from '../../../explain/path/path.ts'
import { SYSTEM_NAMESPACE } from '../../../model/model.ts'
import { type Clock, orAborted, withDeadline } from '../../../reconcile/reconcile.ts'
import { UserError } from '../../../runtime/runtime.ts'
import type { ClusterAdmin } from '../../context/context.ts'
import { KubeMember, readMember } from '../verify/kube-member.ts'
import { CONTAINER, POD_NAMES } from '../verify/plan-objects.ts'
import { PROBE_COMMAND } from '../verify/probe-wire.ts'
import { parseProbeReport } from './probe-machine.ts'

export interface PodPlace {
  readonly namespace: string
  readonly pod: string
  readonly container: string
}

export function agentPlace(pod: string): PodPlace {
  return { namespace: SYSTEM_NAMESPACE, pod, container: 'routeagent' }
}

/** The line that the command prints when it follows packets, and the one that ends it. */
export const READY_LINE = 'ready'
export const END_LINE = 'end'

/** Until a command has begun, in a pod that may be busy. */
const START_MS = 8000
const COMMAND_MS = (MOST_TRACE_SECONDS + PROBE_SECONDS) * 1000 + START_MS

export interface Follower {
  /** When packets are followed. Rejects if they are not. */
  readonly ready: Promise<unknown>
  /** Ends following. */
  readonly end: () => void
  readonly report: Promise<ProbeReport>
}

/** Starts the command. All of its promises reject with UserError or KubeError. */
export function followInPod(
  admin: Pick<ClusterAdmin, 'exec'>,
  place: PodPlace,
  task: ProbeTask,
  { clock, signal }: { readonly clock: Clock; readonly signal: AbortSignal },
): Follower {
  const begun = Promise.withResolvers<true>()
  const over = Promise.withResolvers<true>()
  const parts: Buffer[] = []
  const command = ['sealane', PROBE_COMMAND, 'packets', JSON.stringify(task)]
  const onStdout = (part: Buffer): void => {
    parts.push(part)
    if (part.includes(READY_LINE)) begun.resolve(true)
  }
  const running = admin.exec(
    { ...place, command, input: untilOver(over.promise), onStdout, timeoutMs: COMMAND_MS },
    signal,
  )
  const report = running.then(({ status, stderr }) => {
    const text = Buffer.concat(parts).toString('utf8')
    if (status !== 0) {
      const why = stderr.trim().split('\n')[0] ?? ''
      throw new UserError(`the command in pod ${place.pod} ended with ${status}: ${why.slice(0, 200)}`)
    }
    return parseProbeReport(text.slice(text.indexOf('\n') + 1))
  })
  report.then(() => begun.resolve(true), begun.reject).finally(() => over.resolve(true))
  const ready = withDeadline(clock, START_MS, (late) => orAborted(begun.promise, late))
  for (const one of [begun.promise, ready, report]) one.catch(() => undefined)
  return { ready, report, end: () => over.resolve(true) }
}

async function* untilOver(over: Promise<unknown>): AsyncGenerator<Buffer> {
  await over
  yield Buffer.from(`${END_LINE}\n`)
}

const POD_MS = 60_000
/** The kubelet ends the pod of a command that was killed. */
const LASTS_SECONDS = 180
const CLEAN_MS = 30_000

export interface ProbePodInit {
  /** The namespace and the node of the caller. */
  readonly namespace: string
  readonly node: string
  readonly run: string
  readonly clock: Clock
  readonly say: (text: string) => void
}

/** A pod of verify beside the caller: it has what rules see of the caller, except its labels and its address. */
export async function withProbePod<T>(
  admin: ClusterAdmin,
  { namespace, node, run, clock, say }: ProbePodInit,
  signal: AbortSignal,
  work: (pod: { readonly place: PodPlace; readonly addresses: readonly string[] }) => Promise<T>,
): Promise<T> {
  const facts = await readMember(admin, undefined, signal)
  const until = new Date(clock.now() + 1000 * LASTS_SECONDS).toISOString()
  const member = new KubeMember({
    ...{ admin, facts, letter: 'a', clock, run, namespace, makesNamespace: false },
    ...{ timeoutMs: POD_MS, until, lastsSeconds: LASTS_SECONDS, say },
  })
  try {
    say(`makes a probe pod in namespace ${namespace} on node ${node}; it ends by itself at ${until} at the latest\n`)
    await member.prepare(facts.id, { roles: ['client'], exports: false, nodes: { client: node } }, signal)
    const place = { namespace, pod: POD_NAMES.client, container: CONTAINER }
    return await work({ place, addresses: member.localAddresses('client') })
  } finally {
    await member.close(AbortSignal.timeout(CLEAN_MS)).catch((error: unknown) => {
      say(`not removed: ${String(error)}\n${member.leftText}`)
    })
  }
}
