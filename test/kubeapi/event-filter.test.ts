import t from 'tap'
import type { ObjectEvent } from '../../kubeapi/cluster-api.ts'
import { EVENT_WINDOW_MS, EventFilter } from '../../kubeapi/driver/object-key.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'

const event = (note: string, uid?: string): ObjectEvent => ({
  regarding: { kind: 'ServiceExport', name: 'web', namespace: 'shop', uid },
  type: 'Normal',
  reason: 'Exported',
  note,
})

t.test('the same event passes again after ten minutes', async (t) => {
  const clock = new FakeClock()
  const filter = new EventFilter(clock)
  t.ok(filter.pass(event('a')))
  await clock.advance(EVENT_WINDOW_MS - 1)
  t.notOk(filter.pass(event('a')))
  t.ok(filter.pass(event('a', 'another object of this name')))
  t.ok(filter.pass({ ...event('a'), type: 'Warning' }))
  await clock.advance(1)
  t.ok(filter.pass(event('a')))
  t.notOk(filter.pass(event('a')))
})

t.test('texts are cut in bytes, between characters', async (t) => {
  const filter = new EventFilter(new FakeClock())
  const cut = filter.pass(event('é'.repeat(600)))
  t.match(cut?.note, /^é+…$/)
  t.ok(Buffer.byteLength(cut?.note ?? '') <= 1024)
  t.equal(filter.pass(event('x'.repeat(1024)))?.note, 'x'.repeat(1024), 'what fits stays')
})

t.test('what is remembered is bounded: the oldest may be told again', async (t) => {
  const filter = new EventFilter(new FakeClock())
  for (let i = 0; i <= 2000; i += 1) filter.pass(event(`note ${i}`))
  t.ok(filter.pass(event('note 0')))
  t.notOk(filter.pass(event('note 2000')))
})
