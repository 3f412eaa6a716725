/**
 * The state machine of one peer, as a story per row: a = answer, m = miss, w = miss that may yet be answered; the state
 * after each event.
 */
import t from 'tap'
import { PeerHealth } from '../../../gateway/health/lane-health.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'

const ROWS: [events: string, states: string, transitions: string][] = [
  ['', '', ''],
  ['mmmm', 'cccc', ''],
  ['a', 'u', 'connecting>up'],
  ['amm', 'uuu', 'connecting>up'],
  ['ammamm', 'uuuuuu', 'connecting>up'],
  ['ammm', 'uuud', 'connecting>up up>down'],
  ['ammmmm', 'uuuddd', 'connecting>up up>down'],
  ['ammma', 'uuudd', 'connecting>up up>down'],
  ['ammmaa', 'uuuddu', 'connecting>up up>down down>up'],
  ['ammmama', 'uuudddd', 'connecting>up up>down'],
  ['ammmamaa', 'uuuddddu', 'connecting>up up>down down>up'],
  ['ammwww', 'uuuuuu', 'connecting>up'],
  ['awwwm', 'uuuud', 'connecting>up up>down'],
  ['awwwam', 'uuuuuu', 'connecting>up'],
  ['wwww', 'cccc', ''],
  ['ammmwaa', 'uuudddu', 'connecting>up up>down down>up'],
  ['ammmaammm', 'uuudduuud', 'connecting>up up>down down>up up>down'],
]

t.test('states and transitions', async (t) => {
  for (const [events, states, transitions] of ROWS) {
    const seen: string[] = []
    const health = new PeerHealth(
      { clock: new FakeClock(), onTransition: (from, to) => seen.push(`${from}>${to}`) },
      { missesUntilDown: 3, answersUntilUp: 2 },
    )
    let after = ''
    for (const event of events) {
      if (event === 'a') health.onAnswer()
      else health.onMiss(event === 'w')
      after += health.state.is[0]!
    }
    t.equal(after, states, `states of ${events}`)
    t.equal(seen.join(' '), transitions, `transitions of ${events}`)
  }
})

t.test(
  'since is when the state began, by the clock that never jumps, and the callback sees the new state',
  async (t) => {
    const clock = new FakeClock({ now: 1000 })
    const seen: string[] = []
    const health: PeerHealth = new PeerHealth(
      { clock, onTransition: () => seen.push(`${health.state.is} since ${health.state.sinceMs}`) },
      { missesUntilDown: 2, answersUntilUp: 1 },
    )
    await clock.advance(50)
    health.onAnswer()
    await clock.advance(50)
    health.onAnswer()
    health.onMiss()
    health.onMiss()
    t.strictSame(seen, ['up since 50', 'down since 100'])
  },
)
