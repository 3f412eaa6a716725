/** Lets a server listen at an address and port, on machines with both address families and with one of them. */
import type { Server } from 'node:net'
import type { HostPort } from './flag-values.ts'

/** The host of a server that takes calls at every address of its machine, of both families. */
export const EVERY_ADDRESS = '::'

/** What socket() and bind() say on a kernel that was started without IPv6 (ipv6.disable=1). */
const WITHOUT_IPV6: ReadonlySet<string | undefined> = new Set(['EAFNOSUPPORT', 'EADDRNOTAVAIL'])

/**
 * Resolves once the server listens. EVERY_ADDRESS takes IPv4, too, and stands for 0.0.0.0 where the kernel has no IPv6.
 * Port 0: the kernel chooses one. Rejects with the error of listening, a NodeJS.ErrnoException with its code. The server
 * may then listen elsewhere.
 */
export async function listenAt(server: Pick<Server, 'listen' | 'once' | 'off'>, place: HostPort): Promise<void> {
  try {
    await listenOnce(server, place)
  } catch (error) {
    const isMissing = WITHOUT_IPV6.has((error as NodeJS.ErrnoException).code)
    if (place.host !== EVERY_ADDRESS || !isMissing) throw error
    await listenOnce(server, { ...place, host: '0.0.0.0' })
  }
}

function listenOnce(server: Pick<Server, 'listen' | 'once' | 'off'>, { host, port }: HostPort): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen({ host, port, exclusive: true }, () => {
      server.off('error', reject)
      resolve()
    })
  })
}
