/**
 * `sealane explain --probe`: sends real packets from where the caller is, follows them on each machine that can be asked,
 * and adds to the explanation what became of them. Of the ways to send, it takes the one with the least rights:
 *
 *   a site: this machine
 *   a node of a cluster: the pod of the route agent there, which shares the node's network
 *   a pod of a cluster: a probe pod without rights beside it; nothing enters the network of the caller itself
 */
import { randomInt, randomBytes } from 'node:crypto'
import type { FactSet } from '../../../explain/facts/facts.ts'
import {
  type CallPackets,
  type ExplainedCall,
  MOST_TRACE_SECONDS,
  type PathExplanation,
  type PathFrom,
  type ProbePlace,
  type ProbeReport,
  type ProbeTask,
  noProbe,
  planProbe,
  withProbe,
} from '../../../explain/path/path.ts'
import { type Clock, SystemClock } from '../../../reconcile/reconcile.ts'
import { UserError, messageOf } from '../../../runtime/runtime.ts'
import { type ClusterAdmin, type CommandContext, type KubeTarget, quoted, withAdmin } from '../../context/context.ts'
import { type NodePod, nodePods } from '../probes/pod-probes.ts'
import { type Follower, agentPlace, followInPod, withProbePod } from './follow-in-pod.ts'
import { planFollowed, unnamedSides } from './plan-followed.ts'
import { probeMachine } from './probe-machine.ts'

/** A member that may be asked. */
export interface ProbedSide {
  /** What the command calls it. */
  readonly title: string
  /** Undefined for a site. */
  readonly kube: KubeTarget | undefined
}

export interface ProbePathInit {
  readonly call: ExplainedCall
  readonly from: PathFrom
  readonly here: ProbedSide & { readonly facts: unknown }
  readonly far: readonly ProbedSide[]
}

/** Source ports below those that kernels and clusters give out themselves. */
const SOURCE_PORTS = [20_000, 30_000] as const
/** The followers begin one after the other, and the sender last. They are ended as soon as the packets are sent. */
const TASK_SECONDS = MOST_TRACE_SECONDS

/** Throws UserError if the call has no port, or a cluster cannot be opened. Otherwise what fails is part of the answer. */
export async function probePath(init: ProbePathInit, context: CommandContext): Promise<PathExplanation> {
  const { call, from, here, far } = init
  const { path, packets } = call
  if (packets === undefined) {
    const why = 'no address is known that could be called'
    return withProbe(path, noProbe(why, { to: path.to, protocol: call.protocol }))
  }
  const { port } = packets
  if (port === undefined) {
    throw new UserError('--probe: TO has no port', { hint: `name one: ${path.to}:PORT`, exitCode: 3 })
  }
  const clock = new SystemClock()
  const run: Run = {
    ...{ packets, path, clock, context, port },
    isBound: from.what === 'address',
    sourcePort: randomInt(...SOURCE_PORTS),
  }
  const asked = await withAdmins([here, ...far], context, async ([own, ...others]) => {
    let followers: readonly Followed[] = []
    const onSend = async (): Promise<void> => {
      followers = await followersOf(run, { own, others, far })
    }
    try {
      const sent = await (own === undefined ? fromHere(run, init, onSend) : fromCluster(run, own, { from, onSend }))
      for (const { follower } of followers) follower?.end()
      return { ...sent, places: [...sent.places, ...(await Promise.all(followers.map(reported)))] }
    } finally {
      for (const { follower } of followers) follower?.end()
    }
  })
  context.signal.throwIfAborted()
  return withProbe(path, planProbe({ packets, port, sourcePort: run.sourcePort, nowMs: clock.now(), ...asked }))
}

interface Run {
  readonly packets: CallPackets
  readonly path: PathExplanation
  readonly port: number
  readonly sourcePort: number
  /** The caller is an address, and packets are sent from that. */
  readonly isBound: boolean
  readonly clock: Clock
  readonly context: CommandContext
}

function taskOf({ packets, sourcePort, port }: Run, sources: readonly string[]): ProbeTask {
  const { family, protocol, destinations, ports } = packets
  return {
    ...{ family, protocol, sourcePort, seconds: TASK_SECONDS },
    ...{ sources: [...sources], destinations: [...destinations], ports: [...(ports.length === 0 ? [port] : ports)] },
  }
}

/** Of a node, only its kernel knows by which address it calls. */
function sourcesOf({ packets, isBound }: Run): readonly string[] {
  return isBound ? packets.sources : []
}

function sendingOf({ packets, isBound, port }: Run): NonNullable<ProbeTask['send']> {
  const { to, source } = packets
  return { to, port, ...(isBound && source !== undefined ? { source } : {}) }
}

async function withAdmins<T>(
  sides: readonly ProbedSide[],
  context: CommandContext,
  work: (admins: readonly (ClusterAdmin | undefined)[]) => Promise<T>,
): Promise<T> {
  const [first, ...rest] = sides
  if (first === undefined) return work([])
  const withRest = (admin: ClusterAdmin | undefined): Promise<T> =>
    withAdmins(rest, context, (admins) => work([admin, ...admins]))
  const { kube } = first
  if (kube === undefined) return withRest(undefined)
  const { by: _by, ...target } = kube
  return withAdmin(target, new SystemClock(), context, ({ admin }) => withRest(admin))
}

// The machines that follow packets besides that of the caller

interface Followed {
  readonly place: Omit<ProbePlace, 'report' | 'notAsked'>
  readonly follower?: Follower
  readonly why?: string
}

async function reported({ place, follower, why }: Followed): Promise<ProbePlace> {
  if (follower === undefined) return { ...place, notAsked: why ?? 'it could not be asked' }
  try {
    return { ...place, report: await follower.report }
  } catch (error) {
    return { ...place, notAsked: messageOf(error) }
  }
}

interface FollowInit {
  readonly own: ClusterAdmin | undefined
  readonly others: readonly (ClusterAdmin | undefined)[]
  readonly far: readonly ProbedSide[]
}

/** Resolves when all of them follow, or could not be asked. */
async function followersOf(run: Run, { own, others, far }: FollowInit): Promise<readonly Followed[]> {
  const { path, packets } = run
  const self = path.steps.find(({ station }) => station === 'caller')?.cluster ?? '-'
  const ofOwn =
    own === undefined
      ? []
      : followAll(run, own, { cluster: self, isFar: false, sender: packets.node, title: 'this cluster' })
  // Its id is known by the option that named it.
  const idOf = ({ title }: ProbedSide): string => path.asked.find(({ option }) => option === title)?.cluster ?? title
  const ofFar = far.map(async (side, i): Promise<readonly Followed[]> => {
    const cluster = idOf(side)
    const admin = others[i]
    if (admin !== undefined)
      return followAll(run, admin, { cluster, isFar: true, sender: undefined, title: side.title })
    const place = { cluster, isCaller: false, isFar: true, source: side.title }
    return [{ place, why: 'packets of a site are followed by a command on its own machine' }]
  })
  const missing = unnamedSides(packets, self, far.map(idOf))
  return [...(await Promise.all([ofOwn, ...ofFar])).flat(), ...missing]
}

interface FollowCluster {
  readonly cluster: string
  readonly isFar: boolean
  /** The node that is not asked here. */
  readonly sender: string | undefined
  readonly title: string
}

async function followAll(
  run: Run,
  admin: ClusterAdmin,
  { cluster, isFar, sender, title }: FollowCluster,
): Promise<readonly Followed[]> {
  const { path, clock, context } = run
  const { signal } = context
  let pods: readonly NodePod[]
  let nodes: readonly string[] | string
  try {
    ;[pods, nodes] = await Promise.all([nodePods(admin, signal), nodeNames(admin, signal)])
  } catch (error) {
    signal.throwIfAborted()
    return [{ place: { cluster, isCaller: false, isFar, source: title }, why: messageOf(error) }]
  }
  const plan = planFollowed({ cluster, isFar, pods, nodes, sender, steps: path.steps })
  const followed = await Promise.all(
    plan.followed.map(async ({ node, pod }): Promise<Followed> => {
      const place = { cluster, node, isCaller: false, isFar, source: `pod ${pod}` }
      const follower = followInPod(admin, agentPlace(pod), taskOf(run, sourcesOf(run)), { clock, signal })
      try {
        await follower.ready
        return { place, follower }
      } catch (error) {
        signal.throwIfAborted()
        follower.end()
        return { place, why: messageOf(error) }
      }
    }),
  )
  return [...followed, ...plan.notAsked]
}

/** The names of all nodes, or why they are not known. */
async function nodeNames(admin: Pick<ClusterAdmin, 'list'>, signal: AbortSignal): Promise<readonly string[] | string> {
  try {
    return (await admin.list('v1', 'Node', {}, signal)).map(({ metadata }) => metadata.name)
  } catch (error) {
    signal.throwIfAborted()
    return messageOf(error)
  }
}

// The sender

interface Sent {
  readonly by: string
  readonly isStandIn: boolean
  readonly places: readonly ProbePlace[]
}

/** Called just before packets are sent. */
type OnSend = () => Promise<void>

async function fromHere(run: Run, { here, from }: ProbePathInit, onSend: OnSend): Promise<Sent> {
  const { path, packets, context } = run
  const { signal } = context
  const by = 'this machine'
  const cluster = path.steps.find(({ station }) => station === 'caller')?.cluster ?? '-'
  const node = packets.node ?? (from.what === 'node' ? from.name : undefined)
  const place = { cluster, isCaller: true, isFar: false, source: by, ...(node === undefined ? {} : { node }) }
  const wrong = await wrongMachine(from, here.facts, signal)
  const isStandIn = false
  if (wrong !== undefined) return { by, isStandIn, places: [{ ...place, notAsked: wrong }] }
  const task = { ...taskOf(run, sourcesOf(run)), send: sendingOf(run) }
  await onSend()
  return { by, isStandIn, places: [{ ...place, report: await probeMachine({ task }, signal) }] }
}

const LOOK_MS = 3000

/** Why the packets of the caller cannot be sent from this machine. */
async function wrongMachine(from: PathFrom, facts: unknown, signal: AbortSignal): Promise<string | undefined> {
  const { ownAddresses } = await import('../../../compose/look.ts')
  const own = await ownAddresses(LOOK_MS, signal).catch((): readonly string[] => [])
  signal.throwIfAborted()
  if (own.length === 0) return undefined
  if (from.what === 'address') {
    if (own.includes(from.address)) return undefined
    return `${from.address} is no address of this machine: run the command in the network namespace that has it`
  }
  if (from.what !== 'node') return undefined
  const known = nodeAddresses(facts, from.name)
  if (known.length === 0 || known.some((address) => own.includes(address))) return undefined
  return `this machine has none of the addresses of node ${quoted(from.name)}: run the command there`
}

function nodeAddresses(facts: unknown, name: string): readonly string[] {
  const { facts: all = [] } = facts as Partial<FactSet>
  return all.flatMap((fact) => {
    if (fact.t !== 'objects' || fact.kind !== 'Node') return []
    const nodes = fact.items as readonly NodeLike[]
    const found = nodes.find(({ metadata }) => metadata?.name === name)
    return (found?.status?.addresses ?? []).flatMap(({ type, address }) => (type === 'InternalIP' ? [address] : []))
  })
}

interface NodeLike {
  readonly metadata?: { readonly name?: string }
  readonly status?: { readonly addresses?: readonly { readonly type: string; readonly address: string }[] }
}

async function fromCluster(
  run: Run,
  admin: ClusterAdmin,
  { from, onSend }: { readonly from: PathFrom; readonly onSend: OnSend },
): Promise<Sent> {
  const { path, packets, clock, context } = run
  const { signal } = context
  const { node, isPod } = packets
  const cluster = path.steps.find(({ station }) => station === 'caller')?.cluster ?? '-'
  const place = {
    cluster,
    isCaller: true,
    isFar: false,
    source: 'this cluster',
    ...(node === undefined ? {} : { node }),
  }
  const none = (notAsked: string): Sent => ({ by: 'no machine', isStandIn: false, places: [{ ...place, notAsked }] })
  if (node === undefined) return none('the node of the caller is not known')
  let agent: NodePod | undefined
  try {
    agent = (await nodePods(admin, signal)).find((pod) => pod.node === node)
  } catch (error) {
    signal.throwIfAborted()
    return none(messageOf(error))
  }
  if (!isPod) {
    if (agent === undefined) return none(`no route agent runs on node ${node}`)
    const by = `pod ${agent.pod}, which shares the network of node ${node}`
    const task = { ...taskOf(run, sourcesOf(run)), send: sendingOf(run) }
    await onSend()
    const report = await unlessFailed(followInPod(admin, agentPlace(agent.pod), task, { clock, signal }), signal)
    return { by, isStandIn: false, places: [{ ...place, source: `pod ${agent.pod}`, ...report }] }
  }
  if (from.what !== 'pod')
    return none('the caller is a pod: name it as NAMESPACE/POD, so that a probe pod can be put beside it')
  const { namespace } = from
  const pod = { namespace, node, run: randomBytes(8).toString('hex'), clock }
  const say = (text: string): void => context.output.remark(text)
  try {
    return await withProbePod(admin, { ...pod, say }, signal, async ({ place: inPod, addresses }) => {
      const by = `pod ${inPod.pod} in namespace ${namespace} on node ${node}, as the caller's own network has no such program`
      const follow =
        agent === undefined
          ? undefined
          : followInPod(admin, agentPlace(agent.pod), { ...taskOf(run, addresses), counts: true }, { clock, signal })
      // Whether it follows is part of its report.
      await Promise.all([onSend(), follow?.ready.catch(() => undefined)])
      const task = { ...taskOf(run, []), send: sendingOf({ ...run, isBound: false }) }
      const sent = await unlessFailed(followInPod(admin, inPod, task, { clock, signal }), signal)
      follow?.end()
      const seen: Reported =
        follow === undefined ? { notAsked: `no route agent runs on node ${node}` } : await unlessFailed(follow, signal)
      const source = `pod ${agent?.pod ?? inPod.pod}`
      return { by, isStandIn: true, places: [{ ...place, source, ...together(sent, seen) }] }
    })
  } catch (error) {
    signal.throwIfAborted()
    return none(messageOf(error))
  }
}

type Reported = Pick<ProbePlace, 'report' | 'notAsked'>

async function unlessFailed({ report }: Follower, signal: AbortSignal): Promise<Reported> {
  try {
    return { report: await report }
  } catch (error) {
    signal.throwIfAborted()
    return { notAsked: messageOf(error) }
  }
}

/** What the pod sent, and what its node saw of it. */
function together(pod: Reported, node: Reported): Reported {
  const sent = pod.report?.sent
  const seen: ProbeReport | undefined = node.report
  if (sent === undefined) return { notAsked: pod.notAsked ?? 'the probe pod sent nothing' }
  if (seen !== undefined) return { report: { ...seen, sent } }
  const { at } = pod.report ?? { at: '' }
  return { report: { at, sent, problem: node.notAsked ?? 'not followed', lines: [], leftOut: 0, counters: [] } }
}
