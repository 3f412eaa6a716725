/**
 * Relays on port 443 as this gateway uses them: one connection to each relay while a link needs it, and a port on
 * loopback for each link. The datagrams of a link look like one flow from outside, and their order matters to what is
 * inside, so one connection carries all of them.
 */
import {
  type Challenge,
  type Datagram,
  type Proof,
  endName,
  openLoopbackPort,
  proofMac,
} from '../../../runtime/datagrams/datagrams.ts'
import type { LoopbackPort, RelayConnection } from '../../../runtime/datagrams/datagrams.ts'
import { ProxyError, type ProxyChoice } from '../../../runtime/proxy/proxy.ts'
import { UserError, messageOf } from '../../../runtime/runtime.ts'
import type { Logger } from '../../../runtime/logging/logging.ts'
import type { ReasonCode } from '../../../model/reasons/reasons.ts'
import { parseAddress } from '../../../model/addresses/addresses.ts'
import { type RelayAddress, decodeRelayNotice, readRelayAddress, relayName } from '../../../model/lanes/lanes.ts'
import { Backoff, type Clock } from '../../../reconcile/reconcile.ts'
import type { RelayPlace } from '../../world/world.ts'
import type { OwnEnd } from '../relay/relay-calls.ts'
import type { WebLink } from './plan-web-use.ts'

export interface WebRelaysDeps {
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

export interface WebWants {
  readonly links: readonly WebLink[]
  readonly own: OwnEnd | undefined
  /** The annotation of the Membership: RELAYS_ANNOTATION. */
  readonly notice: string | undefined
  /** Ports of the lane devices, by remote lane. */
  readonly ports: ReadonlyMap<number, number>
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

export class WebRelays {
  readonly #deps: WebRelaysDeps
  #relays: ReadonlyMap<string, WebRelay> = new Map()

  constructor(deps: WebRelaysDeps) {
    this.#deps = deps
  }

  /** Takes all links that are to have a way here. */
  apply({ links, own, notice, ports }: WebWants): void {
    const { addresses, ticket } = decodeRelayNotice(notice)
    const credentials =
      own === undefined || ticket === undefined ? undefined : { own, ticket: Buffer.from(ticket, 'base64') }
    const relays = new Map<string, WebRelay>()
    for (const text of addresses) {
      const address = readRelayAddress(text)
      // A relay takes one connection of a gateway, so two of its addresses would end each other's connections.
      if (address !== undefined && [...relays.values()].some((one) => one.serves(address))) continue
      if (address !== undefined) relays.set(text, this.#relays.get(text) ?? this.#relayAt(address))
    }
    for (const [text, relay] of this.#relays) if (!relays.has(text)) relay.close()
    this.#relays = relays
    for (const relay of relays.values()) relay.apply(credentials, links, ports)
  }

  #relayAt(address: RelayAddress): WebRelay {
    const relay: WebRelay = new WebRelay(this.#deps, address, (name) =>
      [...this.#relays.values()].some((one) => one !== relay && one.hears(name)),
    )
    return relay
  }

  /** Where packets get to far ends that are at the same relay, by linkKey(), in the order of the relays. */
  places(): ReadonlyMap<string, readonly RelayPlace[]> {
    const places = new Map<string, RelayPlace[]>()
    for (const relay of this.#relays.values())
      for (const [key, place] of relay.places()) places.set(key, [...(places.get(key) ?? []), place])
    return places
  }

  views(): readonly WebRelayView[] {
    return [...this.#relays.values()].map((relay) => relay.view())
  }

  close(): void {
    for (const relay of this.#relays.values()) relay.close()
    this.#relays = new Map()
  }
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

class WebRelay {
  readonly #deps: WebRelaysDeps
  readonly #address: RelayAddress
  readonly #backoff: Backoff
  #state: State = { t: 'idle' }
  #connection: RelayConnection | undefined
  /** By linkKey(). */
  readonly #ports = new Map<string, WebPort>()
  /** The same, by endName(). */
  #byName: ReadonlyMap<string, WebPort> = new Map()
  /** Since when each far end is there, by endName(), in milliseconds of the monotonic clock. */
  #present: ReadonlyMap<string, number> = new Map()
  #credentials: Credentials | undefined
  #trouble = ''
  #failure: WebRelayView['trouble']
  /** What was said last of ports of this process. */
  #portTrouble = ''
  /** The ends of which this connection has said that they are there. */
  #heard: readonly string[] = []
  /** Undefined unless those of an earlier connection count too: LOST_MS. */
  #cancelLost: (() => void) | undefined
  #lostUntilMs = 0
  #lostMs = -Infinity
  /** Whether another relay has this far end now. */
  readonly #isElsewhere: (name: string) => boolean

  constructor(deps: WebRelaysDeps, address: RelayAddress, isElsewhere: (name: string) => boolean) {
    this.#deps = deps
    this.#address = address
    this.#isElsewhere = isElsewhere
    this.#backoff = new Backoff(deps.clock, RETRY)
  }

  apply(credentials: Credentials | undefined, links: readonly WebLink[], ports: ReadonlyMap<number, number>): void {
    this.#credentials = credentials
    if (credentials === undefined || links.length === 0) {
      this.#stop()
      this.#keepPorts(new Map())
      return
    }
    const wanted = new Map<string, Pick<WebPort, 'cable' | 'name'>>()
    for (const { key, remoteLane, identity } of links) {
      const cable = ports.get(remoteLane)
      const name = endName(credentials.own.clusterset, Buffer.from(identity, 'base64'))
      if (cable !== undefined) wanted.set(key, { cable, name })
    }
    this.#keepPorts(wanted)
    // The relay may have said that a far end is present while its port was being made.
    this.#countPresent()
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
    return this.#connection !== undefined && this.#heard.includes(name)
  }

  /** Whether it is the relay of this address too, and as far as is known can be reached as its own address states. */
  serves({ url, pin }: RelayAddress): boolean {
    // A pin is that of one key, and so of one relay, whatever the host.
    const isSame = url === this.#address.url || (pin !== undefined && pin === this.#address.pin)
    return isSame && this.#trouble === ''
  }

  *places(): Iterable<readonly [string, RelayPlace]> {
    for (const [key, { name, port }] of this.#ports) {
      const sinceMs = this.#present.get(name)
      if (sinceMs === undefined || port.port === undefined) continue
      yield [key, { cluster: relayName(this.#address), at: { address: LOOPBACK, port: port.port }, sinceMs }]
    }
  }

  view(): WebRelayView {
    const { t } = this.#state
    const proxy = this.#proxyTitle()
    const rttMs = this.#connection?.rttMs
    return {
      name: relayName(this.#address),
      is: t === 'open' ? 'connected' : t,
      ...(proxy === undefined ? {} : { proxy }),
      ...(rttMs === undefined ? {} : { rttMs }),
      ...(this.#failure === undefined ? {} : { trouble: this.#failure }),
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
          if (this.#present.has(name)) this.#connection?.send(name, bytes)
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
    this.#cancelLost?.()
    this.#cancelLost = undefined
    this.#lostUntilMs = 0
    this.#heard = []
    this.#setPresent([])
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
      const { url, pin } = this.#address
      const connection = await connectRelay(
        {
          ...{ clock, proxies, onDropped, url: new URL(url), ...(pin === undefined ? {} : { pin }) },
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
      this.#noteWell()
      connection.want([...this.#byName.keys()])
      const { why, againMs } = await connection.ended
      if (this.#state !== open) return
      this.#deps.logger.info('the connection to a relay has ended; it is made again', { host: this.#address.host, why })
      this.#failure = { reason: 'RelayUnreachable', why }
      if (clock.monotonic() - openedMs >= STEADY_MS) this.#backoff.reset()
      const nowMs = clock.monotonic()
      const isFlapping = nowMs - this.#lostMs < FLAPS_MS
      this.#lostMs = nowMs
      const soonestMs = againMs === undefined || isFlapping ? this.#backoff.next() : AGAIN.minMs
      waitMs = againMs === undefined ? soonestMs : Math.min(Math.max(againMs, soonestMs), AGAIN.maxMs)
      this.#connection = undefined
      // A relay with many gateways calls them back one by one.
      this.#lose(againMs === undefined || isFlapping ? LOST_MS : RESTARTED_MS)
    } catch (error) {
      if (this.#state !== mine) return
      this.#note(reasonOfFailure(error), error)
      waitMs = isRefusal(error) ? REFUSED_MS : this.#backoff.next()
      if (isRefusal(error)) refused = shown
    }
    const cancel = clock.setTimer(waitMs * (1 + JITTER * clock.random()), () => {
      this.#state = { t: 'idle' }
      this.#deps.onDue()
    })
    this.#state = { t: 'waiting', cancel, ...(refused === undefined ? {} : { refused }) }
  }

  #prove(challenge: Challenge): Proof | undefined {
    const { own, ticket } = this.#credentials ?? {}
    const secret = own?.agree(challenge.key.toString('base64'))
    if (own === undefined || ticket === undefined || secret === undefined) return undefined
    const identity = Buffer.from(own.identity, 'base64')
    return { identity, ticket, mac: proofMac(secret, challenge, { identity, ticket }) }
  }

  #onPresent(ends: readonly string[]): void {
    this.#heard = ends
    this.#countPresent()
  }

  #countPresent(): void {
    this.#setPresent(this.#cancelLost === undefined ? this.#heard : [...this.#present.keys(), ...this.#heard])
  }

  /** Links go on at once by another relay that has their far ends too. The others wait for this one. */
  #lose(forMs: number): void {
    const { clock } = this.#deps
    this.#heard = []
    const untilMs = clock.monotonic() + forMs
    if (untilMs > this.#lostUntilMs) {
      this.#lostUntilMs = untilMs
      this.#cancelLost?.()
      this.#cancelLost = clock.setTimer(forMs, () => {
        this.#cancelLost = undefined
        this.#setPresent(this.#heard)
      })
    }
    this.#setPresent([...this.#present.keys()].filter((name) => !this.#isElsewhere(name)))
  }

  #setPresent(ends: readonly string[]): void {
    const nowMs = this.#deps.clock.monotonic()
    const known = ends.filter((end) => this.#byName.has(end))
    const present = new Map(known.map((end) => [end, this.#present.get(end) ?? nowMs]))
    if (present.size === this.#present.size && [...present.keys()].every((end) => this.#present.has(end))) return
    this.#present = present
    this.#deps.onChange()
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
    this.#trouble = ''
    this.#failure = undefined
  }
}

/** By what the errors of relay-connection.ts carry: that file is loaded late. */
function isRefusal(error: unknown): error is Error & { readonly why: string; readonly aheadMs: number } {
  return error instanceof Error && error.name === 'RelayRefusedError'
}

/** A clock that differs by more makes tickets look expired, or not yet good. */
const WRONG_CLOCK_MS = 5 * 60_000

function reasonOfFailure(error: unknown): ReasonCode {
  if (error instanceof ProxyError) return error.reason
  // The proxy of the environment cannot be parsed.
  if (error instanceof UserError) return 'InvalidValue'
  if (!isRefusal(error)) return 'RelayUnreachable'
  if (error.why === 'foreignClusterset') return 'RelayForeignClusterset'
  const isClock = error.why === 'wrongClock' || (error.why === 'expired' && Math.abs(error.aheadMs) > WRONG_CLOCK_MS)
  return isClock ? 'RelayWrongClock' : 'RelayRefused'
}
