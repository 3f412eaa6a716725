/**
 * Follows the packets of one call through the tables of this network namespace: adds a table that makes the kernel trace
 * them, reads `nft monitor trace`, and removes the table in any case. If this process is killed, the kernel removes the
 * table with its owner, an older kernel traces nothing any more after the deadline, and `timeout` ends the reader.
 *
 * The reader does not say when it is ready, or that it has printed everything. So datagrams over loopback are traced too:
 * what one of them shows in the output, happened before it.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { type Socket, createSocket } from 'node:dgram'
import { once } from 'node:events'
import { NFT_TABLE_TRACE } from '../../model/model.ts'
import { type Clock, SystemClock } from '../../reconcile/reconcile.ts'
import { messageOf } from '../../runtime/runtime.ts'
import { isNotFound, toolEnvironment } from '../kernel.ts'
import { removeTable } from './apply-table.ts'
import type { Nft, NftStatement } from './nft-transaction.ts'
import { MOST_LINE, type TraceLine, parseTraceLine } from './parse-trace.ts'
import { SET_MARKERS, type TraceTable, type TracedCall, planTraceTable } from './plan-trace-table.ts'

/** Until the reader is ready, or has printed everything. Before it is ready, it reads all tables, which may be large. */
const READY_MS = 6000
const AGAIN_MS = 50
/** A packet passes a few dozen rules. */
const MOST_LINES = 2000
const MOST_BUFFERED = 1 << 20
const REMOVE_MS = 5000
/** The reader lives longer than the elements of the table, which end by themselves. */
const READER_SECONDS = 10

export interface TraceInit {
  /** Of the family of the call. Its process must live until the trace ends: the table belongs to it. */
  readonly nft: Nft
  readonly call: TracedCall
  /** After this time nothing is traced. */
  readonly seconds: number
  readonly clock?: Clock
}

export interface PacketTrace {
  /** Why nothing is traced. */
  readonly problem: string | undefined
  /** How many lines were not kept, because there were too many. */
  readonly leftOut: number
  /** All lines about packets of the call that the kernel has handled before. */
  lines(signal: AbortSignal): Promise<readonly TraceLine[]>
}

/** Runs `work` while packets of the call are traced. Throws only what `work` throws, and the signal's reason. */
export async function withTrace<T>(
  { nft, call, seconds, clock = new SystemClock() }: TraceInit,
  signal: AbortSignal,
  work: (trace: PacketTrace) => Promise<T>,
): Promise<T> {
  const table = `${NFT_TABLE_TRACE}_${randomBytes(4).toString('hex')}`
  const opened: Marker[] = []
  let reader: TraceReader | undefined
  let problem: string | undefined
  try {
    try {
      for (let i = 0; i < 2; i += 1) opened.push(await Marker.open(nft.family))
      const [ready, done] = opened as [Marker, Marker]
      await sweepTraces(nft, signal)
      await addTable(nft, { table, call, seconds, markers: opened.map(({ port }) => port) }, signal)
      reader = new TraceReader({ family: nft.family, table, markers: { ready, done } })
      reader.start(seconds + READER_SECONDS)
      if (!(await reader.shows(ready, clock, signal))) problem = reader.problem()
    } catch (error) {
      signal.throwIfAborted()
      problem = messageOf(error)
    }
    return await work({
      get problem() {
        return problem
      },
      get leftOut() {
        return reader?.leftOut ?? 0
      },
      lines: async (limited) => {
        const done = opened[1]
        const isWhole = done !== undefined && (await reader?.shows(done, clock, limited)) === true
        if (!isWhole) problem ??= 'nft monitor trace did not print everything'
        return reader?.lines ?? []
      },
    })
  } finally {
    reader?.end()
    for (const marker of opened) marker.close()
    // Also after an interrupt. What remains, traces nothing after the deadline.
    await removeTable(nft, table, AbortSignal.timeout(REMOVE_MS)).catch(() => false)
  }
}

interface Markers {
  readonly ready: Marker
  readonly done: Marker
}

/** Adds the table, with an owner where kernel and tool know owners. Throws KernelError. */
async function addTable(nft: Nft, init: Omit<TraceTable, 'family' | 'owned'>, signal: AbortSignal): Promise<void> {
  const { table } = init
  const plan = (owned: boolean): NftStatement[] => planTraceTable({ ...init, family: nft.family, owned })
  const isAdded = await nft.run(plan(true), signal).then(
    () => nft.tables(table, signal).then((found) => found.includes(table)),
    () => false,
  )
  signal.throwIfAborted()
  // Without a session, the process that adds a table ends at once, and the table with it.
  if (!isAdded) await nft.run(plan(false), signal)
}

/** Removes tables of traces that were killed and have ended by themselves. Those of others that run stay. */
export async function sweepTraces(nft: Nft, signal: AbortSignal): Promise<void> {
  for (const table of await nft.tables(`${NFT_TABLE_TRACE}_`, signal)) {
    try {
      const left = await nft.elements(table, SET_MARKERS, signal)
      if (left.length === 0) await nft.run([{ verb: 'delete-table', table }], signal)
    } catch (error) {
      // It may be gone by now, or belong to another process.
      if (!isNotFound(error)) signal.throwIfAborted()
    }
  }
}

/** A socket of loopback that sends to itself. */
class Marker {
  readonly port: number
  readonly address: string
  readonly #socket: Socket

  static async open(family: Nft['family']): Promise<Marker> {
    const socket = createSocket(family === 'ip' ? 'udp4' : 'udp6')
    const address = family === 'ip' ? '127.0.0.1' : '::1'
    socket.bind(0, address)
    await once(socket, 'listening')
    socket.on('error', () => undefined)
    return new Marker(socket, address)
  }

  private constructor(socket: Socket, address: string) {
    this.#socket = socket
    this.address = address
    this.port = socket.address().port
  }

  send(): void {
    this.#socket.send('.', this.port, this.address, () => undefined)
  }

  close(): void {
    this.#socket.close()
  }
}

interface ReaderInit {
  readonly family: string
  readonly table: string
  readonly markers: Markers
}

class TraceReader {
  readonly lines: readonly TraceLine[] = []
  leftOut = 0
  readonly #family: string
  readonly #table: string
  readonly #markers: Markers
  readonly #kept: TraceLine[] = []
  /** Packets of markers, by id. */
  readonly #ofMarkers = new Set<string>()
  readonly #shown = new Set<number>()
  #child: ChildProcess | undefined
  #buffered = ''
  #complaint = ''
  #hasEnded = false
  #onShown: (() => void) | undefined

  constructor({ family, table, markers }: ReaderInit) {
    this.#family = family
    this.#table = table
    this.#markers = markers
    this.lines = this.#kept
  }

  start(seconds: number): void {
    const args = ['-s', 'KILL', String(seconds), 'nft', 'monitor', 'trace']
    const child = spawn('timeout', args, { env: toolEnvironment(), stdio: ['ignore', 'pipe', 'pipe'] })
    child.stdout.setEncoding('utf8').on('data', (text: string) => this.#read(text))
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      this.#complaint = `${this.#complaint}${text}`.slice(0, 300)
    })
    const onEnd = (error?: unknown): void => {
      if (error instanceof Error) this.#complaint = error.message
      this.#hasEnded = true
      this.#onShown?.()
    }
    child.on('error', onEnd).on('close', () => onEnd())
    this.#child = child
  }

  problem(): string {
    const said = this.#complaint.trim().split('\n')[0] ?? ''
    return said === '' ? 'nft monitor trace shows no packet' : `nft monitor trace: ${said}`
  }

  /** Sends the marker until the output shows it. False after READY_MS, or if the reader has ended. */
  async shows(marker: Marker, clock: Clock, signal: AbortSignal): Promise<boolean> {
    const deadline = clock.monotonic() + READY_MS
    while (!this.#shown.has(marker.port)) {
      if (this.#hasEnded || clock.monotonic() >= deadline) return false
      marker.send()
      await this.#more(clock, signal)
    }
    return true
  }

  end(): void {
    this.#child?.kill()
  }

  /** Waits until the output shows a marker, or for AGAIN_MS. Throws the signal's reason. */
  async #more(clock: Clock, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted()
    const { promise, resolve } = Promise.withResolvers<true>()
    const wake = (): void => resolve(true)
    this.#onShown = wake
    const stop = clock.setTimer(AGAIN_MS, wake)
    signal.addEventListener('abort', wake, { once: true })
    await promise
    stop()
    signal.removeEventListener('abort', wake)
    this.#onShown = undefined
    signal.throwIfAborted()
  }

  #read(text: string): void {
    const parts = `${this.#buffered}${text}`.split('\n')
    this.#buffered = (parts.pop() ?? '').slice(0, MOST_BUFFERED)
    for (const part of parts) {
      const line = parseTraceLine(part)
      if (line !== undefined) this.#take(line)
      // It may be of a packet of the call.
      else if (part.length > MOST_LINE) this.leftOut += 1
    }
  }

  #take(line: TraceLine): void {
    const { packet, id } = line
    const isMarker =
      line.family === this.#family &&
      line.table === this.#table &&
      packet !== undefined &&
      packet.sourcePort === packet.port &&
      [this.#markers.ready.port, this.#markers.done.port].includes(packet.port ?? -1)
    if (isMarker) {
      this.#ofMarkers.add(id)
      this.#shown.add(packet.port ?? -1)
      this.#onShown?.()
      return
    }
    // The kernel may use the id again, for a packet whose first line is one of our table.
    if (packet !== undefined && line.table === this.#table) this.#ofMarkers.delete(id)
    if (this.#ofMarkers.has(id)) return
    if (this.#kept.length < MOST_LINES) this.#kept.push(line)
    else this.leftOut += 1
  }
}
