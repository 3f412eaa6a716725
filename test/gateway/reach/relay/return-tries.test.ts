/** When a relayed link is called directly again. */
import t from 'tap'
import {
  RETURN_APART_MS,
  RETURN_LONGEST_MS,
  RETURN_TRY_MS,
  ReturnTries,
} from '../../../../gateway/reach/relay/return-tries.ts'

t.test('a relayed link is called directly for each list of addresses, at most once in a minute', async (t) => {
  const tries = new ReturnTries()
  const base = { key: 'roma', isRelayed: true, isUp: true, isCallable: true, hasPlaces: true, where: 'a' }
  const look = (nowMs: number, change: Partial<typeof base> = {}) => tries.look([{ ...base, ...change }], nowMs).size
  t.equal(look(0, { hasPlaces: false }), 0, 'there is nothing to call')
  t.equal(look(1, { isUp: false }), 0, 'a link that is down has other means')
  t.equal(look(1000), 1, 'one end can be called now')
  t.equal(look(1000 + RETURN_TRY_MS - 1, { isRelayed: false }), 1, 'it lasts whatever the link does')
  t.equal(look(1000 + RETURN_TRY_MS), 0)
  t.equal(tries.recent(1000 + RETURN_TRY_MS).size, 1, 'the bindings stay')
  t.equal(look(2000 + RETURN_TRY_MS, { where: 'b' }), 0, 'other addresses wait for a minute')
  t.equal(look(1000 + RETURN_APART_MS, { where: 'b' }), 1)
  tries.look([], 2000 + RETURN_APART_MS)
  t.equal(tries.recent(2000 + RETURN_APART_MS).size, 0, 'a link that is gone is forgotten')
})

t.test('tries at the same addresses come after pauses that grow, also if neither end can be called', async (t) => {
  const base = { key: 'roma', isRelayed: true, isUp: true, hasPlaces: true, where: 'a' }
  const tried = (isCallable: boolean): number[] => {
    const tries = new ReturnTries()
    const times: number[] = []
    for (let nowMs = 0; nowMs <= 8 * RETURN_LONGEST_MS; nowMs += 10_000)
      if (tries.look([{ ...base, isCallable }], nowMs).size > 0) times.push(nowMs / RETURN_APART_MS)
    return times
  }
  t.strictSame(tried(true).slice(0, 8), [0, 1, 3, 7, 15, 31, 61, 91])
  t.strictSame(tried(false).slice(0, 8), [1, 3, 7, 15, 31, 61, 91, 121], 'the addresses were tried before the relay')
})

t.test('an end that can be called at last is called at once', async (t) => {
  const tries = new ReturnTries()
  const base = { key: 'roma', isRelayed: true, isUp: true, isCallable: false, hasPlaces: true, where: 'a' }
  t.equal(tries.look([base], 0).size, 0)
  t.equal(tries.look([{ ...base, isCallable: true, where: 'b' }], 1000).size, 1)
})

t.test('a try that became due while the link was down waits for its pause after the link is back', async (t) => {
  const tries = new ReturnTries()
  const base = { key: 'roma', isRelayed: true, isUp: true, isCallable: false, hasPlaces: true, where: 'a' }
  const look = (nowMs: number, change: Partial<typeof base> = {}) => tries.look([{ ...base, ...change }], nowMs).size
  look(0)
  const backMs = 5 * RETURN_APART_MS
  for (let nowMs = 1000; nowMs < backMs; nowMs += 1000) t.equal(look(nowMs, { isUp: false }), 0)
  t.equal(look(backMs), 0, 'it has just come back')
  t.equal(look(backMs + RETURN_APART_MS - 1000), 1)
})

t.test('a link that sleeps is not tried, because it would seem to be up at any address', async (t) => {
  const tries = new ReturnTries()
  const base = { key: 'roma', isRelayed: true, isUp: true, isAsleep: false, isCallable: false, hasPlaces: true }
  const look = (nowMs: number, isAsleep: boolean) => tries.look([{ ...base, isAsleep, where: 'a' }], nowMs).size
  look(0, false)
  const wakesMs = 5 * RETURN_APART_MS
  for (let nowMs = 1000; nowMs < wakesMs; nowMs += 1000) t.equal(look(nowMs, true), 0)
  t.equal(look(wakesMs, false), 0, 'it has just woken: there is traffic')
  t.equal(look(wakesMs + RETURN_APART_MS, false), 1)
})

t.test('a link that came back begins with short pauses again, unless it goes down soon', async (t) => {
  const base = { key: 'roma', isRelayed: true, isUp: true, isCallable: false, hasPlaces: true, where: 'a' }
  for (const [say, directMs, wantMs] of [
    ['soon', 30_000, 2 * RETURN_APART_MS],
    ['late', 10 * RETURN_APART_MS, RETURN_APART_MS],
  ] as const) {
    const tries = new ReturnTries()
    tries.look([base], 0)
    t.equal(tries.look([base], RETURN_APART_MS).size, 1)
    let nowMs = RETURN_APART_MS
    tries.look([{ ...base, isRelayed: false }], (nowMs += directMs))
    tries.look([base], nowMs)
    const from = say === 'soon' ? RETURN_APART_MS : nowMs
    t.equal(tries.look([base], from + wantMs - 1).size, 0, say)
    t.equal(tries.look([base], from + wantMs).size, 1, say)
  }
})
