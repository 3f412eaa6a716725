/** Reads what the agent's own machine or pod is connected by, and where the broker is called. */
import { lookup } from 'node:dns/promises'
import { isIP } from 'node:net'
import { parseBrokerAddress } from '../../protocol/broker-address.ts'
import type { IdentityStore } from '../../protocol/identity/identity-store.ts'
import { readMachineNetwork } from '../../runtime/machine-network.ts'
import type { Surroundings } from './needs-loop.ts'

/** Of one name. */
const MAX_ADDRESSES = 8

/** Gives a reader that remembers the last answer about each name: no answer now does not mean that it leads nowhere. */
export function surroundingsReader(
  identity: Pick<IdentityStore, 'read'>,
  ask: (host: string) => Promise<readonly string[]> = lookUp,
): () => Promise<Surroundings> {
  const known = new Map<string, readonly string[]>()
  const addressesOf = async (host: string): Promise<readonly string[]> => {
    if (isIP(host) !== 0) return [host]
    const found = await ask(host).catch(() => undefined)
    if (found !== undefined) known.set(host, found.slice(0, MAX_ADDRESSES))
    return known.get(host) ?? []
  }
  return async () => {
    const { brokerAddresses = [], learnedAddresses = [] } = (await identity.read().catch(() => undefined)) ?? {}
    const book = [...brokerAddresses, ...learnedAddresses]
    const hosts = [...new Set(book.map((one) => parseBrokerAddress(one).host))]
    const broker = (await Promise.all(hosts.map(addressesOf))).flat()
    return { machine: await readMachineNetwork(), broker: [...new Set(broker)].sort() }
  }
}

async function lookUp(host: string): Promise<readonly string[]> {
  return (await lookup(host, { all: true })).map(({ address }) => address)
}
