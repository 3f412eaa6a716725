/**
 * Examines the kernel of each node by a command in the pod of its route agent. If this user may not run commands in
 * pods, that becomes a fact.
 */
import type { Area, Fact, UnansweredFact } from '../../../explain/facts/facts.ts'
import { type ManifestObject, objectName, selectorLabels } from '../../../install/values/values.ts'
import { ClusterApiError } from '../../../kubeapi/kubeapi.ts'
import { SYSTEM_NAMESPACE } from '../../../model/model.ts'
import { messageOf } from '../../../runtime/runtime.ts'
import type { ClusterAdmin } from '../../context/context.ts'
import { EXEC_RIGHT, askFor } from '../ask.ts'
import { MACHINE_COMMAND } from './machine-command.ts'
import { readMachineFacts } from './machine-facts.ts'
import { type Progress, isWanted } from './progress.ts'

export interface PodProbesInit {
  /** Undefined for all areas. */
  readonly area: Area | undefined
  readonly progress: Progress
  readonly signal: AbortSignal
}

const PART = 'routeagent'
const CONTAINER = objectName(PART).replace('sealane-', '')
/** The node's own directory, with its keys. */
const FOLDERS = ['/var/lib/sealane']
/** The maximum number of nodes, to limit the duration. Nodes with gateways come first. */
const MOST_NODES = 40
const AT_ONCE = 8
const MS = 8000
const LIST_MS = 4000

type Admin = Pick<ClusterAdmin, 'title' | 'list' | 'exec'>

export interface NodePod {
  readonly node: string
  readonly pod: string
}

/** Rejects only with the signal's reason. */
export async function podProbes(admin: Admin, init: PodProbesInit): Promise<readonly Fact[]> {
  const { area, progress, signal } = init
  if (!isWanted('host', area)) return []
  let pods: readonly NodePod[] = []
  const listed = await askFor(
    {
      ...{ what: 'Pods of route agents', source: `API server of ${admin.title}`, needed: false, ms: LIST_MS },
      right: `list pods in namespace ${SYSTEM_NAMESPACE}`,
      ask: async (limited) => {
        pods = await nodePods(admin, limited)
        return []
      },
    },
    signal,
  )
  const waiting = pods.slice(0, MOST_NODES)
  const found: Fact[] = [...listed, ...leftOut(pods.slice(MOST_NODES))]
  const work = async (): Promise<void> => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift())
      found.push(...(await progress.follow(`node ${next.node}`, probeNode(admin, next, signal))))
  }
  await Promise.all(Array.from({ length: AT_ONCE }, work))
  return found
}

/** The pod of the route agent on each node: nodes with gateways first, then by name. */
export async function nodePods(admin: Pick<Admin, 'list'>, signal: AbortSignal): Promise<NodePod[]> {
  const podsOf = (part: 'gateway' | 'routeagent'): Promise<readonly ManifestObject[]> => {
    const labels = Object.entries(selectorLabels(part)).map((pair) => pair.join('='))
    return admin.list('v1', 'Pod', { namespace: SYSTEM_NAMESPACE, labelSelector: labels.join(',') }, signal)
  }
  const [gateways, agents] = await Promise.all([podsOf('gateway'), podsOf(PART)])
  const first = new Set(gateways.flatMap((pod) => nodeOf(pod) ?? []))
  const byNode = new Map(
    agents.flatMap((pod) => {
      const node = nodeOf(pod)
      return node === undefined ? [] : [[node, { node, pod: pod.metadata.name }] as const]
    }),
  )
  const rank = ({ node }: NodePod): string => `${first.has(node) ? 0 : 1} ${node}`
  return [...byNode.values()].sort((a, b) => (rank(a) < rank(b) ? -1 : 1))
}

/** The node of a running pod. Undefined for any other pod. */
function nodeOf(pod: ManifestObject): string | undefined {
  const { spec, status } = pod as { spec?: { nodeName?: unknown }; status?: { phase?: unknown } }
  const isGoing = (pod.metadata as { deletionTimestamp?: unknown }).deletionTimestamp !== undefined
  if (status?.phase !== 'Running' || isGoing) return undefined
  return typeof spec?.nodeName === 'string' ? spec.nodeName : undefined
}

function probeNode(admin: Admin, { node, pod }: NodePod, signal: AbortSignal): Promise<readonly Fact[]> {
  const source = `pod ${pod}`
  const words = FOLDERS.flatMap((folder) => ['--folder', folder])
  const command = ['sealane', MACHINE_COMMAND, '--node', node, ...words]
  const ask = async (limited: AbortSignal): Promise<readonly Fact[]> => {
    const place = { namespace: SYSTEM_NAMESPACE, pod, container: CONTAINER, command, timeoutMs: MS }
    const { status, stdout, stderr } = await admin.exec(place, limited)
    if (status !== 0) throw new Error(`its command ended with ${status}: ${stderr.trim().slice(0, 300)}`)
    return readMachineFacts(stdout, { node, source, at: new Date().toISOString() })
  }
  const right = `${EXEC_RIGHT} in namespace ${SYSTEM_NAMESPACE}`
  return askFor({ what: `Host ${node}`, source, needed: false, ms: MS, right, ask }, signal)
}

export interface PodReading<T> {
  readonly command: readonly string[]
  /** Reads the output of the command. What it throws is the remark about its node. */
  readonly read: (stdout: string) => T
  /** Takes a line about each node that gives no answer, and about those that were left out. */
  readonly remark: (line: string) => void
}

interface NodeValue<T> {
  readonly node: string
  readonly value: T
}

/**
 * Runs a command in the pod of each route agent, on at most MOST_NODES nodes. Rejects if pods cannot be listed, and with
 * the signal's reason. A user without the right to run commands in pods lacks it in every pod: a refusal before any
 * answer ends the reading, which then rejects with it.
 */
export async function readFromRouteAgents<T>(
  admin: Admin,
  { command, read, remark }: PodReading<T>,
  signal: AbortSignal,
): Promise<readonly NodeValue<T>[]> {
  const pods = await nodePods(admin, signal)
  const waiting = pods.slice(0, MOST_NODES)
  const found: NodeValue<T>[] = []
  const refused: { readonly node: string; readonly error: ClusterApiError }[] = []
  const seen = { hasRun: false }
  if (pods.length > MOST_NODES) remark(`${notAsked(pods.slice(MOST_NODES), 'asked')}\n`)
  const run = async ({ node, pod }: NodePod): Promise<void> => {
    try {
      const place = { namespace: SYSTEM_NAMESPACE, pod, container: CONTAINER, command, timeoutMs: MS }
      const { status, stdout, stderr } = await admin.exec(place, signal)
      seen.hasRun = true
      if (status === 0) found.push({ node, value: read(stdout) })
      else remark(`node ${node}: ${stderr.trim().slice(0, 300)}\n`)
    } catch (error) {
      signal.throwIfAborted()
      if (error instanceof ClusterApiError && error.code === 'Forbidden') refused.push({ node, error })
      else remark(`node ${node}: ${messageOf(error)}\n`)
    }
  }
  const work = async (): Promise<void> => {
    while (seen.hasRun || refused.length === 0) {
      const next = waiting.shift()
      if (next === undefined) return
      await run(next)
    }
  }
  // An answer that comes after the first refusal lets the rest be asked.
  do await Promise.all(Array.from({ length: AT_ONCE }, work))
  while (seen.hasRun && waiting.length > 0)
  const [first] = refused
  if (first !== undefined && !seen.hasRun) throw first.error
  for (const { node, error } of refused) remark(`node ${node}: ${error.message}\n`)
  return found
}

function notAsked(pods: readonly NodePod[], what: string): string {
  return `${pods.length} nodes were not ${what}, because the limit is ${MOST_NODES}: ${pods[0]?.node ?? ''} and those after it`
}

function leftOut(pods: readonly NodePod[]): readonly UnansweredFact[] {
  if (pods.length === 0) return []
  const message = notAsked(pods, 'examined')
  const at = new Date().toISOString()
  return [
    { t: 'unanswered', what: 'Host others', source: 'diagnose', at, needed: false, reason: 'NotAnswered', message },
  ]
}
