/** The admin service of a pod in a test, as the target of a port-forward. */
import { once } from 'node:events'
import { type Socket, connect } from 'node:net'
import { join } from 'node:path'
import type { Test } from 'tap'
import type { BrokerAdmin } from '../../protocol/admin/admin-api.ts'
import { serveAdmin } from '../../protocol/admin/admin-server.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { temporaryFolder } from './temporary-folder.ts'

/** Connects to a Unix socket; it fits `MemoryAdmin.dial`. */
export async function dialSocket(socket: string): Promise<Socket> {
  const connection = connect(socket)
  await once(connection, 'connect')
  return connection
}

/** Serves these operations on a socket of its own until the test ends, and returns its path. */
export async function servedAdmin(t: Test, operations: Partial<BrokerAdmin>): Promise<string> {
  const socket = join(temporaryFolder(t), 'admin.sock')
  const server = await serveAdmin({
    adminFor: () => operations as BrokerAdmin,
    socket,
    clock: new SystemClock(),
    logger: new CapturingLogger(),
  })
  t.teardown(() => server.close())
  return socket
}
