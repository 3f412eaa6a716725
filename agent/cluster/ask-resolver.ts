/** Asks the DNS servers of this process which server answers clusterset.local. */
import { Resolver } from 'node:dns/promises'
import { CLUSTERSET_NAME_SERVER, CLUSTERSET_ZONE } from '../../model/model.ts'

export type ClusterDnsAnswer = { readonly answers: true } | { readonly answers: false; readonly said: string }

/**
 * Checks by the SOA record (RFC 1035 section 3.3.13) whether Sealane answers the zone. Never throws for a DNS failure:
 * a timeout is also an answer.
 */
export type AskClusterDns = (signal: AbortSignal) => Promise<ClusterDnsAnswer>

/** `timeout` in milliseconds for each attempt, and the number of attempts for each server. */
const PATIENCE = { timeout: 1000, tries: 2 }

/** Describes the error codes of Node's resolver. */
const SAID: Readonly<Record<string, string>> = {
  ENOTFOUND: 'NXDOMAIN',
  ENODATA: 'NODATA',
  ESERVFAIL: 'SERVFAIL',
  EREFUSED: 'REFUSED',
  ETIMEOUT: 'no answer in time',
  ECONNREFUSED: 'connection refused',
}

/** Asks `servers`, such as `127.0.0.1:5353`, instead of those in /etc/resolv.conf. */
export function askResolver(servers?: readonly string[]): AskClusterDns {
  return async (signal) => {
    const stopped = new AbortController()
    try {
      // Each call makes a new resolver: it reads resolv.conf when it is made, and its new port may reach another
      // server.
      const resolver = new Resolver(PATIENCE)
      if (servers !== undefined) resolver.setServers(servers)
      signal.addEventListener('abort', () => resolver.cancel(), { signal: stopped.signal })
      const { nsname } = await resolver.resolveSoa(CLUSTERSET_ZONE)
      return nsname.toLowerCase() === CLUSTERSET_NAME_SERVER
        ? { answers: true }
        : { answers: false, said: `${nsname.slice(0, 253)} as name server` }
    } catch (error) {
      const { code = '', message } = error as NodeJS.ErrnoException
      return { answers: false, said: SAID[code] ?? message.slice(0, 253) }
    } finally {
      stopped.abort()
    }
  }
}
