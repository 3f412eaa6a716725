/** The heartbeat as people write it: what is taken, and what is refused, in words. */
import t from 'tap'
import { readHeartbeat } from '../../compose/heartbeat.ts'

t.test('taken', (t) => {
  t.equal(readHeartbeat(undefined), 5000, 'the default')
  t.equal(readHeartbeat(''), 5000, 'empty is as absent')
  for (const [text, ms] of [
    ['1s', 1000],
    ['2500ms', 2500],
    ['10s', 10_000],
  ] as const)
    t.equal(readHeartbeat(text), ms, text)
  t.end()
})

t.test('refused', (t) => {
  for (const [text, expected] of [
    ['999ms', '1s to 10s'],
    ['11s', '1s to 10s'],
    ['0s', '1s to 10s'],
    ['5', 'a duration such as 500ms, 10s, 5m or 24h'],
    ['-5s', 'a duration such as 500ms, 10s, 5m or 24h'],
    ['often', 'a duration such as 500ms, 10s, 5m or 24h'],
  ] as const)
    t.throws(() => readHeartbeat(text), { message: `SEALANE_HEARTBEAT "${text}": expected ${expected}` })
  t.end()
})
