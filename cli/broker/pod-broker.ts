/** A broker that runs on a cluster: what is asked of it is asked by the same command in its pod, on its database. */
import type {
  Answer,
  AnswerInit,
  AuthorityStatus,
  AuthorityStep,
  AuthorityStore,
  BrokerStore,
  ClustersetSummary,
  CreateClustersetInit,
  Eviction,
  MemberSummary,
  RekeyInit,
  TokenInit,
  TokenSummary,
  WaitingSummary,
} from '../../compose/broker/broker.ts'
import { DEFAULT_VALUES, type ManifestObject, objectName } from '../../install/values/values.ts'
import { type CommandResult, KubeError, refOf } from '../../kubeapi/kube/kube.ts'
import { knownReason } from '../../model/reasons/reasons.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { UserError } from '../../runtime/runtime.ts'
import { type ClusterAdmin, type CommandContext, type KubeTarget, targetFlags, withAdmin } from '../context/context.ts'
import { isReady, selectorText } from '../installation/installation.ts'
import { clustersetWords } from './which-clusterset.ts'

/** The state directory in the pod. */
export const STATE = '/var/lib/sealane/broker'

/** Exit statuses from here on are those of a process that was ended by a signal: its pod goes. */
const KILLED = 128

/** A broker on a cluster, and one of its clustersets. */
export interface BrokerInPod extends KubeTarget {
  /** Absent: the broker's own. */
  readonly clusterset?: string | undefined
}

/** Runs `sealane WORDS` in the broker's pod and gives what it printed. Throws UserError with what it said instead. */
export type AskBroker = (words: readonly string[], init?: AskInit) => Promise<string>

export interface AskInit {
  /** The command changes nothing: where one replica cannot run it, the next one does. */
  readonly looks?: boolean
}

/** What it printed as JSON. Throws UserError where that is none: an older version may print something else. */
export async function askForJson<T>(ask: AskBroker, words: readonly string[], init?: AskInit): Promise<T> {
  const text = await ask([...words, '-o', 'json'], init)
  try {
    return JSON.parse(text) as T
  } catch (cause) {
    // Not what it said: that may be a token.
    const command = `sealane ${words.join(' ')} -o json`
    throw new UserError(`the broker's version does not know this: ${command}: expected JSON`, { cause })
  }
}

export function withPodBroker<T>(
  target: BrokerInPod,
  context: CommandContext,
  work: (ask: AskBroker) => Promise<T>,
): Promise<T> {
  return withAdmin(target, new SystemClock(), context, ({ admin }) =>
    work(podBroker(admin, targetFlags(target, admin.contextName), context.signal, target.clusterset)),
  )
}

/** `flags` name the cluster in what is said. */
export function podBroker(
  admin: Pick<ClusterAdmin, 'title' | 'list' | 'exec'>,
  flags: string,
  signal: AbortSignal,
  clusterset?: string,
): AskBroker {
  return async (words, { looks = false } = {}) => {
    const { namespace } = DEFAULT_VALUES.broker
    const pods = await brokerPods(admin, { namespace, flags }, signal)
    const command = ['sealane', ...words, '--state', STATE, ...clustersetWords(clusterset)]
    const container = objectName('broker').replace('sealane-', '')
    const run = (pod: string): Promise<CommandResult> => admin.exec({ namespace, pod, container, command }, signal)
    const { status, stdout, stderr } = await (looks ? firstThatRuns(pods, run) : run(pods[0]))
    if (status === 0) return stdout
    throw refusedInPod(admin, stderr)
  }
}

/**
 * A pod on a node that has died counts as ready for a while. Gives what the first one says that can run the command, or
 * the last one; throws what that throws.
 */
async function firstThatRuns(
  [pod, ...others]: readonly [string, ...string[]],
  run: (pod: string) => Promise<CommandResult>,
): Promise<CommandResult> {
  const [next, ...rest] = others
  if (next === undefined) return run(pod)
  try {
    const result = await run(pod)
    if (result.status < KILLED) return result
  } catch (error) {
    if (!(error instanceof KubeError && (error.passing || error.code === 'NotFound'))) throw error
  }
  return firstThatRuns([next, ...rest], run)
}

/** What the command says that failed in the broker's pod: its message, and the name of its reason. */
export function refusedInPod({ title }: Pick<ClusterAdmin, 'title'>, stderr: string): UserError {
  const [, text = '', code] = /^(?:sealane: )?(.*?)(?:\nreason: (\w+))?$/s.exec(stderr.trim()) ?? []
  const reason = knownReason(code)
  return new UserError(`the broker of ${title} says: ${text}`, reason === undefined ? {} : { reason })
}

// The members that a broker on a cluster knows: the same commands, in its pod.

/** The part of the broker's store that is about members. */
export type Members = Pick<BrokerStore, 'members' | 'evict' | 'changeQuota' | 'waiting' | 'accept' | 'refuse'> & {
  rekey(init: RekeyInit): Promise<{ readonly id: string; readonly text: string; readonly expiresAtMs: number }>
}

export function withPodMembers<T>(
  target: BrokerInPod,
  context: CommandContext,
  work: (members: Members) => Promise<T>,
): Promise<T> {
  return withPodBroker(target, context, (ask) => work(podMembers(ask)))
}

interface Evicted {
  readonly id: Eviction['id']
  readonly evicted: string
  readonly repeated: boolean
}

/** Throws what askForJson() throws. */
export function podMembers(ask: AskBroker): Members {
  return {
    members: async () => {
      const words = ['cluster', 'list', '--all']
      return (await askForJson<{ readonly items: MemberSummary[] }>(ask, words, { looks: true })).items
    },
    evict: async ({ cluster, force }) => {
      const words = ['cluster', 'evict', cluster, ...(force ? ['--force'] : [])]
      const { id, evicted, repeated } = await askForJson<Evicted>(ask, words)
      return { id, evictedAtMs: Date.parse(evicted), repeated }
    },
    changeQuota: async ({ cluster, change }) => {
      const words = Object.entries(change).flatMap(([field, value]) => [`--${field}`, String(value)])
      return (await askForJson<{ readonly changed: boolean }>(ask, ['cluster', 'quota', cluster, ...words])).changed
    },
    waiting: async () =>
      (await askForJson<{ readonly items: WaitingSummary[] }>(ask, ['cluster', 'waiting'], { looks: true })).items.map(
        // A broker of an earlier release knows joins alone, and does not say so.
        (row) => ({ ...row, what: (row as Partial<WaitingSummary>).what ?? 'join' }),
      ),
    accept: (init) => askForJson<Answer>(ask, answerWords('accept', init)),
    refuse: (init) => askForJson<Answer>(ask, answerWords('refuse', init)),
    rekey: async ({ cluster, ttlMs }) => {
      const words = ttlMs === undefined ? [] : ['--ttl', `${Math.round(ttlMs / 1000)}s`]
      const made = await askForJson<MadeToken>(ask, ['cluster', 'rekey', cluster, ...words])
      return { id: made.id, text: made.token, expiresAtMs: Date.parse(made.expires) }
    },
  }
}

function answerWords(verb: 'accept' | 'refuse', { cluster, fingerprint }: AnswerInit): readonly string[] {
  return ['cluster', verb, cluster, ...(fingerprint === undefined ? [] : ['--fingerprint', fingerprint])]
}

// The tokens of a broker that runs on a cluster: the same commands, in its pod.

/** What can be done with tokens over any distance. */
export interface Tokens {
  create(init: TokenInit): Promise<{
    readonly id: string
    readonly text: string
    readonly expiresAtMs: number
  }>
  list(): Promise<TokenSummary[]>
  revoke(id: string): Promise<unknown>
}

export function withPodTokens<T>(
  target: BrokerInPod,
  context: CommandContext,
  work: (tokens: Tokens) => Promise<T>,
): Promise<T> {
  return withPodBroker(target, context, (ask) => work(podTokens(ask)))
}

/** A token, as it is printed. */
export interface MadeToken {
  readonly id: string
  readonly token: string
  readonly expires: string
}

/** Throws what askForJson() throws. */
export function podTokens(ask: AskBroker): Tokens {
  return {
    create: async ({ ttlMs, uses, cluster, allowedCIDRs = [], approve = false }) => {
      const words = [
        ...(ttlMs === undefined ? [] : ['--ttl', `${Math.round(ttlMs / 1000)}s`]),
        ...(uses === undefined ? [] : ['--uses', String(uses)]),
        ...(cluster === undefined ? [] : ['--cluster-id', cluster]),
        ...allowedCIDRs.flatMap((cidr) => ['--allow-cidr', cidr]),
        ...(approve ? ['--approve'] : []),
      ]
      const made = await askForJson<MadeToken>(ask, ['token', 'create', ...words])
      return { id: made.id, text: made.token, expiresAtMs: Date.parse(made.expires) }
    },
    list: async () => (await askForJson<{ readonly items: TokenSummary[] }>(ask, ['token', 'list'])).items,
    revoke: (id) => ask(['token', 'revoke', id]),
  }
}

// The clustersets of a broker that runs on a cluster: the same commands, in its pod.

/** What can be done with them over any distance. */
export interface Clustersets {
  list(): Promise<ClustersetSummary[]>
  create(init: CreateClustersetInit): Promise<Created>
  remove(name: string, init: { readonly force: boolean }): Promise<{ readonly repeated: boolean }>
}

export interface Created extends ClustersetSummary {
  readonly repeated: boolean
  /** A broker has opened it: tokens can be made. */
  readonly opened: boolean
}

/** Throws what askForJson() throws. */
export function podClustersets(ask: AskBroker): Clustersets {
  return {
    list: async () => {
      const words = ['broker', 'clusterset', 'list']
      try {
        return (await askForJson<{ readonly items: ClustersetSummary[] }>(ask, words)).items
      } catch (error) {
        // A broker of an earlier release has its own, and no other.
        if (error instanceof UserError && /unknown command/.test(error.message)) return []
        throw error
      }
    },
    create: ({ name, globalRange, clustersetIpRange }) => {
      const ranges = [
        ...(globalRange === undefined ? [] : ['--global-range', globalRange]),
        ...(clustersetIpRange === undefined ? [] : ['--clusterset-ip-range', clustersetIpRange]),
      ]
      return askForJson<Created>(ask, ['broker', 'clusterset', 'create', name, ...ranges])
    },
    remove: (name, { force }) =>
      askForJson<{ readonly repeated: boolean }>(ask, [
        ...['broker', 'clusterset', 'remove', name],
        ...(force ? ['--force'] : []),
      ]),
  }
}

// The certificate authority of a broker that runs on a cluster: the same commands, in its pod.

export type Authority = Omit<AuthorityStore, 'close'>

export function withPodAuthority<T>(
  target: BrokerInPod,
  context: CommandContext,
  work: (authority: Authority) => Promise<T>,
): Promise<T> {
  return withPodBroker(target, context, (ask) => work(podAuthority(ask)))
}

/** Throws what askForJson() throws. A file is one in the pod. */
export function podAuthority(ask: AskBroker): Authority {
  const step = (...words: string[]): Promise<AuthorityStep> =>
    askForJson<AuthorityStep>(ask, ['broker', 'ca', ...words])
  return {
    status: () => askForJson<AuthorityStatus>(ask, ['broker', 'ca', 'status']),
    rotate: ({ certificate, force }) => {
      const file = certificate === undefined ? [] : ['--certificate', certificate]
      return step('rotate', ...file, ...(force ? ['--force'] : []))
    },
    finish: ({ force }) => step('finish', ...(force ? ['--force'] : [])),
    abort: () => step('abort'),
  }
}

// The pods of a broker on a cluster.

/** A pod of the broker that is ready. Throws UserError when there is none; `flags` name the cluster in it. */
export async function brokerPod(...args: Parameters<typeof brokerPods>): Promise<string> {
  const [first] = await brokerPods(...args)
  return first
}

/** All that are ready, those that are being deleted last. Throws what brokerPod() throws. */
export async function brokerPods(
  admin: Pick<ClusterAdmin, 'title' | 'list'>,
  { namespace, flags }: { readonly namespace: string; readonly flags: string },
  signal: AbortSignal,
): Promise<readonly [string, ...string[]]> {
  const pods = await admin.list('v1', 'Pod', { namespace, labelSelector: selectorText('broker') }, signal)
  const going = (pod: ManifestObject): boolean => 'deletionTimestamp' in pod.metadata
  const ready = pods.filter(isReady).sort((a, b) => Number(going(a)) - Number(going(b)))
  const [first, ...others] = ready.map((pod) => refOf(pod).name)
  if (first !== undefined) return [first, ...others]
  const state = pods.length === 0 ? 'there is none' : 'it is not ready'
  throw new UserError(`${admin.title}: no broker to ask: ${state}`, {
    hint: `first: sealane broker deploy ${flags}`,
  })
}
