import t from 'tap'
import { LeftOut } from '../../../agent/mirror/mirror-loop.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'

t.test('each thing once, a bounded number at a time, and what may settle only when it lasts', async (t) => {
  const clock = new FakeClock()
  const logger = new CapturingLogger()
  const leftOut = new LeftOut({ clock, logger })
  const reported = (): string[] =>
    logger.lines.splice(0).map(({ fields }) => String(fields['record'] ?? fields['count']))
  const [bad, own] = [
    { what: 'bad', reason: 'InvalidValue', message: 'r' },
    { what: 'own', reason: 'InvalidValue', message: 'r', settles: true },
  ] as const
  leftOut.report([bad, own, bad])
  t.strictSame(reported(), ['bad'])
  await clock.advance(9_000)
  leftOut.report([bad, own])
  t.strictSame(reported(), [])
  await clock.advance(1_000)
  leftOut.report([bad, own])
  leftOut.report([bad, own])
  t.strictSame(reported(), ['own'])
  leftOut.report([])
  leftOut.report([bad, own])
  t.strictSame(reported(), ['bad'], 'it begins anew')
  leftOut.report(
    Array.from({ length: 50 }, (_, i) => ({ what: `m${i}`, reason: 'InvalidValue' as const, message: 'r' })),
  )
  t.equal(reported().length, 21)
})
