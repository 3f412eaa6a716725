/** Joining: key and request made here, certificate from the broker, everything written before success is claimed. */
import type { ClusterId } from '../model/ids.ts'
import { type Cluster, MEMBERSHIP_NAME, type Membership } from '../model/objects.ts'
import type { JoinResponse } from '../protocol/broker-api.ts'
import { createKey } from '../protocol/identity/keys.ts'
import { readMemberIdentity, writeMemberIdentity } from '../protocol/identity/member-files.ts'
import { parseJoinToken } from '../protocol/identity/token.ts'
import { createCsr } from '../protocol/identity/x509.ts'
import { connectForJoin } from '../protocol/transport/grpc-client.ts'
import type { Clock } from '../reconcile/clock.ts'
import { createLogger } from '../runtime/pino-logger.ts'
import { UserError } from '../runtime/user-error.ts'
import { sealaneVersion } from './context.ts'
import type { OpenSite } from './site.ts'

export interface JoinInit {
  readonly token: string
  readonly clusterId: ClusterId
  readonly clock: Clock
  readonly signal: AbortSignal
}

export interface Joined {
  readonly cluster: string
  readonly clusterset: string
  readonly globalCIDRs: readonly string[]
}

/** Throws TokenError, RefusedError, BrokerUnreachableError, UserError; a failed join leaves the site as it was. */
export async function joinClusterset(
  site: OpenSite,
  { token: text, clusterId, clock, signal }: JoinInit,
): Promise<Joined> {
  const { config, cluster } = site
  const token = parseJoinToken(text, clock.now())
  const directory = config.identity
  const known = await readMemberIdentity(directory)
  if (known !== undefined && known.cluster !== clusterId) {
    throw new UserError(`this site is already joined as ${known.cluster} in clusterset ${known.clusterset}`, {
      hint: 'leave first: sealane leave',
    })
  }
  const key = createKey()
  const client = await connectForJoin({ token, clock, logger: createLogger('cli', 'warn') }, signal)
  let response: JoinResponse
  try {
    response = await client.join(
      {
        secret: token.secret(),
        cluster: clusterId,
        csr: await createCsr(key),
        facts: {
          podCIDRs: config.podCIDRs,
          serviceCIDRs: config.serviceCIDRs,
          labels: config.labels,
          version: sealaneVersion(),
        },
        nowMs: clock.now(),
      },
      signal,
    )
  } finally {
    client.close()
  }
  await cluster.apply(ownCluster(site, clusterId, response), signal)
  await cluster.apply(membership(clusterId, response), signal)
  await writeMemberIdentity(directory, {
    cluster: clusterId,
    clusterset: response.clusterset,
    brokerAddresses: token.addresses,
    observedAddress: response.observedAddress,
    key,
    certificate: response.certificate,
    caBundle: response.caBundle,
  })
  return { cluster: clusterId, clusterset: response.clusterset, globalCIDRs: response.globalCIDRs }
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
