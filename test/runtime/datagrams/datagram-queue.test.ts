import { setImmediate as turn } from 'node:timers/promises'
import t from 'tap'
import { DatagramQueue, MAX_WAITING_BYTES, MAX_WAIT_MS } from '../../../runtime/datagrams/datagram-queue.ts'
import { decodeFrame } from '../../../runtime/datagrams/frames.ts'

const END = '0102030405060708'

function queueOf() {
  let nowMs = 0
  let dropped = 0
  const frames: { readonly count: number; readonly onSent: () => void }[] = []
  const queue = new DatagramQueue({
    clock: { monotonic: () => nowMs },
    send: (bytes, onSent) => {
      const frame = decodeFrame(bytes)
      frames.push({ count: frame?.t === 'datagrams' ? frame.datagrams.length : -1, onSent })
    },
    onDropped: (count) => (dropped += count),
  })
  return { queue, frames, later: (ms: number) => (nowMs += ms), dropped: () => dropped }
}

t.test('datagrams of one turn share a frame', async (t) => {
  const { queue, frames } = queueOf()
  for (let i = 0; i < 20; i++) queue.push(END, Buffer.alloc(1000))
  await turn()
  t.same(
    frames.map(({ count }) => count),
    [20],
  )
})

t.test('what waits for longer than 50 ms behind a slow stream is dropped, the oldest first', async (t) => {
  const { queue, frames, later, dropped } = queueOf()
  for (let i = 0; i < 400; i++) queue.push(END, Buffer.alloc(1000))
  await turn()
  const sent = frames.reduce((sum, { count }) => sum + count, 0)
  t.ok(sent < 400, `${sent} are with the system`)
  later(MAX_WAIT_MS + 1)
  queue.push(END, Buffer.alloc(1000))
  for (const { onSent } of frames.splice(0)) onSent()
  await turn()
  t.equal(dropped(), 400 - sent)
  t.equal(frames[0]?.count, 1, 'the new one goes')
})

t.test('the queue is bounded', async (t) => {
  const { queue, dropped } = queueOf()
  const count = Math.ceil((2 * MAX_WAITING_BYTES) / 1010)
  for (let i = 0; i < count; i++) queue.push(END, Buffer.alloc(1000))
  t.ok(dropped() >= count / 2 - 1, `${dropped()} of ${count} were dropped`)
  queue.close()
  queue.push(END, Buffer.alloc(1))
  await turn()
})
