/** The connection to an API server that accepts it and then sends nothing. */
import { once } from 'node:events'
import { type AddressInfo, type Socket, createServer } from 'node:net'
import t from 'tap'
import { ServerConnection } from '../../../../kubeapi/kube/http/server-connection.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'
import { failure } from '../../../support/failure.ts'

t.test('closing gives up a handshake that nobody answers', async (t) => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  const taken = once(server, 'connection') as Promise<[Socket]>
  const access = {
    server: new URL(`https://127.0.0.1:${(server.address() as AddressInfo).port}`),
    title: 'a silent server',
    namespace: undefined,
    credentials: () => Promise.resolve({ headers: {} }),
    forget: () => undefined,
  }
  // The fake clock does not move, so the connection's own time-out never comes.
  const connection = new ServerConnection({ clock: new FakeClock(), access })
  const asked = connection.send({ method: 'GET', path: '/version', headers: {} }, new AbortController().signal)
  const refused = failure(asked)
  const [socket] = await taken
  const ended = once(
    socket.resume().on('error', () => undefined),
    'close',
  )
  connection.close()
  t.match((await refused).message, /the connection is closed/)
  await ended
  t.pass('its socket is gone, and does not keep the process')
})
