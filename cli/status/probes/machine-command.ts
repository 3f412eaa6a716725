/** The command that `sealane diagnose` runs in a pod, its options and its output. */
import type { DnsAnswer, Fact } from '../../../explain/facts/facts.ts'
import { formatAddressPort, parseAddressPort } from '../../../model/addresses/addresses.ts'
import { UserError } from '../../../runtime/runtime.ts'

export const MACHINE_COMMAND = 'machine-facts'

export interface MachineFacts {
  readonly facts: readonly Fact[]
  /**
   * The settings of the pod's resolver, if DNS servers were asked. Beside the facts, since a command of an earlier
   * release refuses facts that it does not know.
   */
  readonly resolvConf?: string
}

/** As much of the resolver's settings as is reported. */
export const MOST_RESOLV_CONF = 8192

/** The roles of the servers that are queried for the zone. */
const SERVER_ROLES = ['ours', 'cluster'] as const satisfies readonly DnsAnswer['role'][]

export interface AskedServer {
  readonly role: (typeof SERVER_ROLES)[number]
  /** `address:port`, in the format of formatAddressPort(). */
  readonly server: string
}

/** The maximum number of servers that one command queries. */
export const MOST_SERVERS = 64

/** `cluster=10.43.0.10:53`. Throws UserError and InvalidAddressError. */
export function parseAskedServer(text: string): AskedServer {
  const equals = text.indexOf('=')
  const role = SERVER_ROLES.find((one) => one === text.slice(0, Math.max(0, equals)))
  if (role === undefined) {
    throw new UserError(
      `--dns ${JSON.stringify(text.slice(0, 100))}: expected ${SERVER_ROLES.join('= or ')}= and an address:port`,
    )
  }
  return { role, server: formatAddressPort(parseAddressPort(text.slice(equals + 1), '--dns')) }
}

export function askedServerText({ role, server }: AskedServer): string {
  return `${role}=${server}`
}
