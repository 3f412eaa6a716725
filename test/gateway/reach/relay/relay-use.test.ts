/** Which relays a gateway asks for which links, and when a relayed link is called directly again. */
import fc from 'fast-check'
import t from 'tap'
import {
  type LinkInUse,
  MOST_WANTS,
  planRelayUse,
  relayOf,
  relayOrder,
} from '../../../../gateway/reach/relay/plan-relay-use.ts'
import {
  PUNCH_SETTLES_MS,
  PunchedLinks,
  RELAY_FAILS_MS,
  RETURN_APART_MS,
  RETURN_LONGEST_MS,
  RETURN_TRY_MS,
  RelayTurns,
  ReturnTries,
} from '../../../../gateway/reach/relay/relays.ts'
import { parseAddressPort } from '../../../../model/addresses/address-port.ts'
import { relayMark } from '../../../../model/lanes/lanes.ts'

const OWN = 'paris.gw1-lane0'

function link(cluster: string, change: Partial<LinkInUse> = {}): LinkInUse {
  const endpoint = `${cluster}.gw1-lane0`
  const base = { key: `${endpoint} ${cluster}-key`, remoteLane: 0, cluster, endpoint, identity: `${cluster}-key` }
  return { ...base, hidden: true, state: 'connecting', ...change }
}

/** A gateway that relays, at the address with this last number. */
function relay(cluster: string, number: number, change: Partial<LinkInUse> = {}): LinkInUse {
  const at = parseAddressPort(`203.0.113.${number}:4500`)
  return link(cluster, { hidden: false, state: 'up', relays: true, at, ...change })
}

/** One whose link is new. */
function called(cluster: string, number: number): LinkInUse {
  return relay(cluster, number, { state: 'connecting', isNew: true })
}

interface Wanted {
  readonly links: readonly LinkInUse[]
  readonly hidden?: boolean
  readonly keeps?: readonly string[]
  readonly lonely?: readonly string[]
  readonly useless?: readonly string[]
  /** Members whose relays have answered a question. */
  readonly answered?: readonly string[]
  /** The round trips that this end states, by the members of the relays. */
  readonly own?: Readonly<Record<string, number>>
}

/** Identities are `MEMBER-key`. */
function costs(rtts: Readonly<Record<string, number>>, load?: number) {
  const rttMs = new Map(Object.entries(rtts).map(([cluster, ms]) => [relayMark(`${cluster}-key`), ms]))
  return { rttMs, ...(load === undefined ? {} : { load }) }
}

function wanted(init: Wanted): string[] {
  return ordered(init).sort()
}

function ordered(init: Wanted): string[] {
  const { links, hidden = true, keeps = [], lonely = [], useless = [], answered = [], own = {} } = init
  const worth = (_key: string, { cluster }: { readonly cluster: string }) =>
    lonely.includes(cluster) ? 'lonely' : useless.includes(cluster) ? 'useless' : 'good'
  const hasAnswered = ({ cluster }: { readonly cluster: string }): boolean => answered.includes(cluster)
  const known = { links, ownEndpoint: OWN, hidden, keeps: new Set(keeps), ownCosts: costs(own) }
  const use = planRelayUse({ ...known, worth, hasAnswered })
  return use.map((want) => `${want.key.split('.')[0] ?? ''} by ${want.relay.cluster}`)
}

t.test('links whose ends cannot be called have relays, if they do not work without', async (t) => {
  const oslo = relay('oslo', 1)
  const at = parseAddressPort('203.0.113.1:4607')
  const roma = link('roma')
  const rows: readonly (readonly [string, Wanted, readonly string[]])[] = [
    ['both ends are hidden', { links: [oslo, roma] }, ['roma by oslo']],
    ['this end can be called', { links: [oslo, roma], hidden: false }, []],
    ['the far end can be called', { links: [oslo, link('roma', { hidden: false })] }, []],
    ['no member relays', { links: [link('oslo', { hidden: false, state: 'up', at }), roma] }, []],
    ['the relay is not linked', { links: [relay('oslo', 1, { state: 'down' }), roma] }, []],
    ['the relay is just called', { links: [called('oslo', 1), roma] }, ['roma by oslo']],
    ['the relay is called in vain', { links: [relay('oslo', 1, { state: 'connecting' }), roma] }, []],
    [
      'the relay answers questions alone',
      { links: [relay('oslo', 1, { state: 'connecting' }), roma], answered: ['oslo'] },
      ['roma by oslo'],
    ],
    ['the relay cannot be called itself', { links: [relay('oslo', 1, { hidden: true }), roma] }, []],
    ['the link works without', { links: [oslo, link('roma', { state: 'up' })] }, []],
    ['the link works by the relay', { links: [oslo, link('roma', { state: 'up', at })] }, ['roma by oslo']],
    [
      'its relay is about to leave, and there is another one',
      {
        links: [
          relay('riga', 2),
          link('oslo', { hidden: false, state: 'up', at: parseAddressPort('203.0.113.1:4500') }),
          link('roma', { state: 'up', at }),
        ],
      },
      ['roma by riga'],
    ],
    [
      'its relay is about to leave, and this end can be called: it was over port 443 before',
      {
        links: [
          relay('riga', 2),
          link('oslo', { hidden: false, state: 'up', at: parseAddressPort('203.0.113.1:4500') }),
          link('roma', { state: 'up', at, hidden: false }),
        ],
        hidden: false,
      },
      ['roma by riga'],
    ],
    [
      'the far end was called directly just now',
      { links: [oslo, { ...roma, state: 'up' }], keeps: [roma.key] },
      ['roma by oslo'],
    ],
    ['the far end is of the same member', { links: [oslo, link('oslo', { endpoint: 'oslo.gw2-lane1' })] }, []],
  ]
  for (const [say, init, want] of rows) t.strictSame(wanted(init), want, say)
})

t.test('two relays, and more where the far end is not bound', async (t) => {
  const links = [1, 2, 3, 4, 5, 6].map((number) => relay(`r${number}`, number)).concat(link('roma'))
  const two = wanted({ links })
  t.equal(two.length, 2)
  const names = two.map((text) => text.replace('roma by ', ''))
  const three = wanted({ links, lonely: names.slice(0, 1) })
  t.equal(three.length, 3)
  t.ok(
    two.every((text) => three.includes(text)),
    'the lonely one stays',
  )
  t.equal(wanted({ links, lonely: ['r1', 'r2', 'r3', 'r4', 'r5', 'r6'] }).length, 4, 'but not all')
})

t.test('useless relays make room for others', async (t) => {
  const links = [1, 2, 3, 4, 5, 6].map((number) => relay(`r${number}`, number)).concat(link('roma'))
  const names = (init: Omit<Wanted, 'links'>): string[] =>
    wanted({ links, ...init }).map((text) => text.replace('roma by ', ''))
  const useless = ['r1', 'r2', 'r3', 'r4']
  t.ok(['r5', 'r6'].every((one) => names({ useless }).includes(one)))
  const all = ['r1', 'r2', 'r3', 'r4', 'r5', 'r6']
  t.equal(names({ useless: all }).length, 4, 'they are tried again if there is no other one')
  const lonely = names({ useless: all }).length === 4 ? all.filter((one) => !names({ useless: all }).includes(one)) : []
  const rest = all.filter((one) => !lonely.includes(one))
  t.ok(
    lonely.every((one) => names({ lonely, useless: rest }).includes(one)),
    'where this end waits, it stays',
  )
})

t.test('relays that are just called take the place of no other one', async (t) => {
  const silent = [1, 2, 3, 4].map((number) => called(`r${number}`, number))
  const names = (init: Wanted): string[] => wanted(init).map((text) => text.replace('roma by ', ''))
  t.equal(names({ links: [...silent, link('roma')] }).length, 2, 'two of them, as of others')
  const some = { links: [...silent, relay('r5', 5), relay('r6', 6), link('roma')] }
  t.equal(names(some).length, 4)
  for (const one of ['r5', 'r6']) t.ok(names(some).includes(one), one)
  const answered = ['r1', 'r2', 'r3', 'r4']
  t.equal(names({ ...some, answered }).length, 2, 'once they have answered, they are as others')
  t.strictSame(names({ links: [...silent, link('roma')], useless: answered }), [], 'those that are silent for long')
})

t.test('relays are chosen by the round trips of both ends and by load', async (t) => {
  const relays = (loads: Readonly<Record<string, number>> = {}) =>
    [1, 2, 3, 4].map((number) => {
      const load = loads[`r${number}`]
      return relay(`r${number}`, number, load === undefined ? {} : { relayCosts: costs({}, load) })
    })
  const names = (own: Readonly<Record<string, number>>, far: Readonly<Record<string, number>>, links = relays()) =>
    ordered({ links: [...links, link('roma', { relayCosts: costs(far) })], own }).map((text) => text.slice(8))
  const [own, far] = [
    { r1: 100, r2: 10, r3: 60, r4: 5 },
    { r1: 100, r2: 80, r3: 10, r4: 300 },
  ]
  t.strictSame(names(own, far), ['r3', 'r2'], 'not the nearest to one end')
  t.strictSame(names(far, own), ['r3', 'r2'], 'the far end chooses alike')
  t.strictSame(names(own, { r1: 100, r4: 300 }), ['r1', 'r4'], 'those that both ends know come first')
  t.strictSame(names(own, {}).length, 2, 'the far end states nothing')
  t.strictSame(names(own, far, relays({ r3: 1 })), ['r2', 'r3'], 'a full relay counts as farther')
  t.strictSame(names(own, far, relays({ r1: 0, r2: 1, r3: 1, r4: 0 })), ['r3', 'r2'], 'and a lie helps no far one')
  const at = parseAddressPort('203.0.113.1:4607')
  const carried = [...relays(), link('roma', { state: 'up', at, relayCosts: costs(far) })]
  t.strictSame(ordered({ links: carried, own }), ['roma by r3', 'roma by r2', 'roma by r1'], 'the one in use stays')
})

t.test('of too many bindings, those that carry links stay, and each link has one before any has two', async (t) => {
  const relays = [1, 2, 3].map((number) => relay(`r${number}`, number))
  const far = { r1: 10, r2: 20, r3: 300 }
  const carried = { state: 'up', at: parseAddressPort('203.0.113.3:4607'), relayCosts: costs(far) } as const
  const links = Array.from({ length: 300 }, (_, i) => link(`far${i}`, i >= 200 ? carried : { relayCosts: costs(far) }))
  const use = ordered({ links: [...relays, ...links], own: far })
  t.equal(use.length, MOST_WANTS)
  t.equal(new Set(use.map((text) => text.replace(/ by .*/, ''))).size, links.length)
  t.equal(use.filter((text) => text.endsWith('by r3')).length, 100, 'the carriers')
  t.strictSame(use.slice(0, 2), ['far0 by r1', 'far0 by r2'], 'in the order of links')
})

t.test('the two relays of a link are of two members', async (t) => {
  for (let number = 0; number < 8; number++) {
    const big = [1, 2, 3].map((i) => relay('big', i, { endpoint: `big.gw${i}-lane0`, key: `big${i}` }))
    const two = wanted({ links: [...big, relay('small', 9), link(`roma${number}`)] })
    t.strictSame(new Set(two.map((text) => text.replace(/.* by /, ''))), new Set(['big', 'small']))
  }
  const big = [1, 2].map((i) => relay('big', i, { endpoint: `big.gw${i}-lane0`, key: `big${i}` }))
  t.equal(wanted({ links: [...big, link('roma')] }).length, 2, 'if there is one member alone, two of its gateways')
})

t.test('a relay through which nothing comes has failed', async (t) => {
  const turns = new RelayTurns()
  const at = parseAddressPort('203.0.113.1:4607')
  const look = (nowMs: number, change: Partial<LinkInUse> = {}) =>
    turns.look([link('roma', { at, ...change })], nowMs).length
  t.equal(look(0), 0)
  t.equal(look(RELAY_FAILS_MS - 1), 0)
  t.equal(look(RELAY_FAILS_MS), 1)
  t.equal(look(RELAY_FAILS_MS + 1, { at: parseAddressPort('203.0.113.2:4609') }), 0, 'another relay')
  t.equal(look(5000, { at: parseAddressPort('10.0.0.1:4500') }), 0, 'a call without a relay')
  t.equal(look(6000), 0, 'its turn begins')
  t.equal(look(9000, { state: 'up' }), 0, 'an answer')
  t.equal(look(9001), 0)
  const slow = new RelayTurns()
  const lookSlow = (nowMs: number) => slow.look([link('roma', { at })], nowMs, () => 4).length
  t.strictSame(
    [0, 4 * RELAY_FAILS_MS - 1, 4 * RELAY_FAILS_MS].map(lookSlow),
    [0, 0, 1],
    'a slow one is given more time',
  )
})

t.test('both ends order relays alike, and a lost one leaves the order of the others', async () => {
  const name = fc.string({ minLength: 1, maxLength: 20 })
  fc.assert(
    fc.property(name, name, fc.uniqueArray(name, { maxLength: 12 }), fc.nat(), (a, b, names, lost) => {
      const relays = names.map((endpoint) => ({ endpoint }))
      const order = relayOrder(a, b, relays).map(({ endpoint }) => endpoint)
      const other = relayOrder(b, a, [...relays].reverse()).map(({ endpoint }) => endpoint)
      const gone = names[lost % Math.max(1, names.length)]
      const left = relayOrder(
        a,
        b,
        relays.filter(({ endpoint }) => endpoint !== gone),
      )
      const rest = order.filter((one) => one !== gone)
      return (
        JSON.stringify(order) === JSON.stringify(other) &&
        JSON.stringify(left.map(({ endpoint }) => endpoint)) === JSON.stringify(rest)
      )
    }),
  )
})

t.test('relays of one pair are not those of every pair', async (t) => {
  const relays = ['a', 'b', 'c', 'd'].map((endpoint) => ({ endpoint }))
  const firsts = new Set(Array.from({ length: 64 }, (_, i) => relayOrder('paris', `far${i}`, relays)[0]?.endpoint))
  t.equal(firsts.size, relays.length)
})

t.test('an address is that of a relay by its port, too', async (t) => {
  const links = [relay('oslo', 1), link('roma')]
  const by = (text: string) => relayOf(parseAddressPort(text), links)?.cluster
  t.equal(by('203.0.113.1:4601'), 'oslo')
  t.equal(by('203.0.113.1:4799'), 'oslo')
  t.equal(by('203.0.113.1:4500'), undefined, 'the link with the relay itself')
  t.equal(by('203.0.113.1:4600'), undefined, 'its control port')
  t.equal(by('203.0.113.2:4601'), undefined)
  t.equal(relayOf(undefined, links), undefined)
})

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

t.test('links that do not work where probes passed go back to their relays', async (t) => {
  const [place, other, relay] = ['192.0.2.1:20000', '192.0.2.1:20001', '203.0.113.1:4601'].map((text) =>
    parseAddressPort(text),
  )
  if (place === undefined || other === undefined || relay === undefined) throw new Error('places')
  const story = (...looks: readonly (readonly [ms: number, at: typeof place, state: LinkInUse['state']])[]) => {
    const links = new PunchedLinks()
    const punched = new Map([['roma', place]])
    return looks.map(([ms, at, state]) => links.look([{ key: 'roma', at, state }], punched, ms).join())
  }
  t.strictSame(story([0, relay, 'up'], [400, place, 'up'], [90_000, place, 'up']), ['', '', ''])
  t.strictSame(story([0, place, 'up'], [5000, place, 'down']), ['', 'roma'], 'at once')
  t.strictSame(story([0, relay, 'up'], [2000, place, 'down'], [PUNCH_SETTLES_MS, place, 'down']), ['', '', 'roma'])
  t.strictSame(story([0, relay, 'up'], [PUNCH_SETTLES_MS, relay, 'up']), ['', 'roma'], 'the far end stays at the relay')
  t.strictSame(story([0, other, 'up'], [PUNCH_SETTLES_MS, other, 'up']), ['', ''], 'the far end has moved it')
  const doubted = (...places: readonly (typeof place)[]) => {
    const links = new PunchedLinks()
    const look = (at: typeof place, i: number) =>
      links
        .look([{ key: 'roma', at, state: 'up' }], new Map([['roma', place]]), i, { suspected: new Set(['roma']) })
        .join()
    return places.map(look)
  }
  t.strictSame(doubted(place, place, relay), ['', '', 'roma'], 'in doubt the far end has heard the relay alone')
  t.strictSame(doubted(relay, place), ['', ''], 'it was never there')
  const waiting = new PunchedLinks()
  const waits = ([nowMs, isSuspect]: readonly [number, boolean]): string => {
    const suspected = new Set(isSuspect ? ['roma'] : [])
    return waiting
      .look([{ key: 'roma', at: relay, state: 'up' }], new Map([['roma', place]]), nowMs, { suspected })
      .join()
  }
  const [heldMs, calledMs] = [PUNCH_SETTLES_MS + 1000, 2 * PUNCH_SETTLES_MS + 1000]
  const held = [[0, true] as const, [heldMs, true] as const, [calledMs - 1, false] as const, [calledMs, false] as const]
  t.strictSame(held.map(waits), ['', '', '', 'roma'], 'in doubt it is not called there, so that time does not count')
  const settled = [
    [0, relay, 'up'],
    [400, place, 'up'],
    [400 + PUNCH_SETTLES_MS, place, 'up'],
  ] as const
  const last = 500 + PUNCH_SETTLES_MS
  t.strictSame(story(...settled, [last, relay, 'up']), ['', '', '', 'roma'], 'the far end alone was in doubt')
  const soon = [
    [0, relay, 'up'],
    [400, place, 'up'],
    [800, relay, 'up'],
    [1200, place, 'up'],
  ] as const
  t.strictSame(story(...soon, [1600, relay, 'up']), ['', '', '', '', ''], 'it still draws the link back')
  const links = new PunchedLinks()
  const known = settled.map(([ms, at, state]) => {
    links.look([{ key: 'roma', at, state }], new Map([['roma', place]]), ms)
    return [...links.settled].join()
  })
  t.strictSame(known, ['', '', 'roma'], 'the next plan knows it before it reads where the link is')
})
