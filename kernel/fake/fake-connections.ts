/** Connection tracking in memory: it has what it is given. */
import { parseAddress } from '../../model/addresses/addresses.ts'
import type { ConnectionScan, ConnectionTable, TrackedConnection } from '../conntrack/conntrack.ts'
import { KernelError } from '../kernel.ts'

export class FakeConnections implements ConnectionTable {
  readonly #connections = new Set<TrackedConnection>()
  /** What the next scans end with. */
  failure: KernelError | undefined
  scans = 0

  /** Between IPv4 addresses, by their text. Gives the function that closes it. */
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
