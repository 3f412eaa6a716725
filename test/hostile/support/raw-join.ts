/** Joins by a client that checks nothing itself. */
import { X509Certificate, createPrivateKey, generateKeyPairSync } from 'node:crypto'
import { openBrokerStore } from '../../support/broker-store.ts'
import { BrokerService, type ClusterFacts, JoinResponse } from '../../../protocol/gen/broker.ts'
import { parseJoinToken } from '../../../protocol/identity/token.ts'
import { createCsr } from '../../../protocol/identity/x509.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { type RawBroker, type RawIdentity, RawRefusal, callUnary, openChannel } from './raw-channel.ts'

export const NO_FACTS: ClusterFacts = {
  podCidrs: ['10.42.0.0/16'],
  serviceCidrs: [],
  neededCidrs: [],
  labels: [],
  version: 'raw',
}

/** A new key as PEM. */
export function newKey(): string {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  return privateKey.export({ type: 'pkcs8', format: 'pem' })
}

export async function csrOf(key: string): Promise<Buffer> {
  return Buffer.from(await createCsr(createPrivateKey(key)))
}

export function certificatePem(der: Uint8Array = Buffer.alloc(0)): string {
  return new X509Certificate(der).toString()
}

/** The secret of a token that is made directly in the store of the running broker. */
export async function tokenSecret(state: string, cluster?: string): Promise<string> {
  const store = await openBrokerStore(state, new SystemClock())
  try {
    const { text } = await store.create(cluster === undefined ? {} : { cluster })
    return parseJoinToken(text, Date.now()).secret()
  } finally {
    await store.close()
  }
}

export interface JoinInit {
  readonly facts?: ClusterFacts
  /** The key as PEM. Absent: a new one is made. */
  readonly key?: string
  /** The time of the joining machine. */
  readonly nowMs?: number
}

/** The bytes of a Join request. */
export async function joinBytes(secret: string, cluster: string, init: JoinInit = {}): Promise<Buffer> {
  const { facts = NO_FACTS, key = newKey(), nowMs = Date.now() } = init
  return BrokerService.join.requestSerialize({ secret, cluster, csr: await csrOf(key), facts, nowMs })
}

export interface Joined {
  readonly identity: RawIdentity
  readonly response: JoinResponse
}

/** Joins with this secret. Throws RawRefusal. */
export async function joinWith(
  broker: RawBroker,
  secret: string,
  cluster: string,
  init: Omit<JoinInit, 'key'> = {},
): Promise<Joined> {
  const key = newKey()
  const request = await joinBytes(secret, cluster, { ...init, key })
  const channel = openChannel(broker)
  const answer = await callUnary(channel, BrokerService.join.path, request)
  channel.close()
  if (!Buffer.isBuffer(answer)) throw new RawRefusal(answer)
  const response = JoinResponse.decode(answer)
  const [cert, ca] = [response.certificate, response.caBundle[0]].map((der) => certificatePem(der))
  return { identity: { cluster, key, cert: cert ?? '', ca: ca ?? '' }, response }
}

/** Joins with a token made for the cluster in the store of the running broker. Throws RawRefusal. */
export async function rawJoin(broker: RawBroker, cluster: string, facts = NO_FACTS): Promise<RawIdentity> {
  const secret = await tokenSecret(broker.state, cluster)
  return (await joinWith(broker, secret, cluster, { facts })).identity
}
