/** Which relays a gateway asks for which links. */
import fc from 'fast-check'
import t from 'tap'
import {
  type LinkInUse,
  MOST_WANTS,
  planRelayUse,
  relayOf,
  relayOrder,
} from '../../../../gateway/reach/relay/plan-relay-use.ts'
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
  // A gateway that relays, too, and that oslo relays to: its link has the same address.
  const behind = relay('bari', 1, { at: parseAddressPort('203.0.113.1:4605'), via: ['oslo'] })
  for (const all of [
    [behind, ...links],
    [...links, behind],
  ])
    t.equal(relayOf(parseAddressPort('203.0.113.1:4601'), all)?.cluster, 'oslo', 'neither is it the relay')
  t.equal(relayOf(behind.at, [behind]), undefined, 'none is a relay of its own link')
})
