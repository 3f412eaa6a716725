/** One round of changes to the kernel. */
import t from 'tap'
import { Round } from '../../../kernel/apply/round.ts'
import { KernelError, isExists } from '../../../kernel/errors.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'

const BUSY = new KernelError('EBUSY', 'ip route replace', 'not now')

t.test('goes on past failures, and throws them at the end', async (t) => {
  const logger = new CapturingLogger()
  const counted: unknown[] = []
  const round = new Round({ logger, changes: { inc: (labels: unknown) => void counted.push(labels) } })
  t.equal(await round.change('route', 'first', () => Promise.reject(BUSY)), false)
  t.equal(await round.change('rule', 'second', () => Promise.resolve()), true)
  t.same([round.failures, round.changes, counted], [1, 1, [{ kind: 'rule' }]])
  t.same(round.failure, { message: BUSY.message, reason: 'RoundFailed' })
  t.throws(() => round.finish(), BUSY, 'one failure is thrown as it is')
  t.equal(await round.attempt(() => Promise.reject(new Error('no such device'))), undefined)
  t.throws(() => round.finish(), { name: 'AggregateError', message: `${BUSY.message}; no such device` })
  t.same(logger.messages('debug'), ['changed'])
})

t.test('what is there already is neither a failure nor a change', async (t) => {
  const round = new Round({ logger: new CapturingLogger() })
  const there = (): Promise<void> => Promise.reject(new KernelError('EEXIST', 'ip rule add', 'there'))
  t.equal(await round.change('rule', 'rule', there, isExists), true)
  t.same([round.failures, round.changes, round.failure], [0, 0, undefined])
  t.doesNotThrow(() => round.finish())
  t.equal(await round.change('rule', 'rule', there), false)
  t.equal(round.failures, 1)
})
