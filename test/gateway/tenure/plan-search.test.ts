import fc from 'fast-check'
import t from 'tap'
import { type SearchFacts, type SearchedLane, planSearch } from '../../../gateway/lease/plan-lease.ts'

const lane = (number: number, init: Partial<SearchedLane> = {}): SearchedLane => ({
  lane: number,
  holder: 'other',
  openSinceMs: undefined,
  isNew: false,
  offered: false,
  pinned: 0,
  reported: false,
  ...init,
})
const open = (number: number, sinceMs = 0, init: Partial<SearchedLane> = {}): SearchedLane =>
  lane(number, { holder: '', openSinceMs: sinceMs, ...init })
const fresh = (number: number, init: Partial<SearchedLane> = {}): SearchedLane =>
  open(number, 0, { isNew: true, ...init })

t.test('which lane a node takes whose label leaves the number open', (t) => {
  const rows: [say: string, facts: Partial<SearchFacts>, lanes: SearchedLane[], found: number | undefined][] = [
    ['all have their gateway', {}, [lane(0), lane(1)], undefined],
    ['the one that it holds', {}, [open(0), lane(1, { holder: 'me' })], 1],
    [
      'of two that it holds the one that others know',
      {},
      [lane(0, { holder: 'me' }), lane(1, { holder: 'me', reported: true })],
      1,
    ],
    ['the first one', {}, [open(0), open(1)], 0],
    ['the second node the second one', { turn: 1 }, [open(0), open(1)], 1],
    ['the third node waits', { turn: 2 }, [open(0), open(1)], undefined],
    ['for a turn', { turn: 2, nowMs: 1500 }, [open(0), open(1)], 1],
    ['longer where all is new', { turn: 2, nowMs: 4999 }, [fresh(0), fresh(1)], undefined],
    ['and then takes it', { turn: 2, nowMs: 5000 }, [fresh(0), fresh(1)], 1],
    ['one that was lost goes to the first', {}, [lane(0), lane(1, { openSinceMs: 0 })], 1],
    ['the second waits for the first', { turn: 1, nowMs: 1499 }, [lane(0), lane(1, { openSinceMs: 0 })], undefined],
    ['not for ever', { turn: 1, nowMs: 1500 }, [lane(0), lane(1, { openSinceMs: 0 })], 1],
    ['one that a label names comes last', {}, [fresh(0, { pinned: 1 }), fresh(1)], 1],
    ['and the second node waits for both', { turn: 1, nowMs: 4999 }, [fresh(0, { pinned: 1 }), fresh(1)], undefined],
    ['which has a turn', {}, [fresh(0, { pinned: 1 })], undefined],
    ['and no more', { nowMs: 5000 }, [fresh(0, { pinned: 1 })], 0],
    ['what it has published, whatever its turn', { turn: 5 }, [open(0), open(1, 0, { reported: true })], 1],
    ['a node that goes takes none', { away: true, nowMs: 9999 }, [open(0)], undefined],
    ['but what nobody else takes', { away: true, nowMs: 10_000 }, [open(0)], 0],
    [
      'and nothing that its holder only offers',
      { away: true, nowMs: 99_000 },
      [open(0, 0, { offered: true })],
      undefined,
    ],
  ]
  for (const [say, facts, lanes, found] of rows) {
    t.equal(planSearch({ node: 'me', nowMs: 0, turn: 0, away: false, ...facts, lanes }), found, say)
  }
  t.end()
})

t.test('any lane that is open is taken in the end, by whoever is left; none that is not open ever is', (t) => {
  const lanes = fc.uniqueArray(
    fc.record({
      lane: fc.integer({ min: 0, max: 7 }),
      openSinceMs: fc.option(fc.integer({ min: 0, max: 1000 }), { nil: undefined }),
      isNew: fc.boolean(),
      offered: fc.boolean(),
      pinned: fc.integer({ min: 0, max: 3 }),
      reported: fc.boolean(),
    }),
    { selector: (one) => one.lane, maxLength: 8 },
  )
  fc.assert(
    fc.property(
      lanes,
      fc.integer({ min: 0, max: 20 }),
      fc.boolean(),
      fc.integer({ min: 0, max: 200_000 }),
      (all, turn, away, nowMs) => {
        const searched = all.map((one): SearchedLane => ({ holder: 'other', ...one, openSinceMs: one.openSinceMs }))
        const at = (ms: number): number | undefined =>
          planSearch({ node: 'me', nowMs: ms, turn, away, lanes: searched })
        const isOpen = (found: number): boolean =>
          searched.some((one) => one.lane === found && one.openSinceMs !== undefined)
        const now = at(nowMs)
        if (now !== undefined && !isOpen(now)) return false
        const last = at(1_000_000)
        const mayTake = (one: SearchedLane): boolean => one.openSinceMs !== undefined && !(away && one.offered)
        return (last !== undefined) === searched.some(mayTake)
      },
    ),
  )
  t.end()
})

t.test('as many nodes as lanes take one each, at once', (t) => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 8 }), fc.boolean(), (count, isNew) => {
      const lanes = Array.from({ length: count }, (_, number) => open(number, 0, { isNew }))
      const taken = lanes.map((_, turn) => planSearch({ node: `n${turn}`, nowMs: 0, turn, away: false, lanes }))
      return new Set(taken).size === count && !taken.includes(undefined)
    }),
  )
  t.end()
})
