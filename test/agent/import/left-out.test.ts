import t from 'tap'
import { LeftOut } from '../../../agent/import/left-out.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'

t.test('each thing once, a bounded number at a time, and what may settle only when it lasts', async (t) => {
  const clock = new FakeClock()
  const logger = new CapturingLogger()
  const leftOut = new LeftOut({ clock, logger })
  const told = (): string[] => logger.lines.splice(0).map(({ fields }) => String(fields['record'] ?? fields['count']))
  const [bad, own] = [
    { what: 'bad', reason: 'InvalidValue', message: 'r' },
    { what: 'own', reason: 'InvalidValue', message: 'r', settles: true },
  ] as const
  leftOut.tell([bad, own, bad])
  t.strictSame(told(), ['bad'])
  await clock.advance(9_000)
  leftOut.tell([bad, own])
  t.strictSame(told(), [])
  await clock.advance(1_000)
  leftOut.tell([bad, own])
  leftOut.tell([bad, own])
  t.strictSame(told(), ['own'])
  leftOut.tell([])
  leftOut.tell([bad, own])
  t.strictSame(told(), ['bad'], 'it begins anew')
  leftOut.tell(Array.from({ length: 50 }, (_, i) => ({ what: `m${i}`, reason: 'InvalidValue' as const, message: 'r' })))
  t.equal(told().length, 21)
})
