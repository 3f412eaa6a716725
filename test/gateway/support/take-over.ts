/** A compromised gateway: it has no policy, and sets routes and WireGuard as it likes. */
import { join } from 'node:path'
import { type DropReason, dropCounter } from '../../../gateway/nft/drop-counts.ts'
import { parseCounters } from '../../../kernel/nft/nft-text.ts'
import { withSockets } from '../../support/wireguard-sockets.ts'
import type { Running } from './two-gateways.ts'

export interface TakeOverInit {
  /** Addresses that it adds to itself. */
  readonly own: readonly string[]
  /** Destinations that it sends into the lane, before its own routes and addresses are looked up. */
  readonly targets: readonly string[]
}

/** A gateway: its process, its namespace, and the folder of its WireGuard sockets. */
export interface TakenOver {
  readonly process: { stop(signal: NodeJS.Signals): Promise<void> }
  readonly site: Pick<Running['site'], 'gateway' | 'folder'>
}

export async function takeOver({ process, site }: TakenOver, { own, targets }: TakeOverInit): Promise<void> {
  const { gateway, folder } = site
  await process.stop('SIGKILL')
  await gateway.exec('nft', ['delete', 'table', 'ip', 'sealane_gateway'])
  // This table exists only if the site is dual-stack.
  await gateway.tryExec('nft', ['delete', 'table', 'ip6', 'sealane_gateway'])
  const wg = (...args: string[]): Promise<string> => {
    const [command = '', ...rest] = withSockets(join(folder, 'wireguard'), ['wg', ...args])
    return gateway.exec(command, rest)
  }
  const key = (await wg('show', 'sealane0', 'peers')).trim()
  await wg('set', 'sealane0', 'peer', key, 'allowed-ips', '0.0.0.0/0,::/0')
  for (const address of own) await gateway.exec('ip', ['address', 'add', host(address), 'dev', 'lo'])
  for (const address of targets) {
    await gateway.exec('ip', ['route', 'replace', host(address), 'dev', 'sealane0', 'table', '7311'])
  }
}

/** How many packets the policy of a gateway has dropped for this reason. */
export async function dropped({ site }: Running, reason: DropReason, family: 'ip' | 'ip6' = 'ip'): Promise<number> {
  const text = await site.gateway.exec('nft', ['list', 'counters', 'table', family, 'sealane_gateway'])
  return parseCounters(text).get(dropCounter(reason)) ?? NaN
}

function host(address: string): string {
  return `${address}/${address.includes(':') ? 128 : 32}`
}
