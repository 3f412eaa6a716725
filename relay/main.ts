/**
 * A relay on port 443: gateways that nothing else joins exchange the datagrams of their links through it, over
 * WebSockets. It knows the authorities of the clustersets that it serves, and nothing else: no key of a link, and no
 * plaintext. It runs on any host, and needs neither rights nor a broker.
 */
import { createPrivateKey, createPublicKey, diffieHellman, generateKeyPairSync, randomBytes } from 'node:crypto'
import { type Holder, type TicketProblem, openTicket } from '../protocol/tickets/tickets.ts'
import {
  type Challenge,
  DatagramQueue,
  FRAMES_VERSION,
  type Frame,
  NONCE_BYTES,
  type PeerEvents,
  type PeerSocket,
  type Proof,
  REPLACED_CODE,
  type RelayRefusal,
  endName,
  isProofMac,
  makeInstance,
  proofMac,
} from '../runtime/datagrams/datagrams.ts'
import type { Gauge, LabelledCounter, Metrics } from '../runtime/metrics/metrics.ts'
import type { SharedPort } from '../runtime/shared-port/shared-port.ts'
import { type ComponentDeps, messageOf } from '../runtime/runtime.ts'
import { type ConnectedEnd, DEFAULT_END_LIMITS, type EndLimits, Ends } from './ends/ends.ts'

export interface RelayConfig {
  readonly host: string
  readonly port: number
  /** Absent: plain, behind a proxy on this machine that ends TLS. */
  readonly tls?: { readonly certificate: string; readonly key: string }
  /** Reads the authorities of the clustersets that are served, in DER. Called again at intervals. Throws what fails. */
  readonly authorities: () => Promise<readonly Uint8Array[]>
  readonly limits?: Partial<EndLimits>
  /** A port of this process that a broker serves too. Absent: the relay listens at `host` and `port` itself. */
  readonly shared?: SharedPort
}

export interface RelayProgramDeps extends ComponentDeps {
  /** Called with the port when gateways can connect. */
  readonly onListening?: (port: number) => void
}

/** Until a gateway has proven itself, and how many may be at it. */
const PROOF_MS = 5000
const MOST_UNPROVEN = 256
/** Until a gateway that is refused has read why. */
const REFUSED_MS = 1000
/** How long a gateway that sends far too much has to wait, so that what it sends does not cost the relay its time. */
const HOLD_MS = 20
/** How often the authorities are read again: those of a clusterset may change. */
const AUTHORITIES_MS = 10_000
/** When the first gateway is to come again after a stop. */
const AGAIN_MS = 500
/** The others follow one by one: a handshake takes about as long. All come within SPREAD_MS. */
const BETWEEN_MS = 2
/** The same on a port of the broker, which hands over no more of them (protocol/transport/connections.ts). */
const SHARED_BETWEEN_MS = 10
const SPREAD_MS = 8000
/** X25519 keys in SubjectPublicKeyInfo (RFC 8410): what precedes the 32 octets. */
const SPKI = Buffer.from('302a300506032b656e032100', 'hex')

interface RelayMetrics {
  readonly ends: Gauge
  readonly refused: LabelledCounter
  readonly datagrams: LabelledCounter
  readonly bytes: LabelledCounter
}

export function relayMetrics(metrics: Metrics): RelayMetrics {
  return {
    ends: metrics.gauge({
      name: 'sealane_relay_connected_gateways',
      help: 'Gateways that are connected to the relay.',
    }),
    refused: metrics.counter({
      name: 'sealane_relay_refused_total',
      help: 'Gateways that the relay refused, by cause.',
      labels: ['why'],
    }),
    datagrams: metrics.counter({
      name: 'sealane_relay_datagrams_total',
      help: 'Datagrams by what the relay did with them.',
      labels: ['outcome'],
    }),
    bytes: metrics.counter({
      name: 'sealane_relay_forwarded_bytes_total',
      help: 'Bytes of datagrams that the relay forwarded.',
    }),
  }
}

/** Serves until the signal. Throws what listening throws, and what reading the authorities throws at the start. */
export async function runRelay(deps: RelayProgramDeps, config: RelayConfig, signal: AbortSignal): Promise<void> {
  const { clock, logger, status } = deps
  const metrics = relayMetrics(deps.metrics)
  let authorities = await config.authorities()
  const ends = new Ends(clock, { ...DEFAULT_END_LIMITS, ...config.limits })
  const peers = new Set<Peer>()
  const onPeer = (socket: PeerSocket): PeerEvents => {
    const unproven = [...peers].filter(({ isUnproven }) => isUnproven)
    // The oldest goes: a gateway proves itself at once, and strangers who prove nothing must not keep it out.
    if (unproven.length >= MOST_UNPROVEN) unproven[0]?.refuse('full')
    const peer = new Peer({ ...deps, ends, metrics, authorities: () => authorities }, socket)
    peers.add(peer)
    return {
      onFrame: (frame) => peer.take(frame),
      onSign: () => peer.takeSign(),
      onEnd: () => {
        peers.delete(peer)
        peer.ended()
      },
    }
  }
  // Loaded late: ws evaluates Node's HTTP client and server.
  const { serveDatagrams } = await import('../runtime/datagrams/datagram-server.ts')
  const { host, port, tls, shared } = config
  const maxConnections = (config.limits?.ends ?? DEFAULT_END_LIMITS.ends) + MOST_UNPROVEN
  const server = await serveDatagrams({
    clock,
    host,
    port,
    ...(tls === undefined ? {} : { tls }),
    maxConnections,
    shared,
    instance: makeInstance(),
    onPeer,
  })
  deps.onListening?.(server.port)
  status.readiness('relay', () => (authorities.length === 0 ? 'no authority of a clusterset is known' : undefined))
  logger.info('relay listens', { address: shared === undefined ? `${host}:${server.port}` : host })
  try {
    for (;;) {
      await clock.sleep(AUTHORITIES_MS, signal).catch(() => undefined)
      if (signal.aborted) break
      try {
        authorities = await config.authorities()
      } catch (error) {
        logger.warn('the authorities cannot be read; those read before stay', {
          reason: 'InvalidValue',
          why: messageOf(error),
        })
      }
    }
  } finally {
    server.refuse()
    const again = againTimes(peers.size, shared === undefined ? BETWEEN_MS : SHARED_BETWEEN_MS)
    await Promise.all([...peers].map((peer, i) => peer.restarting(again[i] ?? AGAIN_MS)))
    await server.close()
  }
}

/** After how many milliseconds each of so many gateways is to come again after a stop. */
export function againTimes(count: number, between: number): readonly number[] {
  const betweenMs = Math.min(between, SPREAD_MS / Math.max(1, count))
  return Array.from({ length: count }, (_, i) => AGAIN_MS + Math.round(i * betweenMs))
}

interface PeerDeps extends Pick<ComponentDeps, 'clock' | 'logger'> {
  readonly ends: Ends
  readonly metrics: RelayMetrics
  readonly authorities: () => readonly Uint8Array[]
}

type PeerState =
  | { readonly t: 'unproven'; readonly challenge: Challenge; readonly key: Buffer }
  | { readonly t: 'proven'; readonly end: ConnectedEnd; readonly holder: Holder }
  | { readonly t: 'ended' }

/** A connection from its challenge to its end. */
class Peer {
  readonly #deps: PeerDeps
  readonly #socket: PeerSocket
  readonly #queue: DatagramQueue
  #state: PeerState
  #cancel: () => void
  /** The system has not taken the last `present` yet. */
  #isSaying = false
  /** What is present now, if that has changed since then: what lies between is of no use. */
  #unsaid: readonly string[] | undefined

  constructor(deps: PeerDeps, socket: PeerSocket) {
    const { clock, metrics } = deps
    this.#deps = deps
    this.#socket = socket
    this.#queue = new DatagramQueue({
      clock,
      send: (frame, onSent) => socket.send(frame, onSent),
      onDropped: (count) => metrics.datagrams.inc({ outcome: 'waitedTooLong' }, count),
    })
    const pair = generateKeyPairSync('x25519', {
      publicKeyEncoding: { type: 'spki', format: 'der' },
      privateKeyEncoding: { type: 'pkcs8', format: 'der' },
    })
    const challenge = {
      version: FRAMES_VERSION,
      nonce: randomBytes(NONCE_BYTES),
      key: pair.publicKey.subarray(SPKI.length),
      timeMs: clock.now(),
    }
    this.#state = { t: 'unproven', challenge, key: pair.privateKey }
    this.#cancel = clock.setTimer(PROOF_MS, () => this.#end())
    socket.send({ t: 'challenge', ...challenge })
  }

  get isUnproven(): boolean {
    return this.#state.t === 'unproven'
  }

  take(frame: Frame | undefined): void {
    const { metrics } = this.#deps
    const state = this.#state
    if (state.t === 'unproven') {
      if (frame?.t === 'proof') this.#admit(frame, state)
      else this.refuse('malformed')
    } else if (state.t === 'proven') {
      this.#charge(state, frame?.t === 'wants' ? frame.ends.length : 0)
      if (frame?.t === 'wants') state.end.want(frame.ends)
      else if (frame?.t === 'datagrams') {
        let over = 0
        for (const { end, bytes } of frame.datagrams) {
          const outcome = state.end.forward(end, bytes)
          metrics.datagrams.inc({ outcome })
          if (outcome === 'forwarded') metrics.bytes.inc({}, bytes.length)
          if (outcome === 'memberRate' || outcome === 'relayRate') over++
        }
        if (over * 2 > frame.datagrams.length) this.#socket.hold(HOLD_MS)
      } else this.refuse('malformed')
    }
  }

  /** A ping or a pong. */
  takeSign(): void {
    if (this.#state.t === 'proven') this.#charge(this.#state, 0)
    // A gateway sends none before it is let in.
    else if (this.#state.t === 'unproven') this.refuse('malformed')
  }

  /** Whatever a frame has in it, its member waits if it sends more of them than it may. */
  #charge({ end }: Extract<PeerState, { t: 'proven' }>, entries: number): void {
    const waitMs = end.charge(entries)
    if (waitMs > 0) this.#socket.hold(Math.max(waitMs, HOLD_MS))
  }

  /** Says why, and ends the connection. */
  refuse(why: RelayRefusal): void {
    if (this.#state.t === 'ended') return
    this.#deps.metrics.refused.inc({ why })
    this.#socket.send({ t: 'refused', why, timeMs: this.#deps.clock.now() }, () => this.#socket.end())
    this.ended()
    // One that does not read stays no longer either.
    this.#cancel = this.#deps.clock.setTimer(REFUSED_MS, () => this.#socket.end())
  }

  /** Asks the gateway to come again. Resolves when that is sent. */
  restarting(againMs: number): Promise<void> {
    return new Promise((resolve) => {
      this.#socket.send({ t: 'restarting', againMs }, resolve)
      this.#deps.clock.setTimer(AGAIN_MS, resolve)
    })
  }

  ended(): void {
    this.#cancel()
    this.#queue.close()
    if (this.#state.t === 'proven') this.#state.end.leave()
    this.#state = { t: 'ended' }
    this.#deps.metrics.ends.set(this.#deps.ends.count)
  }

  /** At most one of these messages waits for the system, whatever the far ends do. */
  #present(ends: readonly string[]): void {
    if (this.#isSaying) {
      this.#unsaid = ends
      return
    }
    this.#isSaying = true
    this.#socket.send({ t: 'present', ends }, () => {
      this.#isSaying = false
      const unsaid = this.#unsaid
      this.#unsaid = undefined
      if (unsaid !== undefined && this.#state.t === 'proven') this.#present(unsaid)
    })
  }

  /**
   * The gateway cannot know that two addresses lead to this process if proxies of different keys end TLS there, so it is
   * told.
   */
  #replaced(): void {
    this.ended()
    this.#socket.close(REPLACED_CODE)
    // One that does not read, or is dead, stays no longer either.
    this.#cancel = this.#deps.clock.setTimer(REFUSED_MS, () => this.#socket.end())
  }

  #end(): void {
    this.ended()
    this.#socket.end()
  }

  #admit(proof: Proof, { challenge, key }: Extract<PeerState, { t: 'unproven' }>): void {
    const { clock, ends, logger, metrics, authorities } = this.#deps
    const opened = admit({ proof, challenge, key, authorities: authorities(), nowMs: clock.now() })
    if ('problem' in opened) {
      logger.debug('a gateway is refused', { why: opened.problem })
      this.refuse(opened.problem)
      return
    }
    const { holder } = opened
    const { clusterset, cluster } = holder
    const name = endName(clusterset, proof.identity)
    const end = ends.enter(
      { clusterset, cluster, name },
      {
        deliver: (from, bytes) => this.#queue.push(from, bytes),
        present: (present) => this.#present(present),
        replaced: () => this.#replaced(),
      },
    )
    if (typeof end === 'string') {
      logger.warn('a gateway is refused', { reason: 'RelayRefused', cluster, why: end })
      this.refuse(end)
      return
    }
    this.#cancel()
    this.#state = { t: 'proven', end, holder }
    // A gateway comes again with a new ticket.
    this.#cancel = clock.setTimer(Math.min(Math.max(holder.untilMs - clock.now(), 60_000), 24 * 3_600_000), () =>
      this.#end(),
    )
    metrics.ends.set(ends.count)
    logger.info('a gateway is connected', { clusterset, cluster })
    this.#socket.send({ t: 'welcome' })
  }
}

interface AdmitInit {
  readonly proof: Proof
  readonly challenge: Challenge
  /** The private part of the challenge's key, PKCS #8. */
  readonly key: Buffer
  readonly authorities: readonly Uint8Array[]
  readonly nowMs: number
}

/** Who it is, or why the proof does not count. Never throws. */
function admit({
  proof,
  challenge,
  key,
  authorities,
  nowMs,
}: AdmitInit): { readonly holder: Holder } | { readonly problem: TicketProblem | 'notListed' | 'badProof' } {
  const opened = openTicket(proof.ticket, authorities, nowMs)
  if ('problem' in opened) return opened
  if (!opened.holder.identities.includes(proof.identity.toString('base64'))) return { problem: 'notListed' }
  try {
    const secret = diffieHellman({
      privateKey: createPrivateKey({ key, format: 'der', type: 'pkcs8' }),
      publicKey: createPublicKey({ key: Buffer.concat([SPKI, proof.identity]), format: 'der', type: 'spki' }),
    })
    // With a point of small order every key agrees on zero.
    const isProven = secret.some((octet) => octet !== 0) && isProofMac(proof.mac, proofMac(secret, challenge, proof))
    return isProven ? opened : { problem: 'badProof' }
  } catch {
    return { problem: 'badProof' }
  }
}
