/** The election and the fencing of several hubs, on random schedules of messages, losses, restarts and writes. */
import fc from 'fast-check'
import t from 'tap'
import {
  ELECTION_MS,
  type StoredTerm,
  TERM_LEASE_MS,
  type TermState,
  type Version,
  type VoteRequest,
  isConfirmed,
  isOlder,
  isServing,
  onAnswer,
  onChange,
  onLeader,
  onStored,
  onVote,
  onVoteRequest,
  promoted,
  resigned,
  resumed,
  startTerm,
  voteRequest,
  whenSilent,
} from '../../../kubeapi/remote/plan-term.ts'

const HUBS = ['a', 'b', 'c'] as const

/** Each hub has the list of writes that its files contain. Messages are calls that the schedule lets pass or loses. */
class World {
  readonly states = new Map<string, TermState>()
  readonly files = new Map<string, readonly number[]>()
  readonly acted = new Map<number, string>()
  readonly confirmed = new Set<number>()
  readonly #members: readonly string[]
  nowMs = 0
  #writes = 0

  constructor(members: readonly string[]) {
    this.#members = members
    for (const hub of members) {
      this.states.set(hub, startTerm(hub, undefined, 0))
      this.files.set(hub, [])
    }
  }

  state(hub: string): TermState {
    const state = this.states.get(hub)
    if (state === undefined) throw new Error(hub)
    return state
  }

  tick(hub: string): void {
    this.states.set(hub, whenSilent(this.state(hub), this.#members, this.nowMs))
    this.#check()
  }

  vote(from: string, to: string): void {
    const request = voteRequest(this.state(from))
    if (request === undefined || from === to) return
    const { state, granted } = onVoteRequest(this.state(to), this.#members, request, this.nowMs)
    this.states.set(to, state)
    this.states.set(
      from,
      onVote(this.state(from), this.#members, request, { from: to, term: state.term, granted }, this.nowMs),
    )
    this.#check()
  }

  /** `isLost`: the answer does not arrive. */
  follow(from: string, to: string, isLost: boolean): void {
    const leader = this.state(from)
    if (leader.role.is !== 'acting' || from === to) return
    const sentMs = this.nowMs
    const { state, accepted } = onLeader(this.state(to), this.#members, { term: leader.term, hub: from }, this.nowMs)
    this.states.set(to, accepted ? onStored(state, leader.version) : state)
    if (accepted) this.files.set(to, this.files.get(from) ?? [])
    const { term, version } = this.state(to)
    if (!isLost) this.states.set(from, onAnswer(leader, to, leader.term, { term, version, sentMs }))
    this.#check()
  }

  write(hub: string): void {
    if (!isServing(this.state(hub), this.#members, this.nowMs)) return
    this.#writes += 1
    this.files.set(hub, [...(this.files.get(hub) ?? []), this.#writes])
    this.states.set(hub, onChange(this.state(hub)))
  }

  elect(hub: string, reach: readonly string[]): void {
    this.nowMs += 3000
    this.tick(hub)
    for (const to of [...reach, ...reach]) this.vote(hub, to)
  }

  serve(hub: string, reach: readonly string[]): void {
    for (const to of reach) this.follow(hub, to, false)
    this.write(hub)
    for (const to of reach) this.follow(hub, to, false)
  }

  resign(hub: string): void {
    this.states.set(hub, resigned(this.state(hub), this.#members, this.nowMs))
    this.#check()
  }

  restart(hub: string): void {
    const { term, votedFor, version, role } = this.state(hub)
    const stored: StoredTerm = { term, votedFor, version, acts: role.is === 'acting' }
    this.states.set(hub, startTerm(hub, stored, this.nowMs))
  }

  #check(): void {
    const serving = this.#members.filter((hub) => isServing(this.state(hub), this.#members, this.nowMs))
    if (serving.length > 1) throw new Error(`${serving.join(' and ')} act at the same time`)
    for (const hub of this.#members) {
      const state = this.state(hub)
      if (state.role.is !== 'acting') continue
      const other = this.acted.get(state.term) ?? hub
      if (other !== hub) throw new Error(`${other} and ${hub} act in term ${state.term}`)
      this.acted.set(state.term, hub)
    }
    for (const hub of serving) {
      const state = this.state(hub)
      const files = this.files.get(hub) ?? []
      for (const write of this.confirmed) if (!files.includes(write)) throw new Error(`write ${write} is lost`)
      if (isConfirmed(state, this.#members, state.version)) for (const write of files) this.confirmed.add(write)
    }
  }
}

const hub = fc.constantFrom(...HUBS)
const step = fc.oneof(
  { weight: 3, arbitrary: fc.record({ is: fc.constant('wait' as const), ms: fc.integer({ min: 100, max: 4000 }) }) },
  { weight: 4, arbitrary: fc.record({ is: fc.constant('tick' as const), hub }) },
  { weight: 6, arbitrary: fc.record({ is: fc.constant('vote' as const), hub, to: hub }) },
  { weight: 8, arbitrary: fc.record({ is: fc.constant('follow' as const), hub, to: hub, isLost: fc.boolean() }) },
  { weight: 4, arbitrary: fc.record({ is: fc.constant('write' as const), hub }) },
  { weight: 1, arbitrary: fc.record({ is: fc.constant('restart' as const), hub }) },
  { weight: 1, arbitrary: fc.record({ is: fc.constant('resign' as const), hub }) },
  // What happens where messages get through: rare among single messages.
  { weight: 3, arbitrary: fc.record({ is: fc.constant('elect' as const), hub, reach: fc.subarray([...HUBS]) }) },
  { weight: 6, arbitrary: fc.record({ is: fc.constant('serve' as const), hub, reach: fc.subarray([...HUBS]) }) },
)

t.test('no two act in one term or at one time, and what is confirmed outlives a minority', async (t) => {
  let [acted, confirmed] = [0, 0]
  fc.assert(
    fc.property(fc.array(step, { minLength: 40, maxLength: 150 }), (steps) => {
      const world = new World(HUBS)
      for (const one of steps) {
        if (one.is === 'wait') world.nowMs += one.ms
        else if (one.is === 'tick') world.tick(one.hub)
        else if (one.is === 'vote') world.vote(one.hub, one.to)
        else if (one.is === 'follow') world.follow(one.hub, one.to, one.isLost)
        else if (one.is === 'write') world.write(one.hub)
        else if (one.is === 'restart') world.restart(one.hub)
        else if (one.is === 'resign') world.resign(one.hub)
        else if (one.is === 'elect') world.elect(one.hub, one.reach)
        else world.serve(one.hub, one.reach)
      }
      acted += world.acted.size
      confirmed += world.confirmed.size
    }),
    { numRuns: 400 },
  )
  t.ok(acted > 100, `${acted} elections`)
  t.ok(confirmed > 50, `${confirmed} confirmed writes`)
})

const at = (term: number, index: number): Version => ({ term, index })
const ask = (change: Partial<VoteRequest> = {}): VoteRequest => ({
  ...{ term: 5, hub: 'b', version: at(4, 9), isTrial: false },
  ...change,
})

t.test('who gets a vote', async (t) => {
  const stored: StoredTerm = { term: 4, version: at(4, 7), acts: false }
  const state = startTerm('a', stored, 0)
  const granted = (request: VoteRequest, members: readonly string[] = HUBS, nowMs = ELECTION_MS): boolean =>
    onVoteRequest(state, members, request, nowMs).granted
  t.ok(granted(ask()))
  t.ok(granted(ask({ isTrial: true })))
  t.notOk(granted(ask(), HUBS, ELECTION_MS - 1), 'not while the acting hub may be there: also after a start')
  t.notOk(granted(ask({ term: 3 })), 'a lower term')
  t.notOk(granted(ask({ version: at(4, 6) })), 'older files')
  t.notOk(granted(ask({ version: at(3, 99) })), 'files of an earlier term')
  t.notOk(granted(ask({ hub: 'x' })), 'no hub of the site')
  t.notOk(granted(ask(), ['a', 'b']), 'of two hubs none is elected')
  const voted = onVoteRequest(state, HUBS, ask(), ELECTION_MS).state
  t.notOk(onVoteRequest(voted, HUBS, ask({ hub: 'c' }), ELECTION_MS).granted, 'one vote in a term')
  t.ok(onVoteRequest(voted, HUBS, ask(), ELECTION_MS).granted, 'the answer was lost')
  t.ok(isOlder(at(1, 9), at(2, 0)) && isOlder(at(2, 0), at(2, 1)) && !isOlder(at(2, 1), at(2, 1)))
})

t.test('who leaves its office when its disk hangs', async (t) => {
  const world = new World(HUBS)
  world.elect('a', HUBS)
  world.elect('a', HUBS)
  const acts = (hub: string): boolean => world.state(hub).role.is === 'acting'
  t.ok(acts('a'))
  world.resign('a')
  t.ok(acts('a'), 'not while nobody has answered it')
  world.follow('a', 'b', false)
  world.resign('a')
  t.ok(acts('a'), 'nor for one that would not be a majority')
  for (const to of ['b', 'c']) world.follow('a', to, false)
  world.nowMs += TERM_LEASE_MS
  world.resign('a')
  t.ok(acts('a'), 'nor for those that have fallen silent')
  for (const to of ['b', 'c']) world.follow('a', to, false)
  world.resign('a')
  t.match(world.state('a'), { role: { is: 'following' }, leader: undefined })
  for (let tries = 0; tries < 4 && !acts('b'); tries += 1) world.elect('b', ['c'])
  t.ok(acts('b'), 'the others need no vote of it')
  const pair = onAnswer(whenSilent(startTerm('a', undefined, 0), ['a'], 0), 'b', 1, {
    ...{ term: 1, version: at(1, 1), sentMs: 0 },
  })
  t.equal(resigned(pair, ['a', 'b'], 0).role.is, 'acting', 'of two, nobody would take over')
})

t.test('one hub and two', async (t) => {
  const alone = whenSilent(startTerm('a', undefined, 0), ['a'], 0)
  t.ok(isServing(alone, ['a'], 0), 'one acts at once')
  const pair = ['a', 'b']
  const first = onAnswer(alone, 'b', alone.term, { term: 1, version: at(0, 0), sentMs: 0 })
  t.ok(isServing(first, pair, 3_600_000), 'the first of two goes on without the second')
  const second = onLeader(startTerm('b', undefined, 0), pair, { term: 1, hub: 'a' }, 0).state
  t.equal(whenSilent(second, pair, 3_600_000).role.is, 'following', 'the second takes over by no time')
  const acting = promoted(second)
  t.notOk(isServing(acting, pair, 0), 'it first calls the other one')
  t.ok(isServing(onAnswer(acting, 'a', acting.term, undefined), pair, 0))
  const stored = { term: 1, version: at(1, 9), acts: true }
  const back = resumed(startTerm('a', stored, 0), stored)
  const heard = onLeader(startTerm('a', stored, 0), pair, { term: 2, hub: 'b' }, 0).state
  t.equal(resumed(heard, stored).role.is, 'following', 'nor one that heard from another one while it started')
  t.equal(resumed(startTerm('a', { ...stored, acts: false }, 0), { ...stored, acts: false }).role.is, 'following')
  t.notOk(isServing(back, pair, 0), 'nor does the first one serve before it has called')
  t.notOk(onLeader(acting, pair, { term: 1, hub: 'a' }, 0).accepted, 'a lower term is refused')
  t.equal(onAnswer(back, 'b', 1, { term: 2, version: at(2, 1), sentMs: 0 }).role.is, 'following')
  t.equal(onLeader(back, pair, { term: 2, hub: 'b' }, 0).state.role.is, 'following')
  const both = promoted(startTerm('a', { term: 1, version: at(1, 9), acts: false }, 0))
  t.notOk(onLeader(both, pair, { term: both.term, hub: 'b' }, 0).accepted, 'both were promoted: the first acts')
  t.ok(onLeader(acting, pair, { term: acting.term, hub: 'a' }, 0).accepted)
  t.ok([TERM_LEASE_MS].every((ms) => ms < ELECTION_MS))
})
