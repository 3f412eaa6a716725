/** What WireGuard itself has sent, from which a test tells how a lane recovered, however long that took. */
import { join } from 'node:path'
import { eventually } from '../../support/eventually.ts'
import type { Netns } from '../../support/netns.ts'
import { withSockets } from '../../support/wireguard-sockets.ts'
import { type Running, idOf } from './two-gateways.ts'

/** The octets of a handshake initiation, which no other message has (WireGuard protocol, 5.4.2). */
const CALL_BYTES = 148
const UDP_HEADER_BYTES = 8

/** A peer that is replaced for each call has sent one call, or two if the gateway was blocked for 5 s. */
const CALLS = 3

/** The peers of a gateway and the date of their last handshake, as the device shows them. A replaced peer has none. */
export function sessions(running: Running): Promise<string> {
  return show(running, 'latest-handshakes')
}

/** From now on the internet counts the handshakes that a gateway begins. Returns the function that reads the count. */
export async function countCalls(internet: Netns, caller: Running): Promise<() => Promise<number>> {
  const table = `calls-of-${idOf(caller)}`
  const { address } = caller.site.init
  const seen = `ip saddr ${address} udp dport 4500 udp length ${UDP_HEADER_BYTES + CALL_BYTES}`
  await internet.exec('nft', ['-f', '-'], {
    input: `table ip ${table} {
      counter begun { }
      chain seen { type filter hook prerouting priority -400; ${seen} counter name begun; }
    }`,
  })
  return async () => {
    const text = await internet.exec('nft', ['list', 'counters', 'table', 'ip', table])
    return Number(/counter begun \{\s+packets (\d+)/.exec(text)?.[1] ?? NaN)
  }
}

/**
 * Waits until a gateway has called its only peer several times without an answer, each time as a new peer. WireGuard by
 * itself repeats a call after 5 s, and a peer counts all that it has sent. Resolves with the octets that the present
 * peer has sent, and with those that one peer would have sent for all of the calls.
 */
export async function callsAnew(
  caller: Running,
  calls: () => Promise<number>,
): Promise<{ readonly sent: number; readonly inOnePeer: number }> {
  const before = await calls()
  await eventually(async () => (await calls()) >= before + CALLS, {
    deadlineMs: 20_000,
    say: `${idOf(caller)} calls again and again`,
  })
  const rows = (await show(caller, 'transfer')).split('\n').filter((row) => row !== '')
  const sent = rows.reduce((sum, row) => sum + Number(row.split('\t')[2]), 0)
  return { sent, inOnePeer: CALLS * CALL_BYTES }
}

async function show({ site }: Running, what: string): Promise<string> {
  const wg = ['wg', 'show', 'sealane0', what]
  const [command = '', ...args] = withSockets(join(site.folder, 'wireguard'), wg)
  return site.gateway.exec(command, args)
}
