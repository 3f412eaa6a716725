/** The addresses that peers called from, as the device shows them, told apart from those that we called them at. */
import t from 'tap'
import type { EndpointChoice } from '../../../gateway/reach/choose-endpoint.ts'
import { type LaneState, linkKey } from '../../../gateway/cable/cable-driver.ts'
import { formatAddressPort, parseAddressPort } from '../../../model/addresses/address-port.ts'
import { RoamedPeers } from '../../../gateway/reach/call-history.ts'

const PARIS = { remoteLane: 0, endpoint: 'paris.gw-lane0', identity: 'p' }
const NAT = '203.0.113.77:61234'
const PRIVATE = '10.0.0.2:4500'
const PUBLIC = '198.51.100.20:4500'

function lane(endpoint: string | undefined, end = PARIS): LaneState {
  const at = endpoint === undefined ? {} : { at: parseAddressPort(endpoint) }
  return { identity: 'own', links: new Map([[linkKey(end), { ...at, carries: true, rxBytes: 0, txBytes: 0 }]]) }
}

/** A sequence of rounds: the endpoint on the device, and the endpoint that the round sets. */
function rounds(
  ...steps: readonly [at: number, endpoint: string | undefined, choice: EndpointChoice['how'], to?: string][]
) {
  const roamed = new RoamedPeers()
  return steps.map(([atMs, endpoint, how, to]) => {
    const seen = roamed.seen([lane(endpoint)], atMs)
    const choice = { how, why: '', ...(to === undefined ? {} : { at: parseAddressPort(to) }) }
    roamed.reported([{ ...PARIS, choice }])
    const called = seen.get(linkKey(PARIS))
    return called === undefined ? '-' : `${formatAddressPort(called.at)} since ${called.sinceMs}`
  })
}

t.test('rounds', async (t) => {
  t.strictSame(
    rounds([0, undefined, 'try', PRIVATE], [1000, PRIVATE, 'try', PUBLIC], [2000, PUBLIC, 'try', PRIVATE]),
    ['-', '-', '-'],
    'it never called',
  )
  t.strictSame(
    rounds([0, undefined, 'try', PRIVATE], [400, NAT, 'keep'], [900, NAT, 'keep'], [5000, NAT, 'try', PRIVATE]),
    ['-', `${NAT} since 400`, `${NAT} since 400`, `${NAT} since 400`],
    'it called, and went on from there',
  )
  t.strictSame(
    rounds([0, undefined, 'try', PRIVATE], [400, NAT, 'try', PRIVATE], [900, PRIVATE, 'keep'], [950, NAT, 'keep']),
    ['-', `${NAT} since 400`, `${NAT} since 400`, `${NAT} since 950`],
    'it called again from there, after a candidate had its turn',
  )
  t.strictSame(
    rounds([0, undefined, 'try', PRIVATE], [400, NAT, 'try', PRIVATE], [900, NAT, 'keep']),
    ['-', `${NAT} since 400`, `${NAT} since 900`],
    'also when it was faster than the next round',
  )
  t.strictSame(
    rounds([0, undefined, 'wait'], [200, PRIVATE, 'keep']),
    ['-', `${PRIVATE} since 200`],
    'it called while we waited',
  )
  t.strictSame(rounds([0, NAT, 'keep']), [`${NAT} since -Infinity`], 'from before this process')
})

t.test('who is planned no more is forgotten', async (t) => {
  const roamed = new RoamedPeers()
  roamed.seen([lane(NAT)], 0)
  roamed.reported([])
  t.equal(roamed.seen([lane(NAT)], 1000).get(linkKey(PARIS))?.sinceMs, -Infinity)
})

t.test('one that comes back with another identity is another', async (t) => {
  const roamed = new RoamedPeers()
  const wait = { how: 'wait', why: '' } as const
  roamed.seen([lane(NAT)], 0)
  const anew = { ...PARIS, identity: 'q' }
  roamed.reported([{ ...anew, choice: wait }])
  t.equal(roamed.seen([lane(undefined, anew)], 1000).size, 0, 'nobody knows from where it calls')
})
