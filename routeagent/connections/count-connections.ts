/** Which tracked connections are between pods of this node and pods of other clusters. */
import type { Prefix } from '../../model/addresses/ip.ts'
import { Ipv4Ranges } from './ipv4-ranges.ts'
import type { OpenConnections } from '../../model/open-connections.ts'
import type { ConnectionTable } from '../../kernel/conntrack/connection-table.ts'

/** A node that tracks more says "at least": reading them takes time, and a figure of this size says enough. */
export const MAX_ENTRIES_READ = 200_000

export interface CountInit {
  /** Where the pods of this node are. */
  readonly pods: readonly Prefix[]
  /** Not all of these are known. */
  readonly podsCut: boolean
  /** Under which pods of other clusters are reached from here. */
  readonly others: readonly Prefix[]
}

/** Throws KernelError. */
export async function countConnections(
  table: ConnectionTable,
  { pods, podsCut, others }: CountInit,
  signal: AbortSignal,
): Promise<OpenConnections> {
  const [own, remote] = [new Ipv4Ranges(pods), new Ipv4Ranges(others)]
  let count = 0
  const { whole } = await table.scan(
    MAX_ENTRIES_READ,
    ({ client, server }) => {
      if ((own.has(client) && remote.has(server)) || (own.has(server) && remote.has(client))) count += 1
    },
    signal,
  )
  return { count, atLeast: !whole || podsCut }
}
