/**
 * The console that runs in a cluster, and the way to it through the API server's proxy. A reader is whoever may make a
 * token of ServiceAccount sealane-console-reader. The token counts for the console alone and expires; neither the
 * browser nor any file sees it.
 */
import {
  ANSWER_HEADER,
  type Forward,
  type ForwardedAnswer,
  Readers,
  TOKEN_HEADER,
  readPageFiles,
  runConsole,
  withConsoleProcess,
} from '../../../compose/console/console.ts'
import {
  CONSOLE_AUDIENCE,
  CONSOLE_PORT_NAME,
  CONSOLE_READER,
  accountName,
  objectName,
} from '../../../install/values/values.ts'
import { type DynamicClient, KubeError } from '../../../kubeapi/kube/kube.ts'
import { SYSTEM_NAMESPACE } from '../../../model/model.ts'
import { type Clock, SystemClock, untilDone } from '../../../reconcile/reconcile.ts'
import { type HostPort, UserError, messageOf } from '../../../runtime/runtime.ts'
import type { LogThreshold } from '../../../runtime/logging/logging.ts'
import {
  type ClusterAdmin,
  type CommandContext,
  type KubeTarget,
  targetFlags,
  withAdmin,
  withinTime,
} from '../../context/context.ts'
import { withKubeSource } from './console-source.ts'

// The command that a reader runs.

/** The least that an API server gives. */
const TOKEN_SECONDS = 600
const RENEW_MS = (TOKEN_SECONDS / 2) * 1000

export interface ClusterConsole {
  readonly kube: KubeTarget
  readonly timeoutMs: number
}

/**
 * Runs `work` with the way to the console in a cluster. Throws UserError if no console is installed, if it does not
 * answer, or if this user may not read it.
 */
export function withClusterConsole(
  { kube, timeoutMs }: ClusterConsole,
  context: CommandContext,
  work: (forward: Forward) => Promise<void>,
): Promise<void> {
  const clock = new SystemClock()
  return withAdmin(kube, clock, context, async ({ api, admin }) => {
    const forward = forwardToCluster({ clock, dynamic: api.dynamic })
    try {
      const { body } = await withinTime(context.signal, timeoutMs, (limited) => forward('/api/state', limited))
      body.destroy()
    } catch (error) {
      throw notThere(error, admin.title, targetFlags(kube, admin.contextName))
    }
    await work(forward)
  })
}

function notThere(error: unknown, title: string, flags: string): unknown {
  if (!(error instanceof KubeError)) return error
  if (error.code === 'NotFound') {
    const hint = `install it: sealane join ${flags} --console`
    return new UserError(`${title}: no console is installed`, { hint, cause: error })
  }
  if (error.status === 503) {
    return new UserError(`${title}: the console does not run: ${error.message}`, {
      hint: `see: kubectl -n ${SYSTEM_NAMESPACE} describe deployment ${objectName('console')}`,
      cause: error,
    })
  }
  return error
}

interface ForwardDeps {
  readonly clock: Clock
  readonly dynamic: Pick<DynamicClient, 'requestToken' | 'openService'>
}

/** Asks the console in the cluster, with a token that is renewed in time, and once after it was refused. */
export function forwardToCluster({ clock, dynamic }: ForwardDeps): Forward {
  let kept: { readonly token: Promise<string>; readonly sinceMs: number } | undefined
  const tokenNow = (): Promise<string> => {
    const now = clock.monotonic()
    if (kept === undefined || now - kept.sinceMs >= RENEW_MS) {
      // All callers wait for the same one, so that no caller's end ends it.
      const init = { namespace: SYSTEM_NAMESPACE, account: CONSOLE_READER, audience: CONSOLE_AUDIENCE }
      const token = dynamic.requestToken({ ...init, seconds: TOKEN_SECONDS }).then((made) => made.token)
      const mine = { token, sinceMs: now }
      kept = mine
      token.catch(() => {
        if (kept === mine) kept = undefined
      })
    }
    return kept.token
  }
  const ask = async (path: string, signal: AbortSignal): Promise<ForwardedAnswer> => {
    const headers = { [TOKEN_HEADER]: await tokenNow() }
    const page = { namespace: SYSTEM_NAMESPACE, name: objectName('console'), port: CONSOLE_PORT_NAME, path, headers }
    return dynamic.openService({ ...page, scheme: 'https' }, (answer) => ANSWER_HEADER in answer.headers, signal)
  }
  return async (path, signal) => {
    const first = await ask(path, signal)
    if (first.status !== 401) return first
    first.body.destroy()
    kept = undefined
    const second = await ask(path, signal)
    if (second.status !== 401) return second
    second.body.destroy()
    throw new UserError('the console in the cluster does not accept the token that the API server made for it', {
      hint: `see its log: kubectl -n ${SYSTEM_NAMESPACE} logs deployment/${objectName('console')}`,
    })
  }
}

// The process in the pod.

export interface ServeConsoleInit {
  /** Empty in a pod. */
  readonly kube: KubeTarget
  readonly listen: HostPort
  readonly statusListen: readonly string[]
  readonly logLevel: LogThreshold
  readonly everyMs: number
  readonly timeoutMs: number
}

const NO_CALLS = 'The console in the cluster runs no command in pods, so it reads no calls. See: sealane flows'
/** Listing all objects costs the API server something, and a page that opens is shown the state of now after a moment. */
const IDLE_MS = 300_000
const AGAIN = { minMs: 1000, maxMs: 30_000 }

/** Serves until the signal aborts. A cluster that cannot be read yet is tried again. Throws UserError without a page. */
export async function serveClusterConsole(init: ServeConsoleInit, context: CommandContext): Promise<void> {
  const page = readPageFiles()
  const { kube, listen, everyMs, timeoutMs } = init
  await withConsoleProcess(init, async ({ clock, logger, tls }, started) => {
    const inPod = { ...context, logger }
    const serve = (): Promise<void> =>
      withAdmin(kube, clock, inPod, ({ admin }) => {
        const readers = readersOf({ clock, admin })
        const facts = { flags: targetFlags({}), pages: [], everyMs, timeoutMs, clock, noCalls: NO_CALLS }
        const onOpen = (address: string): void => {
          logger.info('the console is up', { address })
          started()
        }
        return withKubeSource(kube, facts, inPod, (source) =>
          runConsole(
            { source: { ...source, idleMs: IDLE_MS }, page, listen, tls, readers, clock, onOpen },
            context.signal,
          ),
        )
      })
    const onFailure = (error: unknown): void =>
      logger.warn('the cluster cannot be shown; retrying', { reason: 'RoundFailed', why: messageOf(error) })
    await untilDone(serve, { clock, backoff: AGAIN, onFailure }, context.signal)
  })
}

interface ReviewDeps {
  readonly clock: Clock
  readonly admin: Pick<ClusterAdmin, 'create'>
}

/** Readers whose tokens this API server reviews. */
export function readersOf({ clock, admin }: ReviewDeps): Readers {
  return new Readers({
    clock,
    isCandidate: (token) => statesReader(token, clock.now()),
    review: (token, signal) => isReader(admin, token, signal),
  })
}

/**
 * An API server that is asked for it makes a token that lives for a year. Its review accepts that token also after the
 * right to make it was taken away, so only those that end soon count.
 */
const MOST_TOKEN_SECONDS = 3600
/** By how much the clocks of the API server and this node may differ. */
const MAX_SKEW_MS = 60_000

/**
 * Whether a token states that it is one of a reader and lives for an hour at most. Whether that is true, its review
 * says.
 */
export function statesReader(token: string, nowMs: number): boolean {
  const { aud, sub, iat, exp } = claimsOf(token)
  const audiences: readonly unknown[] = Array.isArray(aud) ? aud : [aud]
  return (
    audiences.includes(CONSOLE_AUDIENCE) &&
    sub === accountName(SYSTEM_NAMESPACE, CONSOLE_READER) &&
    typeof iat === 'number' &&
    typeof exp === 'number' &&
    exp - iat <= MOST_TOKEN_SECONDS &&
    exp * 1000 > nowMs - MAX_SKEW_MS
  )
}

/** The claims of a JSON Web Token (RFC 7519), each of any type. Empty if it has none. */
function claimsOf(token: string): Readonly<Record<string, unknown>> {
  try {
    const claims: unknown = JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString())
    return typeof claims === 'object' && claims !== null ? { ...claims } : {}
  } catch {
    return {}
  }
}

interface TokenReviewStatus {
  readonly authenticated?: unknown
  readonly user?: { readonly username?: unknown }
  readonly audiences?: readonly unknown[]
}

/** Asks the API server (TokenReview, authentication.k8s.io/v1). Rejects if there is no answer. */
async function isReader(admin: Pick<ClusterAdmin, 'create'>, token: string, signal: AbortSignal): Promise<boolean> {
  const review = {
    apiVersion: 'authentication.k8s.io/v1',
    kind: 'TokenReview',
    metadata: { name: '' },
    spec: { token, audiences: [CONSOLE_AUDIENCE] },
  }
  const { status } = (await admin.create(review, { dryRun: false }, signal)) as { readonly status?: TokenReviewStatus }
  return (
    status?.authenticated === true &&
    status.user?.username === accountName(SYSTEM_NAMESPACE, CONSOLE_READER) &&
    // Without it, the API server knows no audiences, and the token would be one for the API server itself.
    status.audiences?.includes(CONSOLE_AUDIENCE) === true
  )
}
