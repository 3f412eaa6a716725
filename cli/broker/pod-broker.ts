/** Access to a broker in a cluster: runs the `sealane` commands in its pod, on its database. */
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

/** Exit statuses from here on mean that a signal ended the process, because its pod is being deleted. */
const KILLED = 128

/** A broker in a cluster, and one of its clustersets. */
export interface BrokerInPod extends KubeTarget {
  /** Undefined for the broker's own clusterset. */
  readonly clusterset?: string | undefined
}

/**
 * Runs `sealane WORDS` in the broker's pod and returns its stdout. Throws UserError with its error message if it fails.
 */
export type AskBroker = (words: readonly string[], init?: AskInit) => Promise<string>

export interface AskInit {
  /** The command is read-only, so the next replica runs it if one replica cannot. */
  readonly looks?: boolean
}

/** Returns the JSON output of the command. Throws UserError if the output is not JSON, as with an earlier release. */
export async function askForJson<T>(ask: AskBroker, words: readonly string[], init?: AskInit): Promise<T> {
  const text = await ask([...words, '-o', 'json'], init)
  try {
    return JSON.parse(text) as T
  } catch (cause) {
    // The message does not contain the output, which may be a token.
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

/** `flags` identify the cluster in messages. */
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
 * Returns the result of the first pod that can run the command, else that of the last one, and throws what the last one
 * throws. A pod on a node that has died still counts as ready for a while.
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

/** The error of a command that failed in the broker's pod, with its message and the name of its reason. */
export function refusedInPod({ title }: Pick<ClusterAdmin, 'title'>, stderr: string): UserError {
  const [, text = '', code] = /^(?:sealane: )?(.*?)(?:\nreason: (\w+))?$/s.exec(stderr.trim()) ?? []
  const reason = knownReason(code)
  return new UserError(`the broker of ${title} says: ${text}`, reason === undefined ? {} : { reason })
}

// The members of a broker in a cluster, through the same commands in its pod.

/** The operations of the broker's store on members. */
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
        // A broker of an earlier release has only join requests and does not report `what`.
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

// The tokens of a broker in a cluster, through the same commands in its pod.

/** The operations on tokens, for a local broker or one in a cluster. */
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

/** A token in the JSON output of the command. */
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

// The clustersets of a broker in a cluster, through the same commands in its pod.

/** The operations on clustersets, for a local broker or one in a cluster. */
export interface Clustersets {
  list(): Promise<ClustersetSummary[]>
  create(init: CreateClustersetInit): Promise<Created>
  remove(name: string, init: { readonly force: boolean }): Promise<{ readonly repeated: boolean }>
}

export interface Created extends ClustersetSummary {
  readonly repeated: boolean
  /** True if a broker has opened the clusterset, so that tokens can be created. */
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
        // A broker of an earlier release has only its own clusterset.
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

// The certificate authority of a broker in a cluster, through the same commands in its pod.

export type Authority = Omit<AuthorityStore, 'close'>

export function withPodAuthority<T>(
  target: BrokerInPod,
  context: CommandContext,
  work: (authority: Authority) => Promise<T>,
): Promise<T> {
  return withPodBroker(target, context, (ask) => work(podAuthority(ask)))
}

/** Throws what askForJson() throws. File names refer to files in the pod. */
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

// Finds the pods of a broker in a cluster.

/**
 * A pod of the broker that is ready. Throws UserError if there is none; `flags` identify the cluster in the message.
 */
export async function brokerPod(...args: Parameters<typeof brokerPods>): Promise<string> {
  const [first] = await brokerPods(...args)
  return first
}

/** All pods that are ready, with those that are being deleted last. Throws what brokerPod() throws. */
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
