/**
 * Two ends behind NATs, and relays, in memory: real callers, probes and bindings on a network that tests disturb. The
 * kernel, the cable and the choice of a way are left out: a link uses its proven place, and else its first relay that
 * passes packets.
 */
import { randomBytes } from 'node:crypto'
import { agreementOf } from '../../../gateway/cable/agreement.ts'
import { Bindings, DEFAULT_LIMITS } from '../../../gateway/reach/relay-server/bindings.ts'
import { RelayCalls } from '../../../gateway/reach/relay/relay-calls.ts'
import { FakeNft } from '../../../kernel/fake/fake-nft.ts'
import type { ProbeSocketEvents } from '../../../kernel/probing/probe-socket.ts'
import { generateWireguardKey } from '../../../kernel/wireguard/wireguard-device.ts'
import {
  type AddressPort,
  formatAddressPort,
  parseAddress,
  parseAddressPort,
} from '../../../model/addresses/addresses.ts'
import { RELAY_PORT } from '../../../model/kernel-ids.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { FakeNat, type NatKind } from './fake-nat.ts'

const CLUSTERSET = 'alps'
const STEP_MS = 100
/** A link without packets is down after about this time, and its relay has failed later. */
const DOWN_MS = 2000
const FAILED_MS = 4000

export interface ReachRelay {
  readonly address: string
  readonly keys: ReturnType<typeof generateWireguardKey>
  bindings: Bindings
  /** It answers questions, and forwards nothing. */
  isDeaf: boolean
  /** It is gone: it answers nothing either. */
  isGone: boolean
}

export interface ReachWorldEnd {
  readonly name: string
  readonly keys: ReturnType<typeof generateWireguardKey>
  readonly nat: FakeNat
  readonly calls: RelayCalls
  socket: ProbeSocketEvents | undefined
  /** The last answers of relays. */
  heard: { readonly bytes: Buffer; readonly from: string }[]
  /** Packets that it has sent, by destination. */
  readonly sent: string[]
  downMs: number
}

interface Travelling {
  readonly atMs: number
  readonly arrive: () => void
}

export class ReachWorld {
  readonly clock = new FakeClock()
  readonly relays: readonly ReachRelay[]
  readonly ends: readonly [ReachWorldEnd, ReachWorldEnd]
  /** When copies of a packet arrive, in milliseconds from now. None: it is lost. */
  delays: () => readonly number[] = () => [20]
  #travelling: Travelling[] = []

  constructor(kinds: readonly [NatKind, NatKind], relays: number) {
    const addresses = Array.from({ length: relays }, (_, i) => `203.0.113.${i + 1}`)
    const [one, other] = kinds
    this.ends = [this.#end('paris', one, '198.51.100.1'), this.#end('oslo', other, '192.0.2.1')]
    this.relays = addresses.map((address) => {
      const keys = generateWireguardKey()
      return { address, keys, bindings: this.#bindings(address, keys), isDeaf: false, isGone: false }
    })
  }

  /** Both ends want the link by all relays. `places`: where each says of the other that it can be called. */
  async begin(places: readonly string[] = []): Promise<void> {
    for (const end of this.ends) {
      const far = this.#farOf(end)
      const wants = this.relays.map(({ address, keys }, i) => ({
        ...{ key: far.name, remoteLane: 0, identity: far.keys.publicKey },
        relay: {
          ...{ cluster: `relay${i}`, endpoint: `relay${i}`, identity: keys.publicKey },
          address: parseAddress(address),
        },
      }))
      const own = { clusterset: CLUSTERSET, identity: end.keys.publicKey, agree: agreementOf(end.keys.privateKey) }
      await end.calls.apply(
        wants,
        {
          ...{ own, ports: new Map([[0, 4500]]), mayProbe: () => true },
          places: new Map([[far.name, places.map((text) => parseAddressPort(text))]]),
        },
        AbortSignal.timeout(10_000),
      )
    }
  }

  /** The relay begins again without what it knew. */
  restart(relay: ReachRelay): void {
    relay.bindings = this.#bindings(relay.address, relay.keys)
  }

  async run(ms: number): Promise<void> {
    const untilMs = this.clock.monotonic() + ms
    while (this.clock.monotonic() < untilMs) await this.#step()
  }

  /** Runs until packets of the link pass both ways. Returns how long that took; Infinity if it did not within `mostMs`. */
  async untilPasses(mostMs: number): Promise<number> {
    const startMs = this.clock.monotonic()
    while (this.clock.monotonic() - startMs < mostMs) {
      await this.#step()
      if (this.passes()) return this.clock.monotonic() - startMs
    }
    return Infinity
  }

  /** Whether packets of the link pass both ways now. */
  passes(): boolean {
    return this.ends.every((end) => this.#passes(end))
  }

  /** Octets arrive at an end, as if from this place. */
  deliver(end: ReachWorldEnd, bytes: Buffer, from: string): void {
    const { address, port } = placeOf(from)
    end.socket?.onMessage(bytes, { address, port })
  }

  close(): void {
    for (const { calls } of this.ends) calls.close()
  }

  #end(name: string, kind: NatKind, address: string): ReachWorldEnd {
    const none = (): void => undefined
    const calls = new RelayCalls({
      ...{ nft: new FakeNft(), clock: this.clock, onChange: none, onDue: none },
      onError: (error) => {
        throw error
      },
      openSocket: (_address, _port, events) => {
        end.socket = events
        const send = (bytes: Buffer, to: string, port: number): void => this.#send(end, bytes, `${to}:${port}`)
        return { send, probeTcp: () => none, close: none }
      },
    })
    const end: ReachWorldEnd = {
      ...{ name, keys: generateWireguardKey(), nat: new FakeNat(kind, address), calls, socket: undefined },
      ...{ heard: [], sent: [], downMs: 0 },
    }
    return end
  }

  #bindings(address: string, { privateKey, publicKey }: ReturnType<typeof generateWireguardKey>): Bindings {
    const bindings = new Bindings({
      ...{ clock: this.clock, clusterset: CLUSTERSET, identity: publicKey, agree: agreementOf(privateKey) },
      ...{ address: parseAddress(address), controlPort: RELAY_PORT, ports: { first: 4601, last: 4650 } },
      ...{ limits: DEFAULT_LIMITS, randomBytes },
    })
    const ends = this.ends.map(({ name, keys }) => ({ member: name, identity: keys.publicKey }))
    bindings.apply({ kind: 'ends', ends, mayLink: () => true })
    return bindings
  }

  #farOf(end: ReachWorldEnd): ReachWorldEnd {
    return end === this.ends[0] ? this.ends[1] : this.ends[0]
  }

  async #step(): Promise<void> {
    await this.clock.advance(STEP_MS)
    const nowMs = this.clock.monotonic()
    const due = this.#travelling.filter(({ atMs }) => atMs <= nowMs).sort((a, b) => a.atMs - b.atMs)
    this.#travelling = this.#travelling.filter(({ atMs }) => atMs > nowMs)
    for (const { arrive } of due) arrive()
    for (const end of this.ends) end.calls.send()
    for (const end of this.ends) {
      end.downMs = this.#passes(end) ? 0 : end.downMs + STEP_MS
      const far = this.#farOf(end).name
      if (end.downMs >= DOWN_MS && end.calls.punched().has(far)) end.calls.lost(far)
      const [relayed] = end.calls.places().get(far) ?? []
      if (end.downMs >= FAILED_MS && relayed !== undefined) end.calls.failed(far, relayed.at)
    }
  }

  #travel(arrive: () => void): void {
    const nowMs = this.clock.monotonic()
    for (const ms of this.delays()) this.#travelling.push({ atMs: nowMs + ms, arrive })
  }

  #send(end: ReachWorldEnd, bytes: Buffer, to: string): void {
    end.sent.push(to)
    const from = end.nat.out(to)
    const relay = this.#relayAt(to)
    this.#travel(() => {
      if (relay !== undefined) this.#ask(relay, bytes, { end, from, port: placeOf(to).port })
      else if (this.#farOf(end).nat.lets(from, to)) this.deliver(this.#farOf(end), bytes, from)
    })
  }

  #ask(relay: ReachRelay, bytes: Buffer, asked: { end: ReachWorldEnd; from: string; port: number }): void {
    if (relay.isGone) return
    const { end, from, port } = asked
    const { answer } = relay.bindings.apply({ kind: 'question', bytes, from: parseAddressPort(from), port })
    if (answer === undefined) return
    const source = `${relay.address}:${port}`
    this.#travel(() => {
      if (!end.nat.lets(source, from)) return
      end.heard = [...end.heard.slice(-9), { bytes: answer, from: source }]
      this.deliver(end, answer, source)
    })
  }

  #relayAt(place: string): ReachRelay | undefined {
    return this.relays.find(({ address }) => address === placeOf(place).address)
  }

  /** Whether a packet of the link gets from this end to the other one. */
  #passes(end: ReachWorldEnd): boolean {
    const far = this.#farOf(end)
    const punched = end.calls.punched().get(far.name)
    const places = punched === undefined ? (end.calls.places().get(far.name) ?? []).map(({ at }) => at) : [punched]
    return places.some((at) => this.#passesAt(end, far, at))
  }

  #passesAt(end: ReachWorldEnd, far: ReachWorldEnd, at: AddressPort): boolean {
    const to = formatAddressPort(at)
    const from = end.nat.out(to)
    const relay = this.#relayAt(to)
    if (relay === undefined) return far.nat.lets(from, to)
    if (relay.isDeaf || relay.isGone) return false
    const path = relay.bindings.paths().find((one) => formatAddressPort(one.from) === from && one.port === at.port)
    return path !== undefined && far.nat.lets(`${relay.address}:${path.leaves}`, formatAddressPort(path.to))
  }
}

function placeOf(text: string): { readonly address: string; readonly port: number } {
  const [address = '', port = ''] = text.split(':')
  return { address, port: Number(port) }
}
