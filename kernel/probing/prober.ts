/**
 * Sends probes to far ends and answers theirs, through one socket bound to one address of this node. Every packet is
 * checked: only the address and port of a peer, only complete probes with the number of the sender of the question, and
 * only answers to outstanding questions are accepted. A question carries the number of its sender, and the answer
 * repeats it.
 *
 *   ask ── answered ──► pause (probe-timing.ts) ──► ask …
 *    └──── not in time: a miss ──► ask several times, each with a TCP probe, until suspected, and then wait once
 *
 * A process that restarts or has died answers nothing, while its kernel carries traffic as before. So a known peer that
 * is silent also gets TCP probes (ProbeSocket.probeTcp): if its kernel answers, the path is up.
 */
import type { ConnectionState } from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { type Failure, messageOf, reasonOf } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { PathSize, type SizeBounds } from './path-size.ts'
import type { PeerHealthInit } from './peer-health.ts'
import {
  type Notice,
  type Probe,
  type SizedProbe,
  decodeNotice,
  decodeProbe,
  encodeNotice,
  encodeProbe,
} from './probe-packet.ts'
import type { OpenProbeSocket, ProbeSocket } from './probe-socket.ts'
import { type Moment, PROBE_INTERVALS, type ProbeIntervals, patienceMs, pauseMs } from './probe-timing.ts'
import {
  type MeasuredPeer,
  type PeerEntry,
  type ProbedPeer,
  count,
  measured,
  newEntry,
  noteWhoAnswered,
  stopEntry,
} from './probed-peer.ts'

export type { MeasuredPeer, ProbedPeer } from './probed-peer.ts'

const REOPEN_MS = 1000
/** Interval of questions in a row, long enough that a short burst of loss does not take all of them. */
const ROW_MS = 10
/** Limit of far ends with a trial of sizes at the same time. Each is sent about 150 kB/s for half a second. */
const MOST_TRIED = 16
const TIMER_STEP_MS = 10

export class Prober<P extends ProbedPeer = ProbedPeer> {
  readonly #deps: ProberDeps<P>
  readonly #init: ProberInit
  readonly #intervals: ProbeIntervals
  readonly #session: number
  readonly #peers = new Map<string, PeerEntry<P>>()
  #running = false
  #socket: ProbeSocket | undefined
  #reopenAtMs = 0
  #problem: Failure | undefined

  constructor(deps: ProberDeps<P>, init: ProberInit) {
    this.#deps = deps
    this.#init = init
    this.#intervals = init.intervals ?? PROBE_INTERVALS
    this.#session = Math.floor(deps.clock.random() * 0x1_0000_0000)
  }

  get address(): string {
    return this.#init.address
  }

  /** Why probing is impossible. Undefined if no problem is known. */
  get problem(): Failure | undefined {
    return this.#problem
  }

  /** Replaces the peers; remaining ones keep their state. New peers whose key is in `up` start as up. */
  setPeers(peers: readonly P[], up: ReadonlySet<string> = new Set()): void {
    const wanted = new Map(peers.map((peer) => [peer.address, peer]))
    for (const [address, entry] of this.#peers) {
      if (wanted.get(address)?.key === entry.peer.key) continue
      stopEntry(entry)
      this.#peers.delete(address)
    }
    for (const peer of peers) {
      const known = this.#peers.get(peer.address)
      if (known === undefined) {
        const entry = this.#newPeer(peer, up.has(peer.key))
        this.#peers.set(peer.address, entry)
        if (this.#running) this.#askSoon(entry)
        continue
      }
      const isAnother = known.peer.identity !== peer.identity
      known.peer = peer
      this.#setSizes(known)
      // The new gateway waits for a packet from here, because none of its own was accepted before.
      if (isAnother) this.#askAtOnce(known)
    }
  }

  /** Returns the measurements by the keys of the peers. */
  health(): Map<string, MeasuredPeer> {
    return new Map([...this.#peers.values()].map((entry) => [entry.peer.key, measured(entry)]))
  }

  /** Sends a notice to the far ends with these keys. Only a receipt proves that it has arrived. */
  notify(keys: ReadonlySet<string>, words: Pick<Notice, 'mark' | 'step'>): void {
    const bytes = encodeNotice({ ...words, type: 'notice', lane: this.#init.number })
    for (const entry of this.#peers.values()) if (keys.has(entry.peer.key)) this.#sendCounted(entry, bytes)
  }

  /** Checks the path size to these far ends soon, because another process has found that it decreased or increased. */
  suspect(keys: ReadonlySet<string>, what: 'less' | 'more'): void {
    for (const { peer, size } of this.#peers.values()) if (keys.has(peer.key)) size?.suspect(what)
  }

  /**
   * Sends no more questions to the far end with this key, until wake(). It keeps its state, and its questions are
   * answered. Does nothing unless it is up.
   */
  sleep(key: string): void {
    const entry = this.#entryOf(key)
    if (entry?.health.state.is !== 'up') return
    entry.asleep = true
    stopEntry(entry)
  }

  /** Asks this far end again, at once. Does nothing if it does not sleep. */
  wake(key: string): void {
    const entry = this.#entryOf(key)
    if (entry?.asleep !== true) return
    entry.asleep = false
    // The silence since the last answer was meant, and shows nothing about the path.
    entry.health.onAnswer()
    entry.size?.start()
    if (this.#running) this.#turn(entry, 0, () => this.#ask(entry))
  }

  /**
   * Asks those of these far ends that have never answered, at once: they have just been called, and the question that the
   * cable keeps until its handshake is over arrives with it. Call it right after the call.
   */
  askNew(keys: ReadonlySet<string>): void {
    for (const entry of this.#peers.values()) {
      if (keys.has(entry.peer.key) && entry.health.state.is === 'connecting') this.#askAtOnce(entry)
    }
  }

  #entryOf(key: string): PeerEntry<P> | undefined {
    return [...this.#peers.values()].find(({ peer }) => peer.key === key)
  }

  /** Probes until the signal aborts. */
  run(signal: AbortSignal): Promise<void> {
    this.#running = true
    this.#openSocket()
    for (const entry of this.#peers.values()) this.#askSoon(entry)
    return new Promise((resolve) => {
      const end = (): void => {
        this.#running = false
        for (const entry of this.#peers.values()) stopEntry(entry)
        this.#socket?.close()
        this.#socket = undefined
        resolve()
      }
      if (signal.aborted) end()
      else signal.addEventListener('abort', end, { once: true })
    })
  }

  #newPeer(peer: P, startsUp: boolean): PeerEntry<P> {
    const entry = newEntry(peer, this.#deps, { ...this.#init, startsUp })
    this.#setSizes(entry)
    return entry
  }

  #setSizes(entry: PeerEntry<P>): void {
    const { sizes } = entry.peer
    if (sizes === undefined) {
      entry.size?.stop()
      entry.size = undefined
    } else if (entry.size === undefined) {
      entry.size = this.#newSize(entry, sizes)
      if (entry.health.state.is === 'up' && !entry.asleep) entry.size.start()
    } else entry.size.setBounds(sizes)
  }

  #newSize(entry: PeerEntry<P>, sizes: SizeBounds): PathSize {
    const { clock, isBusy, onSize } = this.#deps
    return new PathSize(
      {
        clock,
        ask: (size) => this.#sendSized(entry, { type: 'sizedQuestion', size }),
        moment: () =>
          entry.health.state.is === 'up' && !entry.kernelOnly && this.#running
            ? { busy: isBusy(entry.peer), patienceMs: patienceMs(this.#moment(entry), entry.stats.figures()) }
            : undefined,
        isCrowded: () => [...this.#peers.values()].filter(({ size }) => size?.isTrying).length >= MOST_TRIED,
        onChange: (what) => {
          const others = [...this.#peers.values()].filter((one) => one !== entry)
          if (what !== 'same') for (const { size } of others) size?.suspect(what)
          onSize?.(entry.peer)
        },
      },
      sizes,
      entry.peer.sizeBefore,
    )
  }

  /**
   * Schedules an action. A failed action must not end the probing: without probes, a dead path would stay up for ever.
   */
  #turn(entry: PeerEntry<P>, ms: number, action: () => void): void {
    entry.cancel()
    // Node handles timers of equal length most cheaply.
    entry.cancel = this.#deps.clock.setTimer(Math.ceil(ms / TIMER_STEP_MS) * TIMER_STEP_MS, () => {
      try {
        action()
      } catch (error) {
        const why = messageOf(error)
        this.#deps.logger.error('cannot send a probe; retrying', { of: this.#init.name, reason: 'RoundFailed', why })
        this.#turn(entry, this.#intervals.idleMs, () => this.#ask(entry))
      }
    })
  }

  /** Spreads first questions over a short time. */
  #askSoon(entry: PeerEntry<P>): void {
    this.#turn(entry, this.#deps.clock.random() * this.#intervals.quickMs, () => this.#ask(entry))
  }

  #ask(entry: PeerEntry<P>): void {
    this.#openSocket()
    entry.answered = 'no'
    this.#send(entry)
    entry.size?.onBeat()
    if (entry.kernelOnly) this.#probeTcp(entry)
    this.#wait(entry, 1)
  }

  /** Sends several questions without waiting for the deadline of each, so that a dead path is noticed sooner. */
  #askInRow(entry: PeerEntry<P>, number: number, asked = 0): void {
    if (asked === 0) {
      this.#openSocket()
      entry.answered = 'no'
      entry.size?.onBeat()
    }
    this.#send(entry)
    this.#probeTcp(entry)
    const isLast = asked + 1 >= number || entry.answered !== 'no'
    if (isLast) this.#wait(entry, asked + 1)
    else this.#turn(entry, ROW_MS, () => this.#askInRow(entry, number, asked + 1))
  }

  /** Any of the last `asked` questions may still be answered. */
  #wait(entry: PeerEntry<P>, asked: number): void {
    const patience = patienceMs(this.#moment(entry), entry.stats.figures())
    this.#turn(entry, patience, () => this.#look(entry, patience, asked))
  }

  /** The deadline of the last question has passed. */
  #look(entry: PeerEntry<P>, waitedMs: number, asked: number): void {
    const nowMs = this.#deps.clock.monotonic()
    const { answered, tcpProbes, health } = entry
    tcpProbes.expire(nowMs)
    if (answered === 'no') {
      const mayYetAnswer = tcpProbes.mayYetAnswer(nowMs, entry.stats.figures())
      for (let i = 0; i < asked; i += 1) health.onMiss(mayYetAnswer)
      const { state } = health
      if (state.is === 'up') {
        this.#askInRow(entry, Math.max(1, this.#init.missesUntilSuspect - state.misses))
        return
      }
      if (state.is === 'down') this.#probeTcp(entry)
    } else {
      tcpProbes.silenceEnds()
      noteWhoAnswered(entry, answered)
    }
    const pause = pauseMs(this.#moment(entry)) - waitedMs
    this.#turn(entry, Math.max(0, pause), () => this.#ask(entry))
  }

  #moment(entry: PeerEntry<P>): Moment {
    const { health, peer, answered } = entry
    const { clock, isBusy } = this.#deps
    return {
      intervals: this.#intervals,
      state: health.state,
      suspected: health.suspected,
      untilUnansweredMs: this.#untilUnansweredMs(entry),
      busy: isBusy(peer),
      answered: answered !== 'no',
      nowMs: clock.monotonic(),
      random: clock.random(),
    }
  }

  /** Undefined: it already is unanswered, or nothing else is to happen then. */
  #untilUnansweredMs({ health }: PeerEntry<P>): number | undefined {
    const { unansweredAtMs } = health
    return unansweredAtMs === undefined ? undefined : unansweredAtMs - this.#deps.clock.monotonic()
  }

  /**
   * Asks these far ends now that would be asked later, because another path to the same place has become silent. Those
   * that are asked already, that sleep or that are not up are left alone.
   */
  hasten(keys: ReadonlySet<string>): void {
    for (const entry of this.#peers.values()) {
      const isWaiting = entry.answered !== 'no' && !entry.asleep && entry.health.state.is === 'up'
      if (this.#running && isWaiting && keys.has(entry.peer.key)) this.#turn(entry, 0, () => this.#ask(entry))
    }
  }

  /** Sends a question outside the regular intervals, at most once per busy interval. */
  #askAtOnce(entry: PeerEntry<P>): void {
    const nowMs = this.#deps.clock.monotonic()
    if (!this.#running || nowMs - entry.askedAtOnceMs < this.#intervals.busyMs) return
    entry.askedAtOnceMs = nowMs
    this.#send(entry)
  }

  #send(entry: PeerEntry<P>): void {
    const nowMs = this.#deps.clock.monotonic()
    const sentMicros = BigInt(Math.floor(nowMs * 1000))
    entry.sequence = (entry.sequence + 1) >>> 0
    entry.askedMs = nowMs
    const { sequence } = entry
    const probe: Probe = { type: 'question', lane: this.#init.number, session: this.#session, sequence, sentMicros }
    entry.stats.onSent(sequence, nowMs)
    this.#sendCounted(entry, encodeProbe(probe))
    this.#deps.count('sent')
  }

  /** Sends a sized probe, which does not affect health. Returns its sequence number. */
  #sendSized(entry: PeerEntry<P>, probe: Pick<SizedProbe, 'type' | 'size'>): number {
    entry.sequence = (entry.sequence + 1) >>> 0
    const { sequence } = entry
    const sentMicros = BigInt(Math.floor(this.#deps.clock.monotonic() * 1000))
    const session = this.#session
    const carries = entry.size?.sent ?? 0
    const lane = this.#init.number
    this.#sendCounted(entry, encodeProbe({ ...probe, lane, session, sequence, sentMicros, carries }))
    return sequence
  }

  #sendCounted(entry: PeerEntry<P>, bytes: Buffer): void {
    count(entry, bytes)
    entry.sentProbes += 1
    this.#socket?.send(bytes, entry.peer.address, this.#init.port)
  }

  #probeTcp(entry: PeerEntry<P>): void {
    const nowMs = this.#deps.clock.monotonic()
    const answer = (): void => {
      // Only the first answer to a question counts.
      if (entry.answered !== 'no' || this.#peers.get(entry.peer.address) !== entry) return
      entry.answered = 'kernel'
      entry.health.onAnswer()
      this.#hurry(entry)
    }
    entry.tcpProbes.add(nowMs, this.#socket?.probeTcp(entry.peer.address, this.#init.port, answer))
  }

  #openSocket(): void {
    const { clock, logger, openSocket } = this.#deps
    if (this.#socket !== undefined || clock.monotonic() < this.#reopenAtMs) return
    const { name, address, port } = this.#init
    this.#socket = openSocket(address, port, {
      onMessage: (bytes, from) => this.#onMessage(bytes, from),
      onReady: () => (this.#problem = undefined),
      onError: (error) => {
        const problem = `cannot probe ${name} from ${address}:${port}: ${error.message}`
        // The socket is reopened once a second, but the same problem is logged once.
        if (problem !== this.#problem?.message) {
          const fields = { reason: 'ProbeSocketFailed', of: name, why: problem } as const
          logger.warn('the probe socket failed; opening it again', fields)
        }
        this.#problem = { message: problem, reason: reasonOf(error) ?? 'ProbeSocketFailed' }
        this.#socket = undefined
        this.#reopenAtMs = clock.monotonic() + REOPEN_MS
      },
    })
  }

  #onMessage(bytes: Buffer, from: { readonly address: string; readonly port: number }): void {
    const entry = this.#peers.get(from.address)
    const notice = decodeNotice(bytes)
    if (entry !== undefined && notice !== undefined && this.#onNotice(entry, notice, from.port)) {
      count(entry, bytes)
      return
    }
    const probe = decodeProbe(bytes)
    const isQuestion = probe?.type === 'question' || probe?.type === 'sizedQuestion'
    const asks = isQuestion ? entry?.peer.number : this.#init.number
    if (entry === undefined || from.port !== this.#init.port || probe === undefined || probe.lane !== asks) {
      this.#deps.count('ignored')
      return
    }
    count(entry, bytes)
    switch (probe.type) {
      case 'question':
        this.#sendCounted(entry, encodeProbe({ ...probe, type: 'answer' }))
        // The received question shows that the path works, before the next regular question does.
        if (entry.health.state.is === 'connecting') this.#askAtOnce(entry)
        this.#deps.onQuestion?.(entry.peer)
        return
      case 'sizedQuestion':
        entry.size?.onReport(probe.carries)
        this.#sendCounted(entry, encodeProbe({ ...probe, type: 'sizedAnswer', carries: entry.size?.sent ?? 0 }))
        return
      case 'answer':
      case 'sizedAnswer':
        this.#onAnswer(entry, probe)
        return
    }
  }

  #onAnswer(entry: PeerEntry<P>, probe: Probe | SizedProbe): void {
    const { count, clock } = this.#deps
    const isOurs = probe.session === this.#session
    if (isOurs && probe.type === 'sizedAnswer' && entry.size?.onAnswer(probe.sequence, probe.size) === true) {
      entry.size.onReport(probe.carries)
      return
    }
    // One answer for each size is enough: later ones are ignored without being counted.
    if (isOurs && probe.type === 'sizedAnswer') return
    if (!isOurs || probe.type !== 'answer' || !entry.stats.onAnswer(probe.sequence, clock.monotonic())) {
      count('ignored')
      return
    }
    count('answered')
    entry.answered = 'probe'
    entry.health.onAnswer()
    this.#hurry(entry)
  }

  /**
   * Sends the next question before the remaining time of this one ends, because a far end that is down comes up after
   * consecutive answers.
   */
  #hurry(entry: PeerEntry<P>): void {
    if (entry.health.state.is !== 'down') return
    entry.kernelOnly = entry.answered === 'kernel'
    entry.tcpProbes.silenceEnds()
    const { busyMs, quickMs } = this.#intervals
    // Questions keep the regular interval if the path is short enough: a short moment in which packets pass does not
    // make the path up.
    const pause = Math.max(quickMs, entry.askedMs + busyMs - this.#deps.clock.monotonic())
    this.#turn(entry, pause, () => this.#ask(entry))
  }

  /** Returns false if the notice counts as ignored. */
  #onNotice(entry: PeerEntry<P>, notice: Notice, port: number): boolean {
    const { onNotice, onReceipt } = this.#deps
    if (port !== this.#init.port) return false
    if (notice.type === 'receipt') {
      if (notice.lane !== this.#init.number || onReceipt === undefined) return false
      onReceipt(entry.peer, notice)
      return true
    }
    if (notice.lane !== entry.peer.number || onNotice === undefined) return false
    if (onNotice(entry.peer, notice)) {
      this.#sendCounted(entry, encodeNotice({ ...notice, type: 'receipt' }))
    }
    return true
  }
}

// The dependencies and settings of a prober.

interface ProberDeps<P extends ProbedPeer> {
  readonly clock: Clock
  readonly logger: Pick<Logger, 'warn' | 'error'>
  readonly openSocket: OpenProbeSocket
  /**
   * Counts questions sent, answers to them, and ignored packets, which are neither a question of a peer nor such an
   * answer.
   */
  readonly count: (what: 'sent' | 'answered' | 'ignored') => void
  /** Called synchronously on each change of state. */
  readonly onTransition: (peer: P, from: ConnectionState, to: ConnectionState) => void
  /** Called likewise when a far end that is up becomes suspected or stops being suspected. */
  readonly onSuspect: (peer: P, suspected: boolean) => void
  /** Called likewise when a far end that is up becomes unanswered or stops being so (PeerHealth). */
  readonly onUnanswered?: (peer: P, unanswered: boolean) => void
  /** Called for a notice of a far end. If it returns true, a receipt is sent. If absent, notices are ignored. */
  readonly onNotice?: (peer: P, notice: Notice) => boolean
  /** Called for a receipt of a notice that this process sent. */
  readonly onReceipt?: (peer: P, notice: Notice) => void
  /** Called after a question of a far end was answered: it is awake. */
  readonly onQuestion?: (peer: P) => void
  /** Called likewise when the size of packets that pass changes. */
  readonly onSize?: (peer: P) => void
  /** True if traffic flowed to the far end in the last seconds. */
  readonly isBusy: (peer: P) => boolean
}

interface ProberInit extends Omit<PeerHealthInit, 'startsUp'> {
  /** For the log: `lane 0`, `the overlay`. */
  readonly name: string
  /** The number that our questions carry. */
  readonly number: number
  readonly address: string
  /** Port of both ends. */
  readonly port: number
  readonly intervals?: ProbeIntervals
}
