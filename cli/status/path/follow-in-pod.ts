/** Follows and sends the packets of a probe in pods of a cluster, by the hidden command of this program there. */
import { MOST_TRACE_SECONDS, PROBE_SECONDS, type ProbeReport, type ProbeTask } from '../../../explain/path/path.ts'
import { SYSTEM_NAMESPACE } from '../../../model/model.ts'
import { type Clock, orAborted, withDeadline } from '../../../reconcile/reconcile.ts'
import { UserError } from '../../../runtime/runtime.ts'
import type { ManifestObject } from '../../../install/values/values.ts'
import type { ClusterAdmin } from '../../context/context.ts'
import { checkRights } from '../../installation/installation.ts'
import { KubeMember, type ProbeAdmin, type WantedObjects, readMember } from '../verify/kube-member.ts'
import { CONTAINER, POD_NAMES, PROBE_LABEL, PROBE_LABEL_VALUE, podsOver } from '../verify/plan-objects.ts'
import { probePodRights } from '../verify/plan-rights.ts'
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

/** A report with as many lines as it may have is smaller. */
const MOST_OUTPUT = 4 << 20
/** The ready line is at the beginning. */
const MOST_HEAD = 1024

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
  const tooLong = new AbortController()
  const parts: Buffer[] = []
  let [head, bytes, isEnded] = ['', 0, false]
  const command = ['sealane', PROBE_COMMAND, 'packets', JSON.stringify(task)]
  const onStdout = (part: Buffer): void => {
    if (tooLong.signal.aborted) return
    bytes += part.length
    if (bytes > MOST_OUTPUT) {
      parts.length = 0
      tooLong.abort(new UserError(`the command in pod ${place.pod} printed more than ${MOST_OUTPUT >> 20} MiB`))
      return
    }
    parts.push(part)
    if (head.length >= MOST_HEAD) return
    // It may come in pieces.
    head = `${head}${part.toString('latin1', 0, MOST_HEAD)}`
    if (head.includes(`${READY_LINE}\n`)) begun.resolve(true)
  }
  const running = admin.exec(
    { ...place, command, input: untilOver(over.promise), onStdout, timeoutMs: COMMAND_MS },
    AbortSignal.any([signal, tooLong.signal]),
  )
  const report = orAborted(running, tooLong.signal).then(({ status, stderr }) => {
    const text = Buffer.concat(parts).toString('utf8')
    if (status !== 0) {
      const why = stderr.trim().split('\n')[0] ?? ''
      throw new UserError(`the command in pod ${place.pod} ended with ${status}: ${why.slice(0, 200)}`)
    }
    const said = parseProbeReport(text.slice(text.indexOf('\n') + 1))
    // What it has not seen would else count as what did not come.
    if (task.send === undefined && !isEnded) {
      throw new UserError(`the trace in pod ${place.pod} ended before all packets were sent`)
    }
    return said
  })
  report.then(() => begun.resolve(true), begun.reject).finally(() => over.resolve(true))
  const ready = withDeadline(clock, START_MS, (late) => orAborted(begun.promise, late))
  for (const one of [begun.promise, ready, report]) one.catch(() => undefined)
  const end = (): void => {
    isEnded = true
    over.resolve(true)
  }
  return { ready, report, end }
}

async function* untilOver(over: Promise<unknown>): AsyncGenerator<Buffer> {
  await over
  yield Buffer.from(`${END_LINE}\n`)
}

const POD_MS = 60_000
/** The kubelet ends the pod of a command that was killed. */
const LASTS_SECONDS = 180
const CLEAN_MS = 30_000
const LOOK_EVERY_MS = 300
/** For 15 s. The grace period of a probe pod is 1 s. */
const LOOKS_UNTIL_GONE = 50

export interface ProbePodInit {
  /** The namespace and the node of the caller. */
  readonly namespace: string
  readonly node: string
  readonly run: string
  readonly clock: Clock
  readonly say: (text: string) => void
}

/**
 * A pod of verify beside the caller: it has what rules see of the caller, except its labels and its address. Pods of runs
 * that were killed are removed from the namespace first. At the end it waits until the pod is gone, so that the next run
 * finds the namespace free.
 */
export async function withProbePod<T>(
  admin: ProbeAdmin & Pick<ClusterAdmin, 'replace'>,
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
  const wanted: WantedObjects = { roles: ['client'], exports: false, nodes: { client: node } }
  await checkRights(admin, probePodRights(member.objectsFor(facts.id, wanted), namespace, facts.execVerbs), signal)
  try {
    await removeRemains(admin, { namespace, clock }, signal)
    say(`makes a probe pod in namespace ${namespace} on node ${node}; it ends by itself at ${until} at the latest\n`)
    await member.prepare(facts.id, wanted, signal)
    const place = { namespace, pod: POD_NAMES.client, container: CONTAINER }
    return await work({ place, addresses: member.localAddresses('client') })
  } finally {
    const limited = AbortSignal.timeout(CLEAN_MS)
    await member
      .close(limited)
      // After an interrupt, no run follows.
      .then(() => untilGone(admin, { namespace, clock, name: POD_NAMES.client }, AbortSignal.any([signal, limited])))
      .catch((error: unknown) => {
        if (error !== signal.reason) say(`not removed: ${String(error)}\n${member.leftText}`)
      })
  }
}

interface InNamespace {
  readonly namespace: string
  readonly clock: Clock
}

/** Removes pods of runs that are over, and waits for those that end. Throws KubeError. */
async function removeRemains(
  admin: ProbeAdmin & Pick<ClusterAdmin, 'replace'>,
  { namespace, clock }: InNamespace,
  signal: AbortSignal,
): Promise<void> {
  const pods = await admin.list(
    'v1',
    'Pod',
    { namespace, labelSelector: `${PROBE_LABEL}=${PROBE_LABEL_VALUE}` },
    signal,
  )
  const ending = pods.filter((pod) => isEnding(pod))
  const over = podsOver(pods, clock.now()).filter((pod) => !isEnding(pod))
  for (const pod of over) {
    const ref = { apiVersion: 'v1', kind: 'Pod', namespace, name: pod.metadata.name }
    await admin.replace(ref, pod, undefined, signal)
  }
  for (const { metadata } of [...over, ...ending]) {
    await untilGone(admin, { namespace, clock, name: metadata.name, uid: uidOf(metadata) }, signal)
  }
}

function isEnding({ metadata }: ManifestObject): boolean {
  return (metadata as { readonly deletionTimestamp?: string }).deletionTimestamp !== undefined
}

function uidOf(metadata: ManifestObject['metadata']): string | undefined {
  return (metadata as { readonly uid?: string }).uid
}

/** Waits until the pod, or that with the uid, does not exist, as often as LOOKS_UNTIL_GONE says. */
async function untilGone(
  admin: Pick<ClusterAdmin, 'get'>,
  { namespace, clock, name, uid }: InNamespace & { readonly name: string; readonly uid?: string | undefined },
  signal: AbortSignal,
): Promise<void> {
  for (let looks = 0; looks < LOOKS_UNTIL_GONE; looks += 1) {
    const pod = await admin.get({ apiVersion: 'v1', kind: 'Pod', namespace, name }, signal)
    const isAnother = pod !== undefined && uid !== undefined && uidOf(pod.metadata) !== uid
    if (pod === undefined || isAnother) return
    await clock.sleep(LOOK_EVERY_MS, signal)
  }
}
