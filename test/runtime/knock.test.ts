import { createServer } from 'node:net'
import t from 'tap'
import { probeTcp } from '../../runtime/tcp-probe.ts'
import { freePort } from '../support/free-port.ts'

t.test('who answers a knock', async (t) => {
  const server = createServer((socket) => socket.destroy())
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => server.close())
  const { port } = server.address() as { port: number }
  t.equal(await probeTcp('127.0.0.1', port), true, 'somebody listens')
  t.equal(await probeTcp('127.0.0.1', await freePort()), true, 'nobody listens: the kernel refuses')
  t.equal(await probeTcp('not an address', port), false, 'no way to it')
})

t.test('who answers while the asker itself is held up for longer than it waits', async (t) => {
  const server = createServer((socket) => socket.destroy())
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => server.close())
  const { port } = server.address() as { port: number }
  const answer = probeTcp('127.0.0.1', port)
  // The call goes out, and then this process is blocked until the time is over.
  await new Promise(setImmediate)
  const endMs = performance.now() + 1200
  while (performance.now() < endMs);
  t.equal(await answer, true)
})
