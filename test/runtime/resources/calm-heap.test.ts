import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import t from 'tap'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { eventually } from '../../support/eventually.ts'
import { calmHeap, ownHeap } from '../../../runtime/process-resources.ts'

t.test('size is preferred while there is little to do, and no longer in the middle of work', async (t) => {
  const clock = new FakeClock()
  const stop = new AbortController()
  const said: boolean[] = []
  let share = 0
  const heap = { busy: () => share, preferSize: (on: boolean) => void said.push(on) }
  const done = calmHeap(heap, clock, stop.signal)
  const rows: [busy: number, said: boolean[], what: string][] = [
    [0.9, [], 'busy from the start: nothing is said'],
    [0.3, [], 'neither calm nor busy: as before'],
    [0.1, [true], 'calm'],
    [0.1, [true], 'said once'],
    [0.4, [true], 'neither calm nor busy: as before'],
    [0.6, [true, false], 'busy'],
    [0.3, [true, false], 'not calm yet'],
    [0, [true, false, true], 'calm again'],
  ]
  for (const [busy, expected, what] of rows) {
    share = busy
    await clock.advance(5000)
    t.same(said, expected, what)
  }
  stop.abort()
  await done
  await clock.advance(60_000)
  t.same(said, [true, false, true, false], 'with the signal it is as it was before, and nothing is said after')
})

t.test('the heap of this process', async (t) => {
  const heap = ownHeap()
  const until = performance.now() + 50
  while (performance.now() < until);
  t.ok(heap.busy() > 0.5, 'worked')
  // Other tests may run in this process meanwhile.
  await eventually(() => heap.busy() < 0.5, { intervalMs: 100, say: 'it waits' })
  for (const on of [true, false]) heap.preferSize(on)
  // V8 ignores an unknown option without a message.
  const { stdout } = await promisify(execFile)(process.execPath, ['--v8-options'])
  t.match(stdout, /--optimize-for-size /)
})
