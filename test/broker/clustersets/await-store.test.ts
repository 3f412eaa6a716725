/** A broker starts while its store on the network does not answer. */
import t from 'tap'
import { StateError } from '../../../broker/store/record-log.ts'
import { AWAIT_STORE_MS, awaitStore } from '../../../broker/served-clusterset.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'

const away = (message: string): StateError => new StateError('Unreachable', 'etcd://e1', message)

function world(tries: (() => string)[]) {
  const clock = new FakeClock()
  const logger = new CapturingLogger()
  const heard: string[] = []
  const stop = new AbortController()
  let made = 0
  const open = async (): Promise<string> => (tries[made++] ?? tries.at(-1)!)()
  const result = awaitStore(open, { clock, logger, onAway: (why) => heard.push(why) }, stop.signal).then(
    (value) => ({ value }),
    (error: unknown) => ({ error }),
  )
  return { clock, logger, heard, stop, result, made: () => made }
}

const fails = (error: unknown) => (): string => {
  throw error
}

t.test('a store that comes is opened, and each reason is told once', async (t) => {
  const tries = [fails(away('no')), fails(away('no')), fails(away('no leader')), () => 'opened']
  const { clock, logger, heard, result, made } = world(tries)
  await clock.advance(20_000)
  t.strictSame(await result, { value: 'opened' })
  t.equal(made(), 4)
  t.strictSame(heard, ['no', 'no', 'no leader'])
  t.strictSame(
    logger.lines.map(({ fields }) => fields['why']),
    ['no', 'no leader'],
  )
})

t.test('what waiting does not mend ends it at once', async (t) => {
  for (const code of ['Denied', 'Foreign', 'TooOld', 'TooNew', 'Full', 'Stale'] as const) {
    const error = new StateError(code, 'etcd://e1', 'no')
    const { result, made, heard } = world([fails(error)])
    t.strictSame(await result, { error }, code)
    t.equal(made(), 1)
    t.strictSame(heard, [])
  }
  const error = new TypeError('a fault of the program')
  t.strictSame(await world([fails(error)]).result, { error })
})

t.test('one that stays away ends it, with the last reason', async (t) => {
  const error = away('no')
  const { clock, result, made, logger } = world([fails(error)])
  await clock.advance(AWAIT_STORE_MS - 1)
  const before = made()
  t.ok(before > 10, 'it has tried often')
  await clock.advance(10_000)
  t.strictSame(await result, { error })
  t.equal(made(), before + 1)
  t.equal(logger.lines.length, 1)
})

t.test('a signal ends the waiting', async (t) => {
  const { clock, stop, result, made } = world([fails(away('no'))])
  await clock.advance(1000)
  const before = made()
  stop.abort(new Error('stopped'))
  t.match(await result, { error: { message: 'stopped' } })
  await clock.advance(10_000)
  t.equal(made(), before)
})
