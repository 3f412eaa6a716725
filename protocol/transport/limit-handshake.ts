/**
 * Adds a timeout to TLS handshakes of grpc-js clients, and a way through a proxy. grpc-js waits for a handshake without
 * limit, and keeps the socket open when its channel is closed meanwhile. Its own support for proxies knows only
 * lower-case variables and proxies without TLS, and hides why a proxy refuses.
 */
import type { ChannelCredentials } from '@grpc/grpc-js'
import type { Clock } from '../../reconcile/reconcile.ts'
import { type Proxy, type ProxyTarget, tunnelOver } from '../../runtime/proxy/proxy.ts'

interface HandshakeLimits {
  readonly clock: Clock
  readonly timeoutMs: number
  /** The channel connects to this proxy, and the handshake is with the server behind it. Absent: no proxy. */
  readonly through?: { readonly proxy: Proxy; readonly to: ProxyTarget } | undefined
}

/**
 * Returns the same credentials. A handshake that takes longer than `timeoutMs`, or a proxy that does, fails and closes
 * its socket.
 */
export function limitHandshake(
  credentials: ChannelCredentials,
  { clock, timeoutMs, through }: HandshakeLimits,
): ChannelCredentials {
  const create = credentials._createSecureConnector.bind(credentials)
  credentials._createSecureConnector = (...init) => {
    const connector = create(...init)
    const connect = connector.connect.bind(connector)
    connector.connect = async (socket) => {
      const cancel = clock.setTimer(timeoutMs, () => socket.destroy(new Error(`no handshake within ${timeoutMs} ms`)))
      const signal = new AbortController().signal
      try {
        return await connect(
          through === undefined ? socket : await tunnelOver(socket, { clock, timeoutMs, ...through }, signal),
        )
      } finally {
        cancel()
      }
    }
    return connector
  }
  return credentials
}
