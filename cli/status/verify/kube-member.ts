/** One cluster of a run: its facts, its probe objects, and calls from its pods and nodes by `pods/exec`. */
import { type ManifestObject, objectName, selectorLabels } from '../../../install/values/values.ts'
import { type Exposure, exposureOf } from '../../../model/access/access.ts'
import { podFamilies, prefixPairs, toGlobalText } from '../../../model/addresses/addresses.ts'
import { LABEL_DRAIN, LABEL_GATEWAY } from '../../../model/lanes/lanes.ts'
import {
  type Cluster,
  type Membership,
  SYSTEM_NAMESPACE,
  guardedNamespace,
  isDnsSubdomain,
  parseClusterId,
  printable,
} from '../../../model/model.ts'
import type { Clock } from '../../../reconcile/reconcile.ts'
import { UserError, messageOf } from '../../../runtime/runtime.ts'
import { type ClusterAdmin, shellWord } from '../../context/context.ts'
import { checkRights } from '../../installation/installation.ts'
import { activeGateways, freeGateway } from './check-failover.ts'
import {
  CONTAINER,
  DRAINED_ANNOTATION,
  type Letter,
  POD_NAMES,
  PROBE_KINDS,
  PROBE_LABEL,
  PROBE_LABEL_VALUE,
  type ProbeImage,
  type Remains,
  type Role,
  RUN_LABEL,
  UNTIL_ANNOTATION,
  planObjects,
  planSweep,
  policyObject,
  serviceNames,
} from './plan-objects.ts'
import { type ExecVerbs, execVerbsOf, removedAtEnd, verifyRights } from './plan-rights.ts'
import {
  type Family,
  MOST_CALLS,
  LATENCY_MS,
  PROBE_COMMAND,
  type ProbeCall,
  type ProbeResult,
  failedCall,
  readResult,
} from './probe-wire.ts'

/** What a run asks of a cluster. */
export type ProbeAdmin = Pick<
  ClusterAdmin,
  'title' | 'contextName' | 'version' | 'get' | 'list' | 'create' | 'apply' | 'merge' | 'remove' | 'exec' | 'knows'
>

export interface MemberFacts {
  readonly id: string
  readonly cluster: Cluster
  readonly exposure: Exposure
  readonly families: readonly ('IPv4' | 'IPv6')[]
  /** The active gateways that are not drained. */
  readonly gateways: readonly string[]
  readonly image: ProbeImage
  readonly knowsPolicies: boolean
  readonly isOpenShift: boolean
  readonly execVerbs: ExecVerbs
}

const SEALANE = 'sealane.io/v1alpha1'
const MCS = 'multicluster.x-k8s.io/v1beta1'

/** Throws UserError if the cluster is no member, and KubeError. */
export async function readMember(
  admin: ProbeAdmin,
  image: string | undefined,
  signal: AbortSignal,
): Promise<MemberFacts> {
  const get = (kind: string, name: string): Promise<ManifestObject | undefined> =>
    admin.get({ apiVersion: SEALANE, kind, name }, signal)
  const membership = (await get('Membership', 'self')) as unknown as Membership | undefined
  if (membership === undefined) {
    throw new UserError(`${admin.title}: this cluster is no member of a clusterset`, {
      hint: 'join it first: sealane join --help',
    })
  }
  const id = parseClusterId(membership.spec.clusterId)
  const cluster = (await get('Cluster', id)) as unknown as Cluster | undefined
  if (cluster === undefined) {
    throw new UserError(`${admin.title}: it has no Cluster object ${id} yet`, {
      hint: 'see what is missing: sealane status',
    })
  }
  const [gateways, knowsPolicies, isOpenShift, own, version] = await Promise.all([
    activeGateways(admin, signal),
    admin.knows({ apiVersion: SEALANE, kind: 'AccessPolicy' }, signal),
    admin.knows({ apiVersion: 'security.openshift.io/v1', kind: 'SecurityContextConstraints' }, signal),
    probeImage(admin, image, signal),
    admin.version(signal).catch(() => undefined),
  ])
  signal.throwIfAborted()
  return {
    ...{ id, cluster, knowsPolicies, isOpenShift, image: own, execVerbs: execVerbsOf(version) },
    exposure: exposureOf(membership),
    families: podFamilies(cluster.spec),
    gateways,
  }
}

/** The named image, or that of the agent there: the nodes can get it, or have it. */
async function probeImage(admin: ProbeAdmin, named: string | undefined, signal: AbortSignal): Promise<ProbeImage> {
  const ref = { apiVersion: 'apps/v1', kind: 'Deployment', namespace: SYSTEM_NAMESPACE, name: objectName('agent') }
  const found = await admin.get(ref, signal).catch((error: unknown) => {
    // A named image can do without the Secrets of the agent.
    if (named === undefined) throw error
    signal.throwIfAborted()
    return undefined
  })
  const { containers, imagePullSecrets = [] } = (found as AgentShape | undefined)?.spec?.template?.spec ?? {}
  const names = imagePullSecrets.map(({ name = '' }) => name).filter((one) => isDnsSubdomain(one))
  const pullSecrets = names.slice(0, MOST_SECRETS)
  if (named !== undefined) return { name: named, pullPolicy: 'IfNotPresent', pullSecrets }
  const [{ image, imagePullPolicy = 'IfNotPresent' } = {}] = containers ?? []
  if (image === undefined) {
    throw new UserError(`${admin.title}: there is no Deployment ${ref.name} whose image the probes could use`, {
      hint: 'name an image: --image NAME',
    })
  }
  return { name: image, pullPolicy: imagePullPolicy, pullSecrets }
}

const MOST_SECRETS = 8

interface AgentShape {
  readonly spec?: {
    readonly template?: {
      readonly spec?: {
        readonly containers?: readonly { readonly image?: string; readonly imagePullPolicy?: string }[]
        readonly imagePullSecrets?: readonly { readonly name?: string }[]
      }
    }
  }
}

export interface MemberInit {
  readonly admin: ProbeAdmin
  readonly facts: MemberFacts
  readonly letter: Letter
  readonly clock: Clock
  readonly run: string
  readonly namespace: string
  readonly makesNamespace: boolean
  /** Time until pods run and imports are there. */
  readonly timeoutMs: number
  readonly until: string
  readonly lastsSeconds: number
  readonly say: (text: string) => void
  /** Ends the drain of a Node. */
  readonly undrain?: (admin: ProbeAdmin, node: string, signal: AbortSignal) => Promise<unknown>
}

interface PodState {
  readonly spec?: { readonly nodeName?: string }
  readonly status?: {
    readonly phase?: string
    readonly podIPs?: readonly { readonly ip: string }[]
    readonly conditions?: readonly { readonly type: string; readonly status: string; readonly message?: string }[]
    readonly containerStatuses?: readonly {
      readonly state?: { readonly waiting?: { readonly reason?: string; readonly message?: string } }
    }[]
  }
}

const LOOK_EVERY_MS = 300
/** So long for the end of a drain, which must also come after an interrupt. */
const UNDRAIN_MS = 15_000

/** What a run makes in one cluster. */
export interface WantedObjects {
  readonly roles: readonly Role[]
  readonly exports: boolean
  readonly nodes?: Partial<Record<Role, string>>
}

/** A call that waits for those of the same moment. */
interface WaitingCall {
  readonly call: ProbeCall
  readonly answer: (result: ProbeResult) => void
  readonly fail: (error: unknown) => void
}

export class KubeMember {
  readonly facts: MemberFacts
  readonly letter: Letter
  readonly #init: MemberInit
  readonly #applied: ManifestObject[] = []
  readonly #pods = new Map<Role, PodState>()
  readonly #waiting = { pod: [] as WaitingCall[], node: [] as WaitingCall[] }
  #nodePod: string | undefined
  /** The Node that this run has drained and could not take back. */
  #stillDrained: string | undefined

  constructor(init: MemberInit) {
    this.#init = init
    this.facts = init.facts
    this.letter = init.letter
  }

  get id(): string {
    return this.facts.id
  }

  get admin(): ProbeAdmin {
    return this.#init.admin
  }

  get names() {
    return serviceNames(this.letter)
  }

  /** What prepare() applies for this caller. */
  objectsFor(caller: string, { nodes = {}, roles, exports: isExported }: WantedObjects): readonly ManifestObject[] {
    const { facts } = this.#init
    const wanted = { nodes, roles, exports: isExported }
    return planObjects({ ...this.#init, ...facts, ...wanted, member: facts.id, caller })
  }

  /** Changes nothing. Throws UserError if this user lacks a right that the run uses here; `drains` a gateway. */
  async checkRights(caller: string, wanted: WantedObjects, drains: boolean, signal: AbortSignal): Promise<void> {
    const { admin, facts, namespace, makesNamespace } = this.#init
    const objects = this.objectsFor(caller, wanted)
    const calls = wanted.roles.includes('client')
    const { knowsPolicies, execVerbs } = facts
    const rights = verifyRights({ objects, namespace, makesNamespace, calls, drains, knowsPolicies, execVerbs })
    await checkRights(admin, rights, signal)
  }

  /** Applies the objects and waits until the pods run. Throws UserError with VerifyPodFailed after the time limit. */
  async prepare(caller: string, wanted: WantedObjects, signal: AbortSignal): Promise<void> {
    const { admin } = this.#init
    await this.#checkNamespace(signal)
    for (const object of this.objectsFor(caller, wanted)) {
      signal.throwIfAborted()
      // Noted first: a request that is interrupted may have been carried out.
      this.#applied.push(object)
      await admin.apply(object, { dryRun: false }, signal)
    }
    for (const role of wanted.roles) await this.#untilRunning(role, signal)
  }

  async #checkNamespace(signal: AbortSignal): Promise<void> {
    const { admin, namespace, makesNamespace } = this.#init
    const guard = guardedNamespace(namespace)
    if (guard !== undefined) throw new UserError(`--namespace ${namespace} ${guard}: expected one of yours`)
    if (makesNamespace) return
    if ((await admin.get({ apiVersion: 'v1', kind: 'Namespace', name: namespace }, signal)) === undefined) {
      throw new UserError(`--namespace ${namespace}: not found in ${admin.title}`, {
        hint: 'create it in both clusters, or leave the flag out',
      })
    }
    const others = { namespace, labelSelector: `${PROBE_LABEL}=${PROBE_LABEL_VALUE}` }
    const [pod] = await admin.list('v1', 'Pod', others, signal)
    if (pod !== undefined) {
      const end = Date.parse(pod.metadata.annotations?.[UNTIL_ANNOTATION] ?? '')
      const until = Number.isNaN(end) ? '' : `, which is at ${new Date(end).toISOString()} at the latest`
      throw new UserError(`${admin.title}: another run uses namespace ${namespace}`, {
        hint: `wait for its end${until}, or leave --namespace out`,
      })
    }
  }

  async #untilRunning(role: Role, signal: AbortSignal): Promise<void> {
    const { admin, clock, namespace, timeoutMs } = this.#init
    const name = POD_NAMES[role]
    const deadline = clock.monotonic() + timeoutMs
    for (;;) {
      const pod = (await admin.get({ apiVersion: 'v1', kind: 'Pod', namespace, name }, signal)) as PodState | undefined
      const status = pod?.status
      const isReady = status?.conditions?.some((one) => one.type === 'Ready' && one.status === 'True') === true
      if (pod !== undefined && isReady && (status.podIPs?.length ?? 0) > 0) {
        this.#pods.set(role, pod)
        return
      }
      if (clock.monotonic() >= deadline || status?.phase === 'Failed') {
        const hint = this.#pullHint(pod)
        throw new UserError(`${admin.title}: Pod ${namespace}/${name} does not run: ${whyNot(pod)}`, {
          reason: 'VerifyPodFailed',
          ...(hint === undefined ? {} : { hint }),
        })
      }
      await clock.sleep(LOOK_EVERY_MS, signal)
    }
  }

  /** What to do about an image that could not be pulled, if the agent pulls it with Secrets. */
  #pullHint(pod: PodState | undefined): string | undefined {
    const { namespace, makesNamespace, facts } = this.#init
    const isPulled = pod?.status?.containerStatuses?.some(({ state }) => {
      return /ImagePull/.test(state?.waiting?.reason ?? '')
    })
    const secrets = facts.image.pullSecrets.join(', ')
    if (isPulled !== true || secrets === '') return undefined
    return makesNamespace
      ? `the agent pulls images with Secret ${secrets}: use --namespace with a namespace that has it`
      : `the agent pulls images with Secret ${secrets}: see whether namespace ${namespace} has it`
  }

  /** The addresses of a pod as other members see them. Undefined if the addresses cannot be mapped one to one. */
  addresses(role: Role, family: Family): readonly string[] | undefined {
    const all = (this.#pods.get(role)?.status?.podIPs ?? []).map(({ ip }) => ip)
    try {
      const pairs = prefixPairs(this.facts.cluster.spec)
      return all.filter((ip) => ip.includes(':') === (family === 6)).map((ip) => toGlobalText(pairs, ip))
    } catch {
      return undefined
    }
  }

  /** The addresses of a pod in its own cluster. */
  localAddresses(role: Role): readonly string[] {
    return (this.#pods.get(role)?.status?.podIPs ?? []).map(({ ip }) => ip)
  }

  /**
   * The clusterset IPs of the imported service, once `exporter` is among its clusters; empty for a headless one.
   * Undefined after the time limit.
   */
  async imported(service: string, exporter: string, signal: AbortSignal): Promise<readonly string[] | undefined> {
    const { admin, clock, namespace, timeoutMs } = this.#init
    const deadline = clock.monotonic() + timeoutMs
    const ref = { apiVersion: MCS, kind: 'ServiceImport', namespace, name: service }
    for (;;) {
      const found = (await admin.get(ref, signal)) as ImportShape | undefined
      const isFrom = found?.status?.clusters?.some(({ cluster }) => cluster === exporter) === true
      const ips = found?.spec?.ips ?? []
      if (isFrom && (found.spec?.type === 'Headless' || ips.length > 0)) return ips
      if (clock.monotonic() >= deadline) return undefined
      await clock.sleep(LOOK_EVERY_MS, signal)
    }
  }

  /**
   * Makes a call from the client pod, or from the network of its node. Calls of the same moment are made at once by one
   * process, because its start takes longer than most calls. Rejects only with the signal's reason.
   */
  call<Call extends ProbeCall>(
    from: 'pod' | 'node',
    call: Call,
    signal: AbortSignal,
  ): Promise<ProbeResult<Call['op']>> {
    const { promise, resolve, reject } = Promise.withResolvers<ProbeResult>()
    const waiting = this.#waiting[from]
    if (waiting.push({ call, answer: resolve, fail: reject }) === 1) {
      queueMicrotask(() => {
        const all = waiting.splice(0)
        for (let i = 0; i < all.length; i += MOST_CALLS) void this.#together(from, all.slice(i, i + MOST_CALLS), signal)
      })
    }
    return promise as Promise<ProbeResult<Call['op']>>
  }

  /** Answers all of them. */
  async #together(from: 'pod' | 'node', all: readonly WaitingCall[], signal: AbortSignal): Promise<void> {
    try {
      const results = await this.#made(
        from,
        all.map(({ call }) => call),
        signal,
      )
      for (const [i, { answer }] of all.entries()) answer(results[i] ?? failedCall('other', 'there is no result'))
    } catch (error) {
      for (const { fail } of all) fail(error)
    }
  }

  async #made(from: 'pod' | 'node', calls: readonly ProbeCall[], signal: AbortSignal): Promise<readonly ProbeResult[]> {
    const { admin, run, namespace } = this.#init
    try {
      const place =
        from === 'pod'
          ? { namespace, pod: POD_NAMES.client, container: CONTAINER }
          : { namespace: SYSTEM_NAMESPACE, pod: await this.#nodeAgent(signal), container: 'routeagent' }
      const words = calls.map((one) => JSON.stringify(one))
      const command = ['sealane', PROBE_COMMAND, 'call', '--run', run, ...words]
      const timeoutMs = Math.max(...calls.map(budgetMs))
      const { status, stdout, stderr } = await admin.exec({ ...place, command, timeoutMs }, signal)
      signal.throwIfAborted()
      const lines = stdout.split('\n')
      if (status === 0) return calls.map(({ op }, i) => readResult(op, lines[i] ?? ''))
      const failed = failedCall('other', `the command in pod ${place.pod} ended with ${status}: ${stderr.trim()}`)
      return calls.map(() => failed)
    } catch (error) {
      signal.throwIfAborted()
      return calls.map(() => failedCall('other', messageOf(error)))
    }
  }

  /** The route agent of the client's node; it shares the network of the node. */
  async #nodeAgent(signal: AbortSignal): Promise<string> {
    if (this.#nodePod !== undefined) return this.#nodePod
    const labelSelector = Object.entries(selectorLabels('routeagent'))
      .map((pair) => pair.join('='))
      .join(',')
    const scope = { namespace: SYSTEM_NAMESPACE, labelSelector }
    const pods = await this.#init.admin.list('v1', 'Pod', scope, signal)
    const running = pods.filter((pod) => (pod as PodState).status?.phase === 'Running')
    const node = this.#pods.get('client')?.spec?.nodeName
    const found = running.find((pod) => (pod as PodState).spec?.nodeName === node) ?? running[0]
    if (found === undefined) throw new Error('no route agent runs')
    this.#nodePod = found.metadata.name
    return this.#nodePod
  }

  /** Offers the Services to these members alone. */
  async offerTo(callers: readonly string[], signal: AbortSignal): Promise<void> {
    await this.#init.admin.apply(policyObject(this.#init, callers), { dryRun: false }, signal)
  }

  /** See freeGateway(). Throws KubeError. */
  freeGateway(signal: AbortSignal): Promise<string | undefined> {
    return freeGateway(this.#init.admin, signal)
  }

  /** Ends the drain that this run has begun, also after an interrupt. If that fails: false, and close() keeps the note. */
  async takeBack(node: string): Promise<boolean> {
    const limited = AbortSignal.timeout(UNDRAIN_MS)
    const isTakenBack = await this.#endDrain(node, limited)
    if (isTakenBack) await this.noteDrained(null, limited).catch(() => undefined)
    else this.#stillDrained = node
    return isTakenBack
  }

  /** False if the Node is still drained; then the user reads how to end that. */
  async #endDrain(node: string, signal: AbortSignal): Promise<boolean> {
    const { admin, undrain, say } = this.#init
    try {
      const labels = (await admin.get({ apiVersion: 'v1', kind: 'Node', name: node }, signal))?.metadata.labels
      const isDrained = labels?.[LABEL_DRAIN] !== undefined && labels[LABEL_GATEWAY] !== undefined
      if (isDrained) await undrain?.(admin, node, signal)
      return true
    } catch (error) {
      say(`${this.id}: gateway ${printable(node)} stays drained: ${messageOf(error)}\n`)
      say(`  to end that: sealane gateway undrain ${shellWord(printable(node))}${this.#flags}\n`)
      return false
    }
  }

  get #flags(): string {
    const { contextName } = this.#init.admin
    return contextName === undefined ? '' : ` --context ${shellWord(contextName)}`
  }

  /** Notes which Node is drained, so that a later run ends it if this one is killed. */
  async noteDrained(node: string | null, signal: AbortSignal): Promise<void> {
    const ref = { apiVersion: 'v1', kind: 'Service', namespace: this.#init.namespace, name: this.names.balanced }
    await this.#init.admin.merge(ref, { metadata: { annotations: { [DRAINED_ANNOTATION]: node } } }, signal)
  }

  /**
   * Removes what earlier runs left behind that were killed, as far as that is possible: it must not keep this run from
   * its work. Returns how many objects that were.
   */
  async sweep(signal: AbortSignal): Promise<number> {
    const { clock, say } = this.#init
    const { objects, drained } = await this.#remains(clock.now(), signal)
    const kept = new Set<string>()
    for (const node of drained) {
      if (!(await this.#endDrain(node, signal))) kept.add(node)
      signal.throwIfAborted()
    }
    const over = withoutNotes(objects, kept)
    try {
      await this.#remove(over, signal)
    } catch (error) {
      signal.throwIfAborted()
      say(`${this.id}: not all is removed of a run that was killed: ${messageOf(error)}\n`)
    }
    return over.length
  }

  async #remains(nowMs: number, signal: AbortSignal): Promise<Remains> {
    const { admin } = this.#init
    const labelSelector = `${PROBE_LABEL}=${PROBE_LABEL_VALUE}`
    const lists = PROBE_KINDS.map(({ apiVersion, kind }) => admin.list(apiVersion, kind, { labelSelector }, signal))
    return planSweep((await Promise.all(lists)).flat(), nowMs)
  }

  /** Removes all objects of this run, each as far as it goes. Throws the errors together. */
  async close(signal: AbortSignal): Promise<void> {
    if (this.#stillDrained !== undefined) {
      await this.#keepNote(signal)
      return
    }
    await this.#remove(removedAtEnd(this.#applied, this.#init.makesNamespace), signal)
  }

  /** Removes all but the Service that names the drained Node, with its namespace: the next run starts with it. */
  async #keepNote(signal: AbortSignal): Promise<void> {
    const { admin, clock, namespace, say } = this.#init
    const isNote = ({ kind, metadata }: ManifestObject): boolean => {
      return kind === 'Namespace' || (kind === 'Service' && metadata.name === this.names.balanced)
    }
    await this.#remove(
      this.#applied.filter((one) => !isNote(one)),
      signal,
    )
    const patch = { metadata: { annotations: { [UNTIL_ANNOTATION]: new Date(clock.now()).toISOString() } } }
    for (const { apiVersion, kind, metadata } of this.#applied.filter(isNote)) {
      const { name, namespace: inside } = metadata
      await admin.merge(
        { apiVersion, kind, name, ...(inside === undefined ? {} : { namespace: inside }) },
        patch,
        signal,
      )
    }
    say(`${this.id}: Service ${namespace}/${this.names.balanced} stays, for the next run to undrain the gateway\n`)
  }

  /** What to do if close() has failed: when another run removes the objects, and the commands that do it now. */
  get leftText(): string {
    const { makesNamespace, namespace, run, until, admin, facts } = this.#init
    const context = admin.contextName === undefined ? '' : ` --context ${shellWord(admin.contextName)}`
    const kinds = ['serviceexports', ...(facts.knowsPolicies ? ['accesspolicies'] : []), 'services', 'pods'].join(',')
    const what = makesNamespace ? `namespace ${namespace}` : `${kinds} -n ${namespace} -l ${RUN_LABEL}=${run}`
    const node = this.#stillDrained
    return [
      `  a run after ${until} removes it; to do it now: kubectl${context} delete ${what}\n`,
      ...(node === undefined ? [] : [`  first: sealane gateway undrain ${shellWord(node)}${this.#flags}\n`]),
    ].join('')
  }

  async #remove(objects: readonly ManifestObject[], signal: AbortSignal): Promise<void> {
    const { admin } = this.#init
    const failed: unknown[] = []
    const order = PROBE_KINDS.map(({ kind }): string => kind)
    for (const { apiVersion, kind, metadata } of [...objects].sort(
      (a, b) => order.indexOf(a.kind) - order.indexOf(b.kind),
    )) {
      const { name, namespace } = metadata
      await admin
        .remove({ apiVersion, kind, name, ...(namespace === undefined ? {} : { namespace }) }, signal)
        .catch((error: unknown) => failed.push(error))
    }
    if (failed.length > 0) throw new AggregateError(failed, `${admin.title}: ${messageOf(failed[0])}`)
  }
}

/** Without the Services that note these Nodes, and without the namespaces around them. */
function withoutNotes(objects: readonly ManifestObject[], nodes: ReadonlySet<string>): readonly ManifestObject[] {
  const notes = objects.filter(({ metadata }) => nodes.has(metadata.annotations?.[DRAINED_ANNOTATION] ?? ''))
  const around = new Set(notes.map(({ metadata }) => metadata.namespace))
  return objects.filter((one) => !notes.includes(one) && !(one.kind === 'Namespace' && around.has(one.metadata.name)))
}

interface ImportShape {
  readonly spec?: { readonly type?: string; readonly ips?: readonly string[] }
  readonly status?: { readonly clusters?: readonly { readonly cluster: string }[] }
}

function whyNot(pod: PodState | undefined): string {
  if (pod === undefined) return 'it does not exist'
  const waiting = pod.status?.containerStatuses?.map(({ state }) => state?.waiting).find((one) => one !== undefined)
  const condition = pod.status?.conditions?.find(({ status, message }) => status !== 'True' && message !== undefined)
  return (
    [waiting?.reason, waiting?.message ?? condition?.message]
      .filter((one) => one !== undefined)
      .join(': ')
      .slice(0, 300) ||
    (pod.status?.phase ?? 'Pending')
  )
}

const START_MS = 30_000

/** How long a call may take with the start of its process. */
export function budgetMs(call: ProbeCall): number {
  switch (call.op) {
    case 'resolve':
      return START_MS + 20_000
    case 'hello':
      return START_MS + call.tries * call.timeoutMs
    case 'refused':
      return START_MS + call.limitMs + 2 * call.timeoutMs
    case 'connect':
    case 'bulk':
      return START_MS + call.timeoutMs
    case 'datagrams':
      return START_MS + 4000 * call.sizes.length
    case 'throughput':
      return START_MS + 1000 * call.seconds + 12_000
    case 'latency':
      return START_MS + LATENCY_MS + 6000
    case 'loss':
      return START_MS + 8000 + 2 * call.count * call.intervalMs
    case 'steady':
      return START_MS + 1000 * call.seconds + 8000
  }
}
