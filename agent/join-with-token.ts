/**
 * Joining from inside a real cluster: the key is made here and never leaves; whoever installs Sealane brings a token
 * and nothing else. Until it has worked, the one who waits is told what stands in the way.
 */
import type { ClusterApi } from '../cluster/cluster-api.ts'
import type { ClusterId } from '../model/ids.ts'
import { type ClusterFacts, type JoinResponse, RefusedError } from '../protocol/broker-api.ts'
import type { IdentityStore } from '../protocol/identity/identity-store.ts'
import { TokenError, parseJoinToken } from '../protocol/identity/token.ts'
import {
  type JoinAsk,
  type JoiningDesk,
  askToJoin,
  joinedIdentity,
  joinedMembership,
  ownCluster,
} from '../protocol/join.ts'
import { Backoff } from '../reconcile/backoff.ts'
import type { ComponentDeps } from '../runtime/component.ts'

export interface JoinWithTokenInit {
  readonly cluster: ClusterId
  readonly facts: ClusterFacts
  readonly identity: IdentityStore
  readonly desk: JoiningDesk
}

/** A token that was refused is looked at again this often: a new one may lie there. */
const LOOK_MS = 1000

/**
 * Resolves once this cluster has an identity; at once when it has one. Rejects only with the signal's reason, or when
 * the desk cannot be read or written.
 */
export async function joinWithToken(
  deps: ComponentDeps & { readonly cluster: ClusterApi },
  init: JoinWithTokenInit,
  signal: AbortSignal,
): Promise<void> {
  const { identity, desk } = init
  const backoff = new Backoff(deps.clock, { minMs: 500, maxMs: 10_000 })
  let state: string | undefined = 'joins the clusterset'
  deps.status.readiness('join', () => state)
  let refused: string | undefined
  while ((await identity.read()) === undefined) {
    signal.throwIfAborted()
    const token = await desk.token()
    if (token === undefined || (token === refused && (await desk.isRefused(token)))) {
      if (token === undefined) state = `waits for a join token in ${identity.place}`
      await deps.clock.sleep(LOOK_MS, signal)
      continue
    }
    const failure = await tryToJoin(deps, init, token, signal)
    if (failure === undefined) break
    state = failure.message
    refused = isFinal(failure) ? token : undefined
    deps.logger.warn('not joined', { reason: failure.message, refused: refused !== undefined })
    await desk.problem({ text: failure.message, ...(refused === undefined ? {} : { refused }) })
    if (refused === undefined) await deps.clock.sleep(backoff.next(), signal)
  }
  state = undefined
}

/** Asking again with a token that the broker refused changes nothing; a broker that is away comes back. */
function isFinal(failure: Error): boolean {
  return failure instanceof RefusedError || failure instanceof TokenError
}

async function tryToJoin(
  deps: ComponentDeps & { readonly cluster: ClusterApi },
  init: JoinWithTokenInit,
  text: string,
  signal: AbortSignal,
): Promise<Error | undefined> {
  let ask: JoinAsk
  let response: JoinResponse
  try {
    const token = parseJoinToken(text.trim(), deps.clock.now())
    ask = { token, cluster: init.cluster, key: await init.desk.key(), facts: init.facts }
    response = await askToJoin(ask, deps, signal)
  } catch (error) {
    signal.throwIfAborted()
    return error instanceof Error ? error : new Error(String(error))
  }
  // The identity comes last: what breaks off here is asked for again, with the same key and the same token.
  await deps.cluster.apply(ownCluster(init.cluster, init.facts, response), signal)
  await deps.cluster.apply(joinedMembership(init.cluster, response), signal)
  await init.identity.write(joinedIdentity(ask, response))
  deps.logger.info('joined', { cluster: init.cluster, clusterset: response.clusterset })
  return undefined
}
