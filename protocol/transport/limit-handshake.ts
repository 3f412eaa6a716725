/**
 * Adds a timeout to TLS handshakes of grpc-js clients. grpc-js waits for a handshake without limit, and keeps the
 * socket open when its channel is closed meanwhile.
 */
import type { ChannelCredentials } from '@grpc/grpc-js'
import type { Clock } from '../../reconcile/reconcile.ts'

/** Returns the same credentials. A handshake that takes longer than `timeoutMs` fails and closes its socket. */
export function limitHandshake(credentials: ChannelCredentials, clock: Clock, timeoutMs: number): ChannelCredentials {
  const create = credentials._createSecureConnector.bind(credentials)
  credentials._createSecureConnector = (...init) => {
    const connector = create(...init)
    const connect = connector.connect.bind(connector)
    connector.connect = async (socket) => {
      const cancel = clock.setTimer(timeoutMs, () => socket.destroy(new Error(`no handshake within ${timeoutMs} ms`)))
      return await connect(socket).finally(cancel)
    }
    return connector
  }
  return credentials
}
