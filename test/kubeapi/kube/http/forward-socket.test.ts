/** Forwarded connections as a Unix socket: data passes, failures are reported, and nothing is left behind. */
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, statSync } from 'node:fs'
import { type Socket, createConnection } from 'node:net'
import { dirname } from 'node:path'
import { type Duplex, PassThrough, duplexPair } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import t from 'tap'
import { withForwardedSocket } from '../../../../kubeapi/kube/http/forward-socket.ts'
import { eventually } from '../../../support/eventually.ts'
import { failure } from '../../../support/failure.ts'

async function dial(path: string): Promise<Socket> {
  const socket = createConnection({ path, allowHalfOpen: true })
  await once(socket, 'connect')
  return socket
}

t.test('connections pass data both ways, and the folder is private', async (t) => {
  const remotes: Duplex[] = []
  let folder = ''
  const given = await withForwardedSocket(
    () => {
      const echo = new PassThrough()
      remotes.push(echo)
      return Promise.resolve(echo)
    },
    async (path, failed) => {
      folder = dirname(path)
      t.equal(statSync(folder).mode & 0o777, 0o700)
      for (const size of [3, 4 << 20]) {
        const socket = await dial(path)
        const sent = randomBytes(size)
        const got = buffer(socket)
        socket.end(sent)
        t.ok((await got).equals(sent))
      }
      t.notOk(failed.aborted)
      return 7
    },
  )
  t.equal(given, 7)
  t.notOk(existsSync(folder))
  t.equal(remotes.length, 2, 'each connection has its own')
  t.ok(remotes.every(({ destroyed }) => destroyed))
})

t.test('a pod that ends first: the client gets everything', async (t) => {
  const sent = randomBytes(4 << 20)
  await withForwardedSocket(
    () => {
      const [ours, pods] = duplexPair({ allowHalfOpen: false })
      pods.resume().end(sent)
      return Promise.resolve(ours)
    },
    async (path) => {
      const socket = await dial(path)
      t.ok((await buffer(socket)).equals(sent))
      socket.destroy()
    },
  )
})

t.test('at the end of the work its connections end, also when it fails', async (t) => {
  const remote = new PassThrough()
  let socket: Socket | undefined
  let folder = ''
  const work = withForwardedSocket(
    () => Promise.resolve(remote),
    async (path) => {
      folder = dirname(path)
      socket = await dial(path)
      socket.on('error', () => undefined).resume()
      await eventually(() => remote.listenerCount('error') > 0, { say: 'it is joined' })
      throw new Error('the work failed')
    },
  )
  t.equal((await failure(work)).message, 'the work failed')
  t.notOk(existsSync(folder))
  await eventually(() => remote.destroyed)
  await eventually(() => socket?.closed !== false || socket.readableEnded)
  socket?.destroy()
})

t.test('a connection that cannot be opened', async (t) => {
  await withForwardedSocket(
    () => Promise.reject(new Error('pods "web-0" is forbidden')),
    async (path, failed) => {
      const socket = await dial(path)
      socket.on('error', () => undefined).resume()
      if (!failed.aborted) await once(failed, 'abort')
      t.equal((failed.reason as Error).message, 'pods "web-0" is forbidden')
      await eventually(() => socket.readableEnded || socket.closed, { say: 'the client sees that it is closed' })
      socket.destroy()
    },
  )
})

t.test('a connection that breaks', async (t) => {
  const remote = new PassThrough()
  await withForwardedSocket(
    () => Promise.resolve(remote),
    async (path, failed) => {
      const socket = await dial(path)
      socket.on('error', () => undefined)
      const echoed = once(socket, 'data')
      socket.write('one')
      t.equal(String((await echoed)[0]), 'one')
      remote.destroy(new Error('the node died'))
      if (!failed.aborted) await once(failed, 'abort')
      t.equal((failed.reason as Error).message, 'the node died')
      socket.resume()
      await eventually(() => socket.readableEnded || socket.closed)
      socket.destroy()
    },
  )
})

t.test('a connection that is being opened when the work ends', async (t) => {
  let opening: AbortSignal | undefined
  let opened = (_remote: Duplex): void => undefined
  const remote = new PassThrough()
  await withForwardedSocket(
    (signal) => {
      opening = signal
      return new Promise((resolve) => (opened = resolve))
    },
    async (path, failed) => {
      const socket = await dial(path)
      socket.on('error', () => undefined).resume()
      await eventually(() => opening !== undefined)
      t.notOk(opening?.aborted)
      t.notOk(failed.aborted)
    },
  )
  t.ok(opening?.aborted)
  opened(remote)
  await eventually(() => remote.destroyed, { say: 'what is opened too late is closed' })
})

t.test('a temporary directory that cannot be used', async (t) => {
  const before = process.env['TMPDIR']
  process.env['TMPDIR'] = '/dev/full/none'
  t.teardown(() => {
    if (before === undefined) delete process.env['TMPDIR']
    else process.env['TMPDIR'] = before
  })
  const never = (): Promise<never> => Promise.reject(new Error('not called'))
  t.match(await failure(withForwardedSocket(never, never)), /\/dev\/full\/none/)
})
