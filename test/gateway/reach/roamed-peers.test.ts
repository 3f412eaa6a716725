/** Where peers called from: seen on the device, kept apart from where we called them. */
import t from 'tap'
import type { EndpointChoice } from '../../../gateway/reach/choose-endpoint.ts'
import type { PlannedPeer } from '../../../gateway/cable/wireguard/plan-lanes.ts'
import { formatAddressPort, parseAddressPort } from '../../../model/addresses/address-port.ts'
import { RoamedPeers } from '../../../gateway/reach/roamed-peers.ts'
import { key, peerState } from '../support/worlds.ts'

const PARIS = key('paris0')
const NAT = '203.0.113.77:61234'
const PRIVATE = '10.0.0.2:4500'
const PUBLIC = '198.51.100.20:4500'

/** One round after the other: what the device has, and what the round gives it. */
function rounds(
  ...steps: readonly [at: number, endpoint: string | undefined, choice: EndpointChoice['how'], to?: string][]
) {
  const roamed = new RoamedPeers()
  return steps.map(([atMs, endpoint, how, to]) => {
    const peers = [peerState(PARIS, endpoint === undefined ? {} : { endpoint })]
    const seen = roamed.seen([{ name: 'sealane0', publicKey: key('own'), listenPort: 4500, peers }], atMs)
    const choice = { how, why: '', ...(to === undefined ? {} : { at: parseAddressPort(to) }) }
    roamed.told([{ publicKey: PARIS, choice } as unknown as PlannedPeer])
    const called = seen.get(PARIS)
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
  const device = {
    name: 'sealane0',
    publicKey: key('own'),
    listenPort: 4500,
    peers: [peerState(PARIS, { endpoint: NAT })],
  }
  roamed.seen([device], 0)
  roamed.told([])
  t.equal(roamed.seen([device], 1000).get(PARIS)?.sinceMs, -Infinity)
})
