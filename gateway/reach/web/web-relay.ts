/**
 * One relay on port 443: its connection from each call to its end, the ports on loopback of the links that it carries,
 * and the process to which its address leads. Of several addresses that lead to one process, one has a connection, and
 * the others are spare.
 */
import {
  type Challenge,
  type Datagram,
  type LoopbackPort,
  type Proof,
  type RelayConnection,
  endName,
  openLoopbackPort,
  proofMac,
} from '../../../runtime/datagrams/datagrams.ts'
import type { ProxyChoice } from '../../../runtime/proxy/proxy.ts'
import type { RelayPeer } from '../../../runtime/datagrams/relay-connection.ts'
import { messageOf } from '../../../runtime/runtime.ts'
import type { Logger } from '../../../runtime/logging/logging.ts'
import type { ReasonCode } from '../../../model/reasons/reasons.ts'
import { parseAddress } from '../../../model/addresses/addresses.ts'
import { type RelayAddress, relayName } from '../../../model/lanes/lanes.ts'
import { Backoff, type Clock } from '../../../reconcile/reconcile.ts'
import type { RelayPlace } from '../../world/world.ts'
import type { OwnEnd } from '../frames/bind-frame.ts'
import type { WebLink } from './plan-web-use.ts'
import { PresentEnds } from './present-ends.ts'
import { type InstanceWatch, type KeysThatYield, isNotWanted, isRefusal, reasonOfFailure } from './relay-answers.ts'

export interface WebRelayDeps {
  readonly clock: Clock
  readonly logger: Logger
  readonly proxies: ProxyChoice
  /** places() has changed. */
  readonly onChange: () => void
  /** Call apply() again. */
  readonly onDue: () => void
  /** Datagrams that waited for too long. */
  readonly onDropped: (count: number) => void
}

/** What a relay needs of a gateway to let it in. */
interface Credentials {
  readonly own: OwnEnd
  readonly ticket: Buffer
}

/** What is known of a relay on port 443. */
export interface WebRelayView {
  /** relayName(). */
  readonly name: string
  /** waiting: the last call failed, or the connection ended. idle: no link needs it. */
  readonly is: 'connected' | 'connecting' | 'waiting' | 'idle'
  /** The proxy through which it is called: scheme, host and port. */
  readonly proxy?: string
  /** relayName() of the one by which the process is used to which this one leads too. Absent: it leads to no such one. */
  readonly sameAs?: string
  /** From this node to the relay, in milliseconds. Absent: it has answered no ping. */
  readonly rttMs?: number
  /** The last failure, until a call succeeds. */
  readonly trouble?: { readonly reason: ReasonCode; readonly why: string }
}

const LOOPBACK = parseAddress('127.0.0.1')
const RETRY = { minMs: 100, maxMs: 3000 }
/**
 * Far ends count as present for so long after a connection was lost: a relay that starts again is back by then, and so
 * are they, each at its own time.
 */
const LOST_MS = 3000
/** A relay that lets this gateway in and ends the connection sooner counts as one that cannot be reached. */
const STEADY_MS = 10_000
/** A relay says when it wants to be called again: neither in a loop nor never. */
const AGAIN = { minMs: 100, maxMs: 10_000 }
/** Each wait is longer by up to this part of it, at random. */
const JITTER = 0.2
/** A relay that ends connections more often than this is given LOST_MS, whatever it says. */
const FLAPS_MS = 60_000
/** The same as LOST_MS after a relay has said that it starts again: the far ends may wait for longer than this one. */
const RESTARTED_MS = AGAIN.maxMs * (1 + JITTER) + LOST_MS / 2
/** A relay that refuses is asked less often. */
const REFUSED_MS = 10_000
/**
 * How often an address is called that leads to a process to which another one leads too, and how often it is asked
 * which process answers there.
 */
const ASK = { minMs: 5000, maxMs: 60_000 }
const SHARED_WHY =
  'several relays answer at this address, and gateways meet only at the same one: give each an address of its own'

/** What a relay shares with the others of this gateway. */
interface SharedByRelays {
  /** Of its address. */
  readonly watch: InstanceWatch
  /** Whether it is the first connection through its address, which asks which processes answer there. */
  readonly isFirst: boolean
  /** Whether another relay has this far end now. */
  readonly isElsewhere: (name: string) => boolean
  /** Of all relays. */
  readonly keys: KeysThatYield
  /** The other one that is connected to this process, or is about to be. */
  readonly heldBy: (peer: RelayPeer) => WebRelay | undefined
  /** The other one whose connection has taken the place of one to this process. */
  readonly replacedBy: (peer: RelayPeer) => WebRelay | undefined
  /** It has given up a process to which another address may lead. */
  readonly onFree: () => void
  /** It hears of far ends. */
  readonly onHeard: () => void
}

interface WebPort {
  readonly cable: number
  readonly name: string
  readonly port: LoopbackPort
}

type State =
  | { readonly t: 'idle' }
  | { readonly t: 'connecting' | 'open'; readonly stop: AbortController; readonly identity: string }
  | {
      readonly t: 'waiting'
      readonly cancel: () => void
      /** The ticket that the relay has refused. Absent: it has refused none. */
      readonly refused?: Buffer
    }

export class WebRelay {
  readonly #deps: WebRelayDeps
  readonly #address: RelayAddress
  readonly #backoff: Backoff
  #state: State = { t: 'idle' }
  #connection: RelayConnection | undefined
  /** By linkKey(). */
  readonly #ports = new Map<string, WebPort>()
  /** The same, by endName(). */
  #byName: ReadonlyMap<string, WebPort> = new Map()
  readonly #ends: PresentEnds
  #credentials: Credentials | undefined
  #trouble = ''
  #failure: WebRelayView['trouble']
  /** What was said last of ports of this process. */
  #portTrouble = ''
  #lostMs = -Infinity
  readonly #shared: SharedByRelays
  /** The process with which it has a connection, or proves itself now. */
  #claim: RelayPeer | undefined
  #claimedMs = -Infinity
  readonly #askBackoff: Backoff
  readonly #spareBackoff: Backoff
  #cancelAsk: (() => void) | undefined
  #wasVarying = false
  /** The last call has failed, or the relay has ended the connection without saying that it starts again. */
  #hasFailed = false
  /** Another relay was connected to the process to which this one has led last. */
  #isSpare = false
  /** That one. */
  #holder: WebRelay | undefined

  constructor(deps: WebRelayDeps, address: RelayAddress, shared: SharedByRelays) {
    this.#deps = deps
    this.#address = address
    this.#shared = shared
    this.#backoff = new Backoff(deps.clock, RETRY)
    this.#askBackoff = new Backoff(deps.clock, ASK)
    this.#spareBackoff = new Backoff(deps.clock, ASK)
    this.#ends = new PresentEnds({
      ...{ clock: deps.clock, onChange: deps.onChange, isElsewhere: shared.isElsewhere },
      isWanted: (name) => this.#byName.has(name),
    })
  }

  /** Whether its address leads to several processes. */
  get varies(): boolean {
    return this.#shared.watch.varies(this.#deps.clock.monotonic())
  }

  get isShown(): boolean {
    return this.#shared.isFirst
  }

  /** Whether it has a connection through the address of that one. */
  isOpenAt(relay: WebRelay): boolean {
    return this.#state.t === 'open' && this.#shared.watch === relay.#shared.watch
  }

  apply(credentials: Credentials | undefined, links: readonly WebLink[], ports: ReadonlyMap<number, number>): void {
    this.#credentials = credentials
    if (credentials === undefined || links.length === 0) {
      this.#stop()
      this.#keepPorts(new Map())
      return
    }
    const wanted = new Map<string, Pick<WebPort, 'cable' | 'name'>>()
    // A spare one may stay so for days: it has no ports.
    for (const { key, remoteLane, identity } of this.#isSpare ? [] : links) {
      const cable = ports.get(remoteLane)
      const name = endName(credentials.own.clusterset, Buffer.from(identity, 'base64'))
      if (cable !== undefined) wanted.set(key, { cable, name })
    }
    this.#keepPorts(wanted)
    // The relay may have said that a far end is present while its port was being made.
    this.#ends.count()
    const state = this.#state
    // A gateway with another identity is another end.
    if ((state.t === 'connecting' || state.t === 'open') && state.identity !== credentials.own.identity) this.#stop()
    // What the relay has refused is another ticket.
    if (state.t === 'waiting' && state.refused?.equals(credentials.ticket) === false) this.#stop()
    if (this.#state.t === 'idle') void this.#run(credentials)
    else this.#connection?.want([...this.#byName.keys()])
  }

  /** Whether this far end is at the relay too, as the present connection says. */
  hears(name: string): boolean {
    return this.#connection !== undefined && this.#ends.hears(name)
  }

  /** Whether it has a connection to this process, to which that address leads. */
  holds({ instance, key }: RelayPeer, address: RelayAddress): boolean {
    const claim = this.#claim
    if (claim === undefined) return false
    // A relay can state the instance of another one, but has not its key. One of an earlier release states none.
    if (instance !== claim.instance) return false
    if (this.#shared.keys.doesYield(key, claim.key)) return true
    return instance === undefined ? this.#isAlike(address) : key === claim.key
  }

  /** Whether it has a connection to what may be this process, by another key. */
  mayHaveReplaced({ instance, key }: RelayPeer): boolean {
    return this.#claim !== undefined && this.#claim.instance === instance && this.#claim.key !== key
  }

  /** Since when it has that connection, or proves itself. */
  get claimedMs(): number {
    return this.#claimedMs
  }

  /** Whether it may be about to connect to the process to which that address leads, which does not say which it is. */
  mayHold(address: RelayAddress): boolean {
    const { t } = this.#state
    const isComing = t === 'connecting' || (t === 'waiting' && !this.#isSpare)
    return isComing && !this.#hasFailed && this.#isAlike(address)
  }

  /** Without more knowledge a key is that of one process, whatever the host. */
  #isAlike({ url, pin }: RelayAddress): boolean {
    return url === this.#address.url || (pin !== undefined && pin === this.#address.pin)
  }

  /** Calls again at once if another one was connected to the process to which it leads. */
  wake(): void {
    if (this.#state.t !== 'waiting' || !this.#isSpare) return
    this.#stop()
    this.#deps.onDue()
  }

  *places(): Iterable<readonly [string, RelayPlace]> {
    for (const [key, { name, port }] of this.#ports) {
      const sinceMs = this.#ends.sinceMs(name)
      if (sinceMs === undefined || port.port === undefined) continue
      yield [key, { cluster: relayName(this.#address), at: { address: LOOPBACK, port: port.port }, sinceMs }]
    }
  }

  view(): WebRelayView {
    const name = relayName(this.#address)
    if (this.#isSpare && !this.varies && this.#holder !== undefined)
      return { name, is: 'idle', sameAs: relayName(this.#holder.#address) }
    const { t } = this.#state
    const proxy = this.#proxyTitle()
    const rttMs = this.#connection?.rttMs
    const trouble =
      this.#failure ?? (this.varies ? { reason: 'RelayAddressShared' as const, why: SHARED_WHY } : undefined)
    return {
      name,
      is: t === 'open' ? 'connected' : t,
      ...(proxy === undefined ? {} : { proxy }),
      ...(rttMs === undefined ? {} : { rttMs }),
      ...(trouble === undefined ? {} : { trouble }),
    }
  }

  #proxyTitle(): string | undefined {
    const { hostname, port } = new URL(this.#address.url)
    try {
      const host = hostname.replace(/^\[|\]$/g, '')
      return this.#deps.proxies({ host, port: port === '' ? 443 : Number(port) })?.title
    } catch {
      // The connection fails by the same setting, and says why.
      return undefined
    }
  }

  close(): void {
    this.#stop()
    this.#keepPorts(new Map())
  }

  #keepPorts(wanted: ReadonlyMap<string, Pick<WebPort, 'cable' | 'name'>>): void {
    for (const [key, { port, cable, name }] of this.#ports) {
      const same = wanted.get(key)
      if (same?.cable === cable && same.name === name) continue
      port.close()
      this.#ports.delete(key)
    }
    const { onChange, onDue } = this.#deps
    for (const [key, { cable, name }] of wanted) {
      if (this.#ports.has(key)) continue
      const port = openLoopbackPort({
        cable,
        onReady: onChange,
        onDatagram: (bytes) => {
          if (this.#ends.sinceMs(name) !== undefined) this.#connection?.send(name, bytes)
        },
        onError: (error) => {
          if (this.#ports.get(key)?.port === port) this.#ports.delete(key)
          this.#notePort(error)
          onDue()
        },
      })
      this.#ports.set(key, { cable, name, port })
    }
    this.#byName = new Map([...this.#ports.values()].map((one) => [one.name, one]))
  }

  #stop(): void {
    const state = this.#state
    this.#state = { t: 'idle' }
    if (state.t === 'waiting') state.cancel()
    else if (state.t !== 'idle') state.stop.abort(new Error('no link needs the relay'))
    this.#connection?.close()
    this.#connection = undefined
    this.#claim = undefined
    this.#cancelAsk?.()
    this.#ends.forget()
  }

  /** One connection from its call to its end. */
  async #run(credentials: Credentials): Promise<void> {
    const { clock, proxies, onDropped } = this.#deps
    const stop = new AbortController()
    const { identity } = credentials.own
    const mine: State = { t: 'connecting', stop, identity }
    this.#state = mine
    let waitMs: number
    let shown: Buffer | undefined
    let refused: Buffer | undefined
    try {
      // Loaded late: few gateways need WebSockets.
      const { connectRelay } = await import('../../../runtime/datagrams/relay-connection.ts')
      const connection = await connectRelay(
        {
          ...{ clock, proxies, onDropped, ...this.#target() },
          wants: (peer) => this.#state === mine && this.#claims(peer),
          prove: (challenge) => {
            const proof = this.#prove(challenge)
            shown = proof?.ticket
            return proof
          },
          onDatagram: ({ end, bytes }: Datagram) => this.#byName.get(end)?.port.send(bytes),
          // It may come together with the welcome, before this function goes on.
          onPresent: (ends) => {
            const state = this.#state
            if ((state.t === 'connecting' || state.t === 'open') && state.stop === stop) this.#onPresent(ends)
          },
        },
        stop.signal,
      )
      const open: State = { t: 'open', stop, identity }
      if (this.#state !== mine) {
        connection.close()
        return
      }
      this.#state = open
      this.#connection = connection
      const openedMs = clock.monotonic()
      if (this.#isSpare) this.#deps.onDue()
      this.#noteWell()
      connection.want([...this.#byName.keys()])
      if (this.#ends.hearsAny) this.#shared.onHeard()
      this.#askLater(open, stop.signal)
      const { why, againMs, isReplaced } = await connection.ended
      if (this.#state !== open) return
      const successor = isReplaced ? this.#giveWay() : undefined
      const { host } = this.#address
      if (successor === undefined) {
        this.#deps.logger.info('the connection to a relay has ended; it is made again', { host, why })
        this.#failure = { reason: 'RelayUnreachable', why }
      } else this.#deps.logger.info('another address leads to the same relay, and is used', { host, why })
      if (clock.monotonic() - openedMs >= STEADY_MS) this.#backoff.reset()
      const nowMs = clock.monotonic()
      const isFlapping = nowMs - this.#lostMs < FLAPS_MS
      this.#lostMs = nowMs
      const soonestMs = againMs === undefined || isFlapping ? this.#backoff.next() : AGAIN.minMs
      waitMs = againMs === undefined ? soonestMs : Math.min(Math.max(againMs, soonestMs), AGAIN.maxMs)
      this.#connection = undefined
      this.#cancelAsk?.()
      stop.abort(new Error('the connection has ended'))
      // A relay with many gateways calls them back one by one.
      this.#ends.lose(againMs === undefined || isFlapping ? LOST_MS : RESTARTED_MS)
      if (successor !== undefined) {
        waitMs = this.#spareBackoff.next()
        this.#handOver(successor)
      } else if (againMs === undefined) this.#giveUp()
      else this.#claim = undefined
    } catch (error) {
      if (this.#state !== mine) return
      this.#isSpare = isNotWanted(error)
      if (this.#isSpare && this.#holder !== undefined) this.#handOver(this.#holder)
      else {
        this.#note(reasonOfFailure(error), error)
        this.#giveUp()
      }
      waitMs = this.#isSpare ? this.#spareBackoff.next() : isRefusal(error) ? REFUSED_MS : this.#backoff.next()
      if (isRefusal(error)) refused = shown
    }
    const cancel = clock.setTimer(waitMs * (1 + JITTER * clock.random()), () => {
      this.#state = { t: 'idle' }
      this.#deps.onDue()
    })
    this.#state = { t: 'waiting', cancel, ...(refused === undefined ? {} : { refused }) }
    // A spare one has no ports.
    if (this.#isSpare && this.#ports.size > 0) this.#deps.onDue()
  }

  #target(): { readonly url: URL; readonly pin?: string } {
    const { url, pin } = this.#address
    return { url: new URL(url), ...(pin === undefined ? {} : { pin }) }
  }

  /** Takes this process unless another relay of this gateway has it. */
  #claims({ instance, key }: RelayPeer): boolean {
    this.#saw(instance)
    this.#holder = this.#shared.heldBy({ instance, key })
    if (this.#holder !== undefined) return false
    this.#claim = { instance, key }
    this.#claimedMs = this.#deps.clock.monotonic()
    return true
  }

  /** After the word that another connection has taken the place of this one: it is spare, if that is known here. */
  #giveWay(): WebRelay | undefined {
    const claim = this.#claim
    const successor = claim && this.#shared.replacedBy(claim)
    if (successor === undefined) return undefined
    this.#shared.keys.yields(claim?.key, successor.#claim?.key)
    this.#claim = undefined
    this.#isSpare = true
    this.#holder = successor
    return successor
  }

  /**
   * Leaves the process to the other one. The far ends of an earlier connection come there, and what was wrong counts no
   * more once the process has let that one in.
   */
  #handOver(to: WebRelay): void {
    if (to.#state.t === 'open' && !this.varies) this.#forgetTrouble()
    const { names, lostUntilMs } = this.#ends
    this.#ends.forget()
    if (names.length > 0) to.#ends.keep(names, lostUntilMs)
  }

  /** After a failure. One that had nothing wakes no other: a relay that is away fails again and again. */
  #giveUp(): void {
    const hadIt = this.#claim !== undefined || !this.#hasFailed
    this.#claim = undefined
    this.#hasFailed = true
    if (hadIt) this.#shared.onFree()
  }

  #saw(instance: string | undefined): void {
    const { clock, logger, onChange, onDue } = this.#deps
    this.#shared.watch.saw(instance, this.#connection?.instance, clock.monotonic())
    if (this.varies === this.#wasVarying) return
    this.#wasVarying = this.varies
    const { host } = this.#address
    if (this.varies && this.#shared.isFirst)
      logger.warn('several relays answer at one address', { reason: 'RelayAddressShared', host, why: SHARED_WHY })
    // Those that give way, and those that are to be made, do so now.
    this.#shared.onFree()
    onChange()
    onDue()
  }

  /** Asks at intervals which process answers at the address, while a far end is not where this gateway is. */
  #askLater(open: State, signal: AbortSignal): void {
    if (!this.#shared.isFirst || this.#connection?.instance === undefined) return
    const { clock, proxies } = this.#deps
    this.#cancelAsk = clock.setTimer(this.#askBackoff.next() * (1 + JITTER * clock.random()), () => void ask())
    const ask = async (): Promise<void> => {
      const isMet = [...this.#byName.keys()].every((name) => this.#ends.hears(name) || this.#shared.isElsewhere(name))
      if (isMet && !this.varies) this.#askBackoff.reset()
      else {
        const { askInstance } = await import('../../../runtime/datagrams/relay-connection.ts')
        // An address that cannot be reached now says nothing.
        const instance = await askInstance({ clock, proxies, ...this.#target() }, signal).catch(() => undefined)
        if (this.#state === open) this.#saw(instance)
      }
      if (this.#state === open) this.#askLater(open, signal)
    }
  }

  #prove(challenge: Challenge): Proof | undefined {
    const { own, ticket } = this.#credentials ?? {}
    const secret = own?.agree(challenge.key.toString('base64'))
    if (own === undefined || ticket === undefined || secret === undefined) return undefined
    const identity = Buffer.from(own.identity, 'base64')
    return { identity, ticket, mac: proofMac(secret, challenge, { identity, ticket }) }
  }

  #onPresent(ends: readonly string[]): void {
    this.#ends.take(ends)
    this.#shared.onHeard()
  }

  /** Those that another relay hears of have not to come again here. */
  forgetFound(): void {
    this.#ends.forgetFound()
  }

  /** Says once what is wrong with the relay. */
  #note(reason: ReasonCode, error: unknown): void {
    const why = messageOf(error)
    this.#failure = { reason, why }
    if (why === this.#trouble) return
    this.#trouble = why
    this.#deps.logger.warn('a relay on port 443 does not work', { reason, host: this.#address.host, why })
  }

  /** Says once what is wrong with a port of this process: the relay may be well. */
  #notePort(error: unknown): void {
    const why = messageOf(error)
    if (why === this.#portTrouble) return
    this.#portTrouble = why
    this.#deps.logger.warn('a port for packets of a relay does not work', {
      ...{ reason: 'RoundFailed' satisfies ReasonCode, host: this.#address.host, why },
    })
  }

  #noteWell(): void {
    this.#deps.logger.info('connected to a relay on port 443', { host: this.#address.host })
    this.#spareBackoff.reset()
    this.#askBackoff.reset()
    this.#isSpare = false
    this.#forgetTrouble()
  }

  #forgetTrouble(): void {
    this.#hasFailed = false
    this.#trouble = ''
    this.#failure = undefined
  }
}
