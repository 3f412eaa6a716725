/** Asks the DNS that this process was given who answers clusterset.local. */
import { Resolver } from 'node:dns/promises'
import { CLUSTERSET_NAME_SERVER, CLUSTERSET_ZONE } from '../../model/model.ts'

export type ClusterDnsAnswer = { readonly answers: true } | { readonly answers: false; readonly said: string }

/** Who answers the zone, by its SOA record (RFC 1035 section 3.3.13). Throws nothing: silence is an answer too. */
export type AskClusterDns = (signal: AbortSignal) => Promise<ClusterDnsAnswer>

/** Milliseconds until a server is asked again, and how often one is asked. */
const PATIENCE = { timeout: 1000, tries: 2 }

/** Codes of Node's resolver in words. */
const SAID: Readonly<Record<string, string>> = {
  ENOTFOUND: 'NXDOMAIN',
  ENODATA: 'that there is no such zone',
  ESERVFAIL: 'SERVFAIL',
  EREFUSED: 'REFUSED',
  ETIMEOUT: 'nothing',
  ECONNREFUSED: 'nothing: the connection was refused',
}

/** `servers`, such as `127.0.0.1:5353`, are asked instead of those of /etc/resolv.conf. */
export function askResolver(servers?: readonly string[]): AskClusterDns {
  return async (signal) => {
    const stopped = new AbortController()
    try {
      // A new one each time: what resolv.conf says is read when it is made, and a new port may reach another server.
      const resolver = new Resolver(PATIENCE)
      if (servers !== undefined) resolver.setServers(servers)
      signal.addEventListener('abort', () => resolver.cancel(), { signal: stopped.signal })
      const { nsname } = await resolver.resolveSoa(CLUSTERSET_ZONE)
      return nsname.toLowerCase() === CLUSTERSET_NAME_SERVER
        ? { answers: true }
        : { answers: false, said: `that ${nsname.slice(0, 253)} answers it` }
    } catch (error) {
      const { code = '', message } = error as NodeJS.ErrnoException
      return { answers: false, said: SAID[code] ?? message.slice(0, 253) }
    } finally {
      stopped.abort()
    }
  }
}
