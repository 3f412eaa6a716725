/** Joining, for the holder of a token: `sealane join` on a plain site, the agent in a real cluster. */
import type { KeyObject } from 'node:crypto'
import type { ClusterId } from '../model/ids.ts'
import { ownCluster, ownClusterProblem, rangeProblem } from '../model/addresses/own-cluster.ts'
import type { Clock } from '../reconcile/clock.ts'
import type { Logger } from '../runtime/logging/logger.ts'
import type { ClusterFacts, JoinLook, JoinResponse } from './broker-api.ts'
import { ProtocolError } from './broker-client.ts'
import { certificateProblem } from './identity/certificate-answer.ts'
import type { ReasonCode } from '../model/reasons/reasons.ts'
import type { MemberIdentity } from './identity/member-files.ts'
import { readCertificate } from './identity/read-certificate.ts'
import type { JoinToken } from './identity/token.ts'
import { createCsr } from './identity/x509.ts'
import { connectForJoin } from './transport/grpc-client.ts'

/** The join request that an installer left in the cluster, and where it reads the answer. */
export interface JoinStore {
  /** Undefined while nobody has brought one. */
  token(): Promise<string | undefined>
  /** Made and kept before it is given, the same one until the join is over. */
  key(): Promise<KeyObject>
  /** Takes a token away that nobody needs any more. False where none lies there. */
  dropToken(): Promise<boolean>
  /** Takes the place of what was reported before; undefined: all is well. */
  problem(problem: JoinProblem | undefined): Promise<void>
  /** True while the broker is to be asked what the join changes for other members, and nothing is to be changed. */
  asksFirst(): Promise<boolean>
  /** True while problem() says of this token that it is refused; the installer may take that away again. */
  isRefused(token: string): Promise<boolean>
}

export interface JoinProblem {
  /** A sentence. */
  readonly text: string
  /** Its stable name (model/reasons/). */
  readonly reason?: ReasonCode
  /** The token that will not work, however often it is shown; absent where time may mend it. */
  readonly refused?: string
}

export interface JoinAsk {
  readonly token: JoinToken
  readonly cluster: ClusterId
  /** Kept by the caller before asking: where the answer is lost, the broker takes the token again from the same key. */
  readonly key: KeyObject
  readonly facts: ClusterFacts
  /** Called when the broker is about to be asked; before that, the token is certainly unspent. */
  readonly onAsking?: () => void
}

/**
 * Trades a token for a certificate. Where an operator has to accept first, the caller is to keep the key and to ask
 * again: RefusedError with the reason JoinAwaitsApproval (approval.ts). Throws CertificateError, BrokerUnreachableError, RefusedError, and ProtocolError
 * for an answer that is no member's, or would make of this cluster what it has not stated.
 */
export async function askToJoin(
  { token, cluster, key, facts, onAsking }: JoinAsk,
  { clock, logger }: { readonly clock: Clock; readonly logger: Logger },
  signal: AbortSignal,
): Promise<JoinResponse> {
  const client = await connectForJoin({ token, clock, logger }, signal)
  try {
    const request = { secret: token.secret(), cluster, csr: await createCsr(key), facts, waits: true }
    onAsking?.()
    const response = await client.join({ ...request, nowMs: clock.now() }, signal)
    const problem = answerProblem({ cluster, key, facts }, response, clock.now())
    if (problem !== undefined) throw new ProtocolError(`the broker's answer cannot be used: ${problem}`)
    return response
  } finally {
    client.close()
  }
}

/** A person waits for it. */
const LOOK_MS = 5000

/**
 * What a join with this token would bring; changes nothing and does not spend it. Throws what askToJoin throws, after
 * five seconds at most; a broker of an older release refuses the field `csr`.
 */
export async function lookAtJoin(
  { token, cluster, facts }: Omit<JoinAsk, 'key' | 'onAsking'>,
  { clock, logger }: { readonly clock: Clock; readonly logger: Logger },
  signal: AbortSignal,
): Promise<JoinLook> {
  const late = new AbortController()
  const cancel = clock.setTimer(LOOK_MS, () =>
    late.abort(new Error(`the broker did not answer in ${LOOK_MS / 1000} s`)),
  )
  const limited = AbortSignal.any([signal, late.signal])
  try {
    const client = await connectForJoin({ token, clock, logger }, limited)
    try {
      return await client.lookAtJoin({ secret: token.secret(), cluster, facts, nowMs: clock.now() }, limited)
    } finally {
      client.close()
    }
  } finally {
    cancel()
  }
}

function answerProblem(
  { cluster, key, facts }: Pick<JoinAsk, 'cluster' | 'key' | 'facts'>,
  response: JoinResponse,
  nowMs: number,
): string | undefined {
  const { clusterset, globalRange, clustersetIpRange } = response
  const own = { id: cluster, stated: facts, local: undefined, globalRange }
  return (
    certificateProblem({ cluster, clusterset, key }, response, nowMs) ??
    rangeProblem('globalRange', globalRange, facts) ??
    rangeProblem('clustersetIpRange', clustersetIpRange, facts) ??
    ownClusterProblem(ownCluster(cluster, facts, response).spec, own)
  )
}

/** What is kept of a broker's yes. */
export function joinedIdentity({ token, cluster, key }: JoinAsk, response: JoinResponse): MemberIdentity {
  return {
    cluster,
    clusterset: response.clusterset,
    brokerAddresses: token.addresses,
    observedAddress: response.observedAddress,
    observedCounts: response.observedCounts,
    ranges: { globalRange: response.globalRange, clustersetIpRange: response.clustersetIpRange },
    key,
    certificate: response.certificate,
    caBundle: response.caBundle,
  }
}

/** When its certificate ends: past that it opens no door, and a token has to make another. */
export function endOfIdentity({ certificate }: MemberIdentity): number {
  return readCertificate(certificate).notAfterMs
}
