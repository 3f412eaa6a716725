/** When a broker considers itself cut off from a store that other brokers serve too. */
import t from 'tap'
import { type RecordLog, StateError } from '../../broker/store/record-log.ts'
import { StoreHealth } from '../../broker/store/store-health.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'

async function stage(isShared: boolean) {
  const clock = new FakeClock()
  let isAway = false
  const log = {
    isShared: isShared ? true : undefined,
    refresh: () => (isAway ? Promise.reject(new StateError('Unreachable', 'x', 'x: no answer')) : Promise.resolve()),
  } as unknown as RecordLog
  const health = new StoreHealth({ clock, logger: new CapturingLogger() })
  const said: boolean[] = []
  health.started()
  const seconds = async (count: number, away: boolean): Promise<void> => {
    isAway = away
    for (let i = 0; i < count; i += 1) {
      await clock.advance(1000)
      await health.check(log, (isCutOff) => void said.push(isCutOff)).catch(() => undefined)
    }
  }
  await seconds(1, false)
  return { health, said, seconds }
}

t.test('after ten seconds, once, and again after it was back', async (t) => {
  const { health, said, seconds } = await stage(true)
  for (let round = 0; round < 3; round += 1) {
    said.length = 0
    await seconds(9, true)
    t.equal(health.reason, 'x: no answer')
    t.strictSame(said, [], 'a change of leader')
    await seconds(1, false)
    await seconds(9, true)
    t.strictSame(said, [], 'two of them')
    await seconds(30, true)
    t.strictSame(said, [true])
    await seconds(3, false)
    t.strictSame(said, [true, false])
    t.equal(health.reason, undefined)
  }
})

t.test('a broker that is the only one of its store has nobody to send its members to', async (t) => {
  const { health, said, seconds } = await stage(false)
  await seconds(60, true)
  t.strictSame(said, [])
  t.equal(health.reason, 'x: no answer')
})
