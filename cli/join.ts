/** Joining: key and request made here, certificate from the broker, everything written before success is claimed. */
import type { ClusterId } from '../model/ids.ts'
import { type Cluster, MEMBERSHIP_NAME, type Membership } from '../model/objects.ts'
import { type JoinResponse, RefusedError } from '../protocol/broker-api.ts'
import { IdentityFileError, readMemberIdentity, writeMemberIdentity } from '../protocol/identity/member-files.ts'
import { type JoinToken, parseJoinToken } from '../protocol/identity/token.ts'
import { createCsr } from '../protocol/identity/x509.ts'
import { connectForJoin } from '../protocol/transport/grpc-client.ts'
import type { Clock } from '../reconcile/clock.ts'
import { createLogger } from '../runtime/pino-logger.ts'
import { UserError } from '../runtime/user-error.ts'
import { sealaneVersion } from './context.ts'
import { type JoiningKey, openJoiningKey } from './joining-key.ts'
import type { OpenSite } from './site.ts'

export interface JoinInit {
  readonly token: string
  readonly clusterId: ClusterId
  readonly clock: Clock
  readonly signal: AbortSignal
  /** Hears what the user should know besides the result. */
  readonly say: (text: string) => void
}

export interface Joined {
  readonly cluster: string
  readonly clusterset: string
  readonly globalCIDRs: readonly string[]
}

/**
 * Throws TokenError, RefusedError, CertificateError, BrokerUnreachableError, UserError. A failed join leaves the site
 * as it was; where the broker's answer was lost, the same command with the same token goes on.
 */
export async function joinClusterset(site: OpenSite, init: JoinInit): Promise<Joined> {
  const { cluster, config } = site
  const { clusterId, clock, signal } = init
  const token = parseJoinToken(init.token, clock.now())
  await checkNotElsewhere(config.identity, token, init)
  const joining = await openJoiningKey(config.identity)
  const response = await askBroker(site, { ...init, token, joining })
  await cluster.apply(ownCluster(site, clusterId, response), signal)
  await cluster.apply(membership(clusterId, response), signal)
  await writeMemberIdentity(config.identity, {
    cluster: clusterId,
    clusterset: response.clusterset,
    brokerAddresses: token.addresses,
    observedAddress: response.observedAddress,
    key: joining.key,
    certificate: response.certificate,
    caBundle: response.caBundle,
  })
  await joining.forget()
  return { cluster: clusterId, clusterset: response.clusterset, globalCIDRs: response.globalCIDRs }
}

/** Joining again as the same cluster of the same clusterset is how a lost or damaged identity is mended. */
async function checkNotElsewhere(directory: string, token: JoinToken, { clusterId, say }: JoinInit): Promise<void> {
  const known = await readMemberIdentity(directory).catch((error: unknown) => {
    if (!(error instanceof IdentityFileError)) throw error
    say(`the identity of this site is replaced: ${error.message}`)
    return undefined
  })
  if (known === undefined || (known.cluster === clusterId && known.clusterset === token.clusterset)) return
  throw new UserError(`this site is already joined as ${known.cluster} in clusterset ${known.clusterset}`, {
    hint: 'leave first: sealane leave',
  })
}

async function askBroker(
  { config }: OpenSite,
  { token, joining, clusterId, clock, signal }: Omit<JoinInit, 'token'> & { token: JoinToken; joining: JoiningKey },
): Promise<JoinResponse> {
  let asked = false
  try {
    const client = await connectForJoin({ token, clock, logger: createLogger('cli', 'warn') }, signal)
    const { podCIDRs, serviceCIDRs, labels } = config
    const facts = { podCIDRs, serviceCIDRs, labels, version: sealaneVersion() }
    const request = { secret: token.secret(), cluster: clusterId, csr: await createCsr(joining.key), facts }
    try {
      asked = true
      return await client.join({ ...request, nowMs: clock.now() }, signal)
    } finally {
      client.close()
    }
  } catch (error) {
    // Only then is it certain that the broker has not taken the request.
    if (!asked || error instanceof RefusedError) await joining.forget()
    throw error
  }
}

function ownCluster({ config }: OpenSite, id: ClusterId, response: JoinResponse): Cluster {
  return {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'Cluster',
    metadata: { name: id },
    spec: {
      id,
      index: response.clusterIndex,
      podCIDRs: config.podCIDRs,
      serviceCIDRs: config.serviceCIDRs,
      globalCIDRs: response.globalCIDRs,
      labels: config.labels,
    },
  }
}

function membership(id: ClusterId, response: JoinResponse): Membership {
  const { clusterset, globalRange, clustersetIpRange } = response
  return {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'Membership',
    metadata: { name: MEMBERSHIP_NAME },
    spec: { clusterId: id, phase: 'joined', clusterset, globalRange, clustersetIpRange },
  }
}
