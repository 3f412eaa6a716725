/**
 * A relay: takes questions at its control port and at the ports of pairs, and keeps the kernel's table as the bindings
 * are (bindings.ts, plan-relay-table.ts). Packets of links never come to this process. An end that is bound is answered
 * only once the kernel has its path, so that an answer is true.
 *
 * If the process ends, the table stays and goes on forwarding for those that were bound; the next run replaces it.
 */
import {
  type ElementMaps,
  type Nft,
  TableApplier,
  elementDiff,
  elementStatements,
  elementsOf,
  formatNft,
} from '../../../kernel/nft/nft.ts'
import { type OpenProbeSocket, openUdpProbeSocket } from '../../../kernel/probing/probing.ts'
import { type AddressPort, formatAddress, parseAddress } from '../../../model/addresses/addresses.ts'
import { NFT_TABLE_RELAY } from '../../../model/model.ts'
import { type Clock, ReconcileLoop, WakeTimer } from '../../../reconcile/reconcile.ts'
import { Bindings, type BindingsInit } from './bindings.ts'
import type { QuestionOutcome, RelayEnd, SecondAnswer } from './relay-events.ts'
import { type RelayTableInit, SET_CARRIED, planRelayTable } from './plan-relay-table.ts'

export type RelayConfig = Omit<BindingsInit, 'clock'> & Pick<RelayTableInit, 'bytesPerSecond' | 'memberBytesPerSecond'>

export interface RelayDeps {
  /** Of family ip. */
  readonly nft: Nft
  readonly clock: Clock
  readonly openSocket?: OpenProbeSocket
  /** Called after each round that failed, and for each port that cannot be used. The relay goes on. */
  readonly onError: (error: unknown) => void
  /** Called for each question. */
  readonly onQuestion?: (outcome: QuestionOutcome) => void
}

/** How often bindings are looked over, and the octets of pairs are read. Reading starts a process. */
const LOOK_MS = 1000
const COUNT_MS = 5000
/** How often the table is compared with what was sent. */
const VERIFY_MS = 25_000
const ROUNDS = { minMs: 2, resyncMs: LOOK_MS, retryMinMs: 200, retryMaxMs: 5000, pokedRetryMs: 200 }
/** Answers that wait for the kernel. Further ones are dropped: their ends ask again. */
const MOST_WAITING = 1024

interface Waiting {
  readonly port: number
  readonly to: AddressPort
  readonly answer: Buffer
}

interface OpenSocket {
  readonly send: (bytes: Buffer, to: AddressPort) => void
  readonly close: () => void
  /** Resolves when the socket takes packets, or never will. */
  readonly ready: Promise<void>
}

export class RelayServer {
  readonly #deps: RelayDeps
  readonly #config: RelayConfig
  readonly #bindings: Bindings
  readonly #table: TableApplier
  readonly #loop: ReconcileLoop
  readonly #late: WakeTimer
  readonly #sockets = new Map<number, OpenSocket>()
  /** What the kernel had counted at the last reading, by the keys of SET_CARRIED. */
  #counted: ReadonlyMap<string, number> = new Map()
  #countedMs = -Infinity
  /** What ends have sent since the reading before. */
  #bytesPerSecond = 0
  #waiting: Waiting[] = []
  /** A port that answers ends that measure whom their NAT lets in. What comes to it is not read. */
  #other: OpenSocket | undefined
  #isOtherReady = false
  #elements: ElementMaps = new Map()

  constructor(deps: RelayDeps, config: RelayConfig) {
    const { clock, nft, onError } = deps
    this.#deps = deps
    this.#config = config
    this.#bindings = new Bindings({ ...config, clock })
    this.#table = new TableApplier({ nft, clock, table: NFT_TABLE_RELAY, comparison: 'elements with the plan' })
    this.#loop = new ReconcileLoop({ clock, onError }, ROUNDS, (signal) => this.#round(signal))
    this.#late = new WakeTimer(clock, () => this.#sendLate())
  }

  /**
   * Ends that may use this relay, all of them. `mayLink`: whether ends of two members may be linked. `isTransit`:
   * whether relays alone may carry that. Absent: never.
   */
  setEnds(
    ends: readonly RelayEnd[],
    mayLink: (a: string, b: string) => boolean,
    isTransit?: (a: string, b: string) => boolean,
  ): void {
    if (this.#bindings.apply({ kind: 'ends', ends, mayLink, isTransit }).isChanged) this.#loop.poke()
  }

  /** How busy the relay is, from 0 to 1: by its pairs, or by what they send. */
  load(): number {
    const { limits, memberBytesPerSecond } = this.#config
    const byPairs = this.#bindings.pairCount / limits.mostPairs
    return Math.min(1, Math.max(byPairs, this.#bytesPerSecond / memberBytesPerSecond))
  }

  /** Serves until the signal. The table stays, so that a restart of the process does not cut links. */
  async run(signal: AbortSignal): Promise<void> {
    try {
      await this.#loop.run(signal)
    } finally {
      this.#late.close()
      for (const { close } of this.#sockets.values()) close()
      this.#sockets.clear()
      this.#other?.close()
    }
  }

  async #round(signal: AbortSignal): Promise<void> {
    this.#bindings.apply({ kind: 'time' })
    await this.#keepSockets()
    const waiting = this.#waiting.splice(0)
    await this.#applyTable(signal)
    for (const one of waiting) this.#sockets.get(one.port)?.send(one.answer, one.to)
    const nowMs = this.#deps.clock.monotonic()
    const sinceMs = nowMs - this.#countedMs
    if (sinceMs < COUNT_MS) return
    this.#countedMs = nowMs
    await this.#count(sinceMs, signal)
  }

  /** A socket for each port, so that questions get here and no other program has the port. */
  async #keepSockets(): Promise<void> {
    const wanted = new Set([this.#config.controlPort, ...this.#bindings.openPorts()])
    for (const [port, { close }] of this.#sockets) {
      if (wanted.has(port)) continue
      close()
      this.#sockets.delete(port)
    }
    for (const port of wanted) if (!this.#sockets.has(port)) this.#sockets.set(port, this.#open(port))
    this.#other ??= this.#openOther()
    await Promise.all([this.#other, ...this.#sockets.values()].map(({ ready }) => ready))
  }

  #open(port: number): OpenSocket {
    return this.#newSocket(port, {
      onMessage: (bytes, from) => this.#take(bytes, { address: parseAddress(from.address), port: from.port }, port),
      onError: () => this.#sockets.delete(port),
    })
  }

  /** Some port that is none of those of pairs: the table passes its packets by. */
  #openOther(): OpenSocket {
    const socket = this.#newSocket(0, {
      onMessage: () => undefined,
      onError: () => {
        this.#other = undefined
        this.#isOtherReady = false
      },
    })
    void socket.ready.then(() => (this.#isOtherReady = this.#other === socket))
    return socket
  }

  /** After `events.onError` the next round opens the socket again. */
  #newSocket(
    port: number,
    events: { readonly onMessage: Parameters<OpenProbeSocket>[2]['onMessage']; readonly onError: () => void },
  ): OpenSocket {
    const { openSocket = openUdpProbeSocket, onError } = this.#deps
    const { promise: ready, resolve } = Promise.withResolvers<undefined>()
    const socket = openSocket(formatAddress(this.#config.address), port, {
      onReady: () => resolve(undefined),
      onMessage: events.onMessage,
      onError: (error) => {
        events.onError()
        onError(error)
        resolve(undefined)
      },
    })
    const send = (bytes: Buffer, to: AddressPort): void => socket.send(bytes, formatAddress(to.address), to.port)
    return { send, close: () => socket.close(), ready }
  }

  #take(bytes: Buffer, from: AddressPort, port: number): void {
    const { answer, second, isChanged, outcome } = this.#bindings.apply({ kind: 'question', bytes, from, port })
    if (outcome !== undefined) this.#deps.onQuestion?.(outcome)
    if (outcome === 'held') this.#wakeLate()
    if (isChanged) this.#loop.poke()
    // Without the second answer, the first one would say that the NAT keeps it out.
    if (second !== undefined && !this.#sendSecond(second)) return
    if (answer === undefined) return
    if (!isChanged) this.#sockets.get(port)?.send(answer, from)
    else if (this.#waiting.length < MOST_WAITING) this.#waiting.push({ port, to: from, answer })
  }

  /** Returns whether it was sent. */
  #sendSecond({ leaves, to, answer }: SecondAnswer): boolean {
    const other = this.#isOtherReady ? this.#other : undefined
    const socket = leaves === 'other port' ? other : this.#sockets.get(this.#config.controlPort)
    socket?.send(answer, to)
    return socket !== undefined
  }

  /** The rounds of the loop would be too late: they wait for the kernel. */
  #sendLate(): void {
    const { late = [], isChanged } = this.#bindings.apply({ kind: 'late' })
    for (const { to, answer } of late) this.#sockets.get(this.#config.controlPort)?.send(answer, to)
    if (isChanged) this.#loop.poke()
    this.#wakeLate()
  }

  #wakeLate(): void {
    const dueMs = this.#bindings.lateDueMs
    if (dueMs !== Infinity) this.#late.at(dueMs)
  }

  async #applyTable(signal: AbortSignal): Promise<void> {
    const { nft, clock } = this.#deps
    const { address, controlPort, ports, limits, bytesPerSecond, memberBytesPerSecond } = this.#config
    const init: RelayTableInit = {
      address,
      ports: { first: Math.min(controlPort, ports.first), last: Math.max(controlPort, ports.last) },
      mostPairs: limits.mostPairs,
      openPorts: [...this.#sockets.keys()],
      paths: this.#bindings.paths(),
      known: this.#bindings.known(),
      bytesPerSecond,
      memberBytesPerSecond,
    }
    const statements = planRelayTable(init)
    const elements = elementsOf(statements)
    const fixed = statements.filter(({ verb }) => verb !== 'add-elements')
    const planned = {
      fixed: formatNft(fixed, nft.family),
      replacement: () => statements,
      delta: () => elementStatements(NFT_TABLE_RELAY, elementDiff(this.#elements, elements)),
      elements: () => elements,
    }
    const looks = clock.monotonic() - this.#table.lookedAtMs >= VERIFY_MS
    await this.#table.apply(planned, { looks, onSent: () => undefined }, signal)
    this.#elements = elements
  }

  async #count(sinceMs: number, signal: AbortSignal): Promise<void> {
    const { sets } = await this.#deps.nft.counts(NFT_TABLE_RELAY, [SET_CARRIED], signal)
    const counted = new Map((sets.get(SET_CARRIED) ?? []).map(({ key, bytes }) => [key, bytes]))
    const octets = new Map<number, number>()
    for (const [key, bytes] of counted) {
      const before = this.#counted.get(key) ?? 0
      // A table that was replaced counts from zero.
      octets.set(Number(key), bytes >= before ? bytes - before : bytes)
    }
    this.#counted = counted
    const sent = [...octets.values()].reduce((sum, count) => sum + count, 0)
    // The first reading has no time before it.
    this.#bytesPerSecond = sinceMs === Infinity ? 0 : (sent * 1000) / sinceMs
    if (this.#bindings.apply({ kind: 'carried', octets }).isChanged) this.#loop.poke()
  }
}
