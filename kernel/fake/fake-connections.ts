/** Connection tracking in memory: a test opens and closes the connections. */
import { type Prefix, containsAddress, parseAddress } from '../../model/addresses/addresses.ts'
import type {
  AnswerEnds,
  CallLookup,
  CallState,
  CallsInit,
  ConnectionScan,
  ConnectionTable,
  EntryState,
  FlowEnd,
  FlowTable,
  TrackedConnection,
  TranslatedFlow,
} from '../nfnetlink/nfnetlink.ts'
import { KernelError } from '../kernel.ts'

export class FakeConnections implements ConnectionTable, FlowTable, CallLookup {
  readonly #connections = new Set<TrackedConnection>()
  /** By id. */
  readonly #flows = new Map<number, TranslatedFlow>()
  readonly #calls = new Map<number, TranslatedFlow & { readonly state: EntryState }>()
  #lastId = 0
  /** TranslatedFlow.idleSeconds of answered calls, by client: `10.42.1.5:7000`. */
  readonly idleSeconds = new Map<string, number>()
  /** If set, all calls throw this error. */
  failure: KernelError | undefined
  /** What states() gives for UDP flows. */
  udpState: CallState = 'unanswered'
  scans = 0

  /** Opens a connection between two IPv4 addresses. Returns the function that closes it. */
  open(client: string, server: string): () => void {
    const connection = { client: number(client), server: number(server) }
    this.#connections.add(connection)
    return () => void this.#connections.delete(connection)
  }

  /** Begins a UDP flow, and returns the function that ends it. Takes `10.42.1.5:7000`, or `[fd00::5]:7000`. */
  openFlow(client: string, called: string, server = called): () => void {
    const id = (this.#lastId += 1)
    this.#flows.set(id, { client: end(client), called: end(called), server: end(server), id, zone: 0 })
    return () => void this.#flows.delete(id)
  }

  /** Begins a TCP connection, as openFlow(). calls() gives none that are `closing`. */
  openCall(client: string, called: string, server: string, state: EntryState): () => void {
    const id = (this.#lastId += 1)
    const ends = { client: end(client), called: end(called), server: end(server) }
    this.#calls.set(id, { ...ends, id, zone: 0, protocol: 'TCP', state })
    return () => void this.#calls.delete(id)
  }

  async calls(
    { called, state, limit }: CallsInit,
    visit: (call: TranslatedFlow) => void,
    signal?: AbortSignal,
  ): Promise<ConnectionScan> {
    await Promise.resolve()
    if (signal?.aborted === true) throw new KernelError('EINTR', 'conntrack -L -p tcp', 'stopped before it began')
    if (this.failure !== undefined) throw this.failure
    const found = [...this.#calls.values()].filter((call) => {
      const address = parseAddress(call.called.address)
      return call.state === state && address.family === called.family && containsAddress(called, address)
    })
    for (const { state: _, ...call } of found.slice(0, limit)) {
      const idleSeconds = this.idleSeconds.get(`${call.client.address}:${call.client.port}`)
      visit(idleSeconds === undefined ? call : { ...call, idleSeconds })
    }
    return { whole: found.length <= limit }
  }

  async flows(
    called: Prefix,
    limit: number,
    visit: (flow: TranslatedFlow) => void,
    signal?: AbortSignal,
  ): Promise<ConnectionScan> {
    this.scans += 1
    await Promise.resolve()
    if (signal?.aborted === true) throw new KernelError('EINTR', 'conntrack -L -p udp', 'stopped before it began')
    if (this.failure !== undefined) throw this.failure
    const ofFamily = [...this.#flows.values()].filter(
      (flow) => parseAddress(flow.called.address).family === called.family,
    )
    const read = ofFamily.slice(0, limit)
    for (const flow of read) if (containsAddress(called, parseAddress(flow.called.address))) visit(flow)
    return { whole: read.length === ofFamily.length }
  }

  async forget(flows: readonly TranslatedFlow[], signal?: AbortSignal): Promise<number> {
    await Promise.resolve()
    if (signal?.aborted === true) throw new KernelError('EINTR', 'conntrack -D -p udp', 'stopped before it began')
    if (this.failure !== undefined) throw this.failure
    return flows.filter(({ id }) => this.#flows.delete(id) || this.#calls.delete(id)).length
  }

  async states(asked: readonly AnswerEnds[], signal?: AbortSignal): Promise<readonly (EntryState | undefined)[]> {
    await Promise.resolve()
    if (signal?.aborted === true) throw new KernelError('EINTR', 'conntrack -G', 'stopped before it began')
    if (this.failure !== undefined) throw this.failure
    const flows = [...this.#flows.values()].map((flow) => ({ ...flow, protocol: 'UDP', state: this.udpState }))
    const all = [...flows, ...this.#calls.values()]
    const isSame = (a: FlowEnd, b: FlowEnd): boolean => a.address === b.address && a.port === b.port
    return asked.map(
      ({ protocol, server, client }) =>
        all.find((one) => one.protocol === protocol && isSame(one.server, server) && isSame(one.client, client))?.state,
    )
  }

  async scan(
    limit: number,
    visit: (connection: TrackedConnection) => void,
    signal?: AbortSignal,
  ): Promise<ConnectionScan> {
    this.scans += 1
    await Promise.resolve()
    if (signal?.aborted === true) throw new KernelError('EINTR', 'conntrack -L -f ipv4', 'stopped before it began')
    if (this.failure !== undefined) throw this.failure
    const read = [...this.#connections].slice(0, limit)
    for (const connection of read) visit(connection)
    return { whole: read.length === this.#connections.size }
  }
}

function end(text: string): TranslatedFlow['client'] {
  const colon = text.lastIndexOf(':')
  return { address: text.slice(0, colon).replaceAll(/[[\]]/g, ''), port: Number(text.slice(colon + 1)) }
}

function number(address: string): number {
  const { family, value } = parseAddress(address)
  if (family !== 4) throw new RangeError(`${address}: expected an IPv4 address`)
  return Number(value)
}
