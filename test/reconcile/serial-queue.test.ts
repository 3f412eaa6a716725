import t from 'tap'
import { SerialQueue } from '../../reconcile/serial-queue.ts'

t.test('one at a time, in the order of asking, also after one that failed', async (t) => {
  const turns = new SerialQueue()
  const said: string[] = []
  const gates = ['a', 'b', 'c'].map((name) => {
    const gate = Promise.withResolvers<string>()
    const turn = turns.run(() => {
      said.push(name)
      return gate.promise
    })
    return { turn, gate }
  })
  const [a, b, c] = gates as [(typeof gates)[0], (typeof gates)[0], (typeof gates)[0]]
  await Promise.resolve()
  t.strictSame(said, ['a'], 'the second waits')
  a.gate.resolve('done')
  t.equal(await a.turn, 'done')
  b.gate.reject(new Error('failed'))
  await t.rejects(b.turn, { message: 'failed' })
  c.gate.resolve('done too')
  t.equal(await c.turn, 'done too')
  t.strictSame(said, ['a', 'b', 'c'])
})
