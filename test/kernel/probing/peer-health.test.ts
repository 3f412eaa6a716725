/**
 * The state machine of one peer, with a story per row: a = answer, m = miss, w = miss that may still be answered, each
 * 100 ms after the one before. The expected text has the state after each event, with ? while it is suspect.
 */
import t from 'tap'
import { PeerHealth } from '../../../kernel/probing/peer-health.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'

const INIT = { missesUntilSuspect: 2, downAfterMs: 400, answersUntilUp: 2 }

const ROWS: [events: string, states: string, transitions: string][] = [
  ['', '', ''],
  ['mmmm', 'cccc', ''],
  ['a', 'u', 'connecting>up'],
  ['am', 'uu', 'connecting>up'],
  ['amm', 'uu?', 'connecting>up doubted'],
  ['ammamm', 'uu?uu?', 'connecting>up doubted trusted doubted'],
  ['ammm', 'uu??', 'connecting>up doubted'],
  ['ammmm', 'uu??d', 'connecting>up doubted up>down'],
  ['ammmmmm', 'uu??ddd', 'connecting>up doubted up>down'],
  ['ammmma', 'uu??dd', 'connecting>up doubted up>down'],
  ['ammmmaa', 'uu??ddu', 'connecting>up doubted up>down down>up'],
  ['ammmmama', 'uu??dddd', 'connecting>up doubted up>down'],
  ['awwwwww', 'uuuuuuu', 'connecting>up'],
  ['awwwm', 'uuuud', 'connecting>up up>down'],
  ['ammwww', 'uu?uuu', 'connecting>up doubted trusted'],
  ['wwww', 'cccc', ''],
]

t.test('states and transitions', async (t) => {
  for (const [events, states, transitions] of ROWS) {
    const seen: string[] = []
    const clock = new FakeClock()
    const health = new PeerHealth(
      {
        clock,
        onTransition: (from, to) => seen.push(`${from}>${to}`),
        onSuspect: (doubted) => seen.push(doubted ? 'doubted' : 'trusted'),
      },
      INIT,
    )
    let after = ''
    for (const event of events) {
      await clock.advance(100)
      if (event === 'a') health.onAnswer()
      else health.onMiss(event === 'w')
      after += health.suspected ? '?' : health.state.is[0]!
    }
    t.equal(after, states, `states of ${events}`)
    t.equal(seen.join(' '), transitions, `transitions of ${events}`)
  }
})

t.test('unanswered, here !: after a longer silence, and until it has answered for a while', async (t) => {
  const rows: [events: string, states: string, changes: string][] = [
    ['ammm', 'uu?!', 'avoided'],
    ['amma', 'uu?u', ''],
    ['ammwm', 'uu?u?', ''],
    ['awwww', 'uuuuu', ''],
    ['ammma', 'uu?!!', 'avoided'],
    ['ammmaaa', 'uu?!!!u', 'avoided used'],
    ['ammmama', 'uu?!!!u', 'avoided used'],
    ['ammmammaaa', 'uu?!!!!!!u', 'avoided used'],
    ['ammmaaammm', 'uu?!!!uu?!', 'avoided used avoided'],
    ['ammmmmmmaa', 'uu?!!!!ddu', 'avoided'],
  ]
  for (const [events, states, changes] of rows) {
    const seen: string[] = []
    const clock = new FakeClock()
    const health = new PeerHealth(
      {
        clock,
        onTransition: () => undefined,
        onUnanswered: (unanswered) => seen.push(unanswered ? 'avoided' : 'used'),
      },
      { ...INIT, downAfterMs: 700, unansweredAfterMs: 300, calmAfterMs: 200 },
    )
    let after = ''
    for (const event of events) {
      await clock.advance(100)
      if (event === 'a') health.onAnswer()
      else health.onMiss(event === 'w')
      after += health.unanswered ? '!' : health.suspected ? '?' : health.state.is[0]!
    }
    t.equal(after, states, `states of ${events}`)
    t.equal(seen.join(' '), changes, `what is told of ${events}`)
  }
})

t.test('one that starts as up has been silent since then', async (t) => {
  const clock = new FakeClock()
  const health = new PeerHealth({ clock, onTransition: () => undefined }, { ...INIT, startsUp: true })
  t.equal(health.state.is, 'up')
  await clock.advance(400)
  health.onMiss()
  t.equal(health.state.is, 'up', 'one miss is not enough, however long ago it started')
  health.onMiss()
  t.equal(health.state.is, 'down')
})

t.test('since is when the state began, by the clock that never jumps; callbacks see the new state', async (t) => {
  const clock = new FakeClock({ now: 1000 })
  const seen: string[] = []
  const health: PeerHealth = new PeerHealth(
    { clock, onTransition: () => seen.push(`${health.state.is} since ${health.state.sinceMs}`) },
    { missesUntilSuspect: 1, downAfterMs: 0, answersUntilUp: 1 },
  )
  await clock.advance(50)
  health.onAnswer()
  await clock.advance(50)
  health.onMiss()
  t.strictSame(seen, ['up since 50', 'down since 100'])
})
