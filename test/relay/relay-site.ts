/** A relay in this process, clusters with certificates, and their gateways. */
import { type KeyObject, createPublicKey, diffieHellman, generateKeyPairSync } from 'node:crypto'
import type { Test } from 'tap'
import { createKey } from '../../protocol/identity/keys.ts'
import { createCa, createCsr, createServerCertificate, issueMemberCertificate } from '../../protocol/identity/x509.ts'
import { certificateToPem } from '../../protocol/identity/certificates.ts'
import { keyToPem } from '../../protocol/identity/keys.ts'
import { type TicketInit, signTicket } from '../../protocol/tickets/tickets.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { type RelayConfig, runRelay } from '../../relay/main.ts'
import { type Challenge, type Proof, endName, proofMac } from '../../runtime/datagrams/datagrams.ts'
import { type RelayConnectionInit, connectRelay, pinOf } from '../../runtime/datagrams/relay-connection.ts'
import { createLogger } from '../../runtime/logging/logging.ts'
import { createMetrics } from '../../runtime/metrics/metrics.ts'
import { StatusBoard } from '../../runtime/runtime.ts'

export const clock = new SystemClock()
export const never = new AbortController().signal
const SPKI = Buffer.from('302a300506032b656e032100', 'hex')

export interface Authority {
  readonly clusterset: string
  readonly certificate: Uint8Array
  readonly key: KeyObject
}

export async function authority(clusterset: string): Promise<Authority> {
  const { certificate, key } = await createCa({ clusterset, key: createKey(), nowMs: clock.now() })
  return { clusterset, certificate, key }
}

/** A gateway of a cluster, with an identity of its own. */
export interface Gateway {
  readonly name: string
  readonly identity: Buffer
  readonly ticket: Buffer
  readonly prove: (challenge: Challenge) => Proof
  /** The secret that it shares with the holder of a public key, in base64. */
  readonly agree: (publicKey: string) => Buffer
}

export async function gateway(by: Authority, cluster: string, stated: Partial<TicketInit> = {}): Promise<Gateway> {
  const key = createKey()
  const csr = await createCsr(key)
  const init = { csr, cluster: cluster as never, clusterset: by.clusterset, nowMs: clock.now() }
  const certificate = await issueMemberCertificate(by, init)
  const pair = generateKeyPairSync('x25519')
  const identity = pair.publicKey.export({ type: 'spki', format: 'der' }).subarray(SPKI.length)
  const nowMs = clock.now()
  const ticket = signTicket(
    { identities: [identity.toString('base64')], issuedMs: nowMs, untilMs: nowMs + 3_600_000, ...stated },
    { key, certificate },
  )
  const agree = (text: string): Buffer => {
    const der = Buffer.concat([SPKI, Buffer.from(text, 'base64')])
    const publicKey = createPublicKey({ key: der, format: 'der', type: 'spki' })
    return diffieHellman({ privateKey: pair.privateKey, publicKey })
  }
  const prove = (challenge: Challenge): Proof => {
    const secret = agree(challenge.key.toString('base64'))
    return { identity, ticket, mac: proofMac(secret, challenge, { identity, ticket }) }
  }
  return { name: endName(by.clusterset, identity), identity, ticket, prove, agree }
}

export interface RunningRelay {
  readonly url: URL
  readonly pin: string
  readonly port: number
  readonly metrics: () => Promise<string>
  readonly stop: () => Promise<void>
}

export async function relay(
  t: Pick<Test, 'teardown'>,
  authorities: readonly Authority[],
  more: Partial<RelayConfig> & { readonly plain?: true } = {},
): Promise<RunningRelay> {
  const ca = authorities[0] ?? (await authority('any'))
  const server = await createServerCertificate(ca, { clusterset: ca.clusterset, key: createKey(), nowMs: clock.now() })
  const stop = new AbortController()
  const metrics = createMetrics('relay')
  const listening = Promise.withResolvers<number>()
  const { plain, ...rest } = more
  const tls = { certificate: certificateToPem(server.certificate), key: keyToPem(server.key) }
  const ended = runRelay(
    {
      ...{ clock, metrics, status: new StatusBoard(), onListening: listening.resolve },
      logger: createLogger('relay', 'silent'),
    },
    {
      ...{ host: '127.0.0.1', port: 0, authorities: () => Promise.resolve(authorities.map((one) => one.certificate)) },
      ...(plain === undefined ? { tls } : {}),
      ...rest,
    },
    stop.signal,
  )
  ended.catch(listening.reject)
  const port = await listening.promise
  const end = async (): Promise<void> => {
    stop.abort()
    await ended
  }
  t.teardown(end)
  const pin = pinOf(createPublicKey(server.key).export({ type: 'spki', format: 'der' }))
  const url = new URL(plain === undefined ? `wss://127.0.0.1:${port}/` : `ws://127.0.0.1:${port}/`)
  return { url, pin, port, metrics: () => metrics.text(), stop: end }
}

/** A connection that remembers what it got. */
export async function connected(
  by: Gateway,
  to: Pick<RunningRelay, 'url' | 'pin'>,
  more: Partial<RelayConnectionInit> = {},
) {
  const got: string[] = []
  let present: readonly string[] = []
  const connection = await connectRelay(
    {
      ...{ clock, url: to.url, proxies: () => undefined, prove: by.prove },
      ...(to.url.protocol === 'ws:' ? {} : { pin: to.pin }),
      onDatagram: ({ end, bytes }) => got.push(`${end} ${bytes.toString()}`),
      onPresent: (ends) => (present = ends),
      ...more,
    },
    never,
  )
  return { connection, got, present: () => present }
}
