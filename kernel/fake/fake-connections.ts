/** Connection tracking in memory: a test opens and closes the connections. */
import { parseAddress } from '../../model/addresses/addresses.ts'
import type { ConnectionScan, ConnectionTable, TrackedConnection } from '../conntrack/conntrack.ts'
import { KernelError } from '../kernel.ts'

export class FakeConnections implements ConnectionTable {
  readonly #connections = new Set<TrackedConnection>()
  /** If set, scans throw this error. */
  failure: KernelError | undefined
  scans = 0

  /** Opens a connection between two IPv4 addresses. Returns the function that closes it. */
  open(client: string, server: string): () => void {
    const connection = { client: number(client), server: number(server) }
    this.#connections.add(connection)
    return () => void this.#connections.delete(connection)
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

function number(address: string): number {
  const { family, value } = parseAddress(address)
  if (family !== 4) throw new RangeError(`${address}: expected an IPv4 address`)
  return Number(value)
}
