/** Which address a peer is called at, and why: one row per situation. */
import t from 'tap'
import { chooseEndpoint } from '../../gateway/choose-endpoint.ts'
import type { ConnectionState } from '../../model/objects.ts'
import { NOW, endpoint, key, peerState } from './support/worlds.ts'

const TWO = endpoint('paris', 'gw', 0, ['public 198.51.100.20:4500', 'private 10.0.0.2:4500']).spec.candidates
const ONE = TWO.slice(0, 1)
const ROAMED = '203.0.113.77:61234'

interface Row {
  readonly say: string
  readonly candidates: typeof TWO
  /** State and for how many seconds. */
  readonly health?: readonly [ConnectionState, number]
  /** Endpoint and age of the handshake in seconds; absent: the peer is new. */
  readonly peer?: { readonly at?: string; readonly handshake?: number }
  /** The other end calls first. */
  readonly second?: boolean
  readonly want: string
}

const ROWS: Row[] = [
  { say: 'new', candidates: TWO, want: 'try 198.51.100.20:4500: public address, candidate 1 of 2' },
  { say: 'new, without candidates', candidates: [], want: 'wait: it has no candidates; it calls us' },
  {
    say: 'known, without candidates, never called',
    candidates: [],
    peer: {},
    health: ['connecting', 60],
    want: 'wait: it has no candidates; it calls us',
  },
  {
    say: 'called us',
    candidates: [],
    peer: { at: ROAMED },
    health: ['connecting', 60],
    want: `keep ${ROAMED}: it called from there; it has no candidates`,
  },
  {
    say: 'up, roamed',
    candidates: TWO,
    peer: { at: ROAMED, handshake: 100 },
    health: ['up', 500],
    want: `keep ${ROAMED}: it answers`,
  },
  {
    say: 'up, but the device is new',
    candidates: TWO,
    health: ['up', 2],
    want: 'try 198.51.100.20:4500: public address, candidate 1 of 2',
  },
  {
    say: 'connecting, first turn',
    candidates: TWO,
    peer: { at: '198.51.100.20:4500' },
    health: ['connecting', 4],
    want: 'try 198.51.100.20:4500: public address, candidate 1 of 2',
  },
  {
    say: 'connecting, second turn',
    candidates: TWO,
    peer: { at: '198.51.100.20:4500' },
    health: ['connecting', 5],
    want: 'try 10.0.0.2:4500: private address, candidate 2 of 2',
  },
  {
    say: 'connecting, third turn',
    candidates: TWO,
    peer: { at: '10.0.0.2:4500' },
    health: ['connecting', 10],
    want: 'try 198.51.100.20:4500: public address, candidate 1 of 2',
  },
  {
    say: 'connecting, shook hands',
    candidates: TWO,
    peer: { at: ROAMED, handshake: 1 },
    health: ['connecting', 12],
    want: `keep ${ROAMED}: it shook hands just now`,
  },
  {
    say: 'connecting, shook hands long ago',
    candidates: TWO,
    peer: { at: ROAMED, handshake: 20 },
    health: ['connecting', 12],
    want: 'try 198.51.100.20:4500: public address, candidate 1 of 2',
  },
  {
    say: 'just went down',
    candidates: TWO,
    peer: { at: ROAMED, handshake: 20 },
    health: ['down', 1],
    want: `keep ${ROAMED}: it answered there until now`,
  },
  {
    say: 'down for a while',
    candidates: TWO,
    peer: { at: ROAMED, handshake: 20 },
    health: ['down', 5],
    want: 'try 198.51.100.20:4500: public address, candidate 1 of 2',
  },
  {
    say: 'down for longer',
    candidates: TWO,
    peer: { at: ROAMED, handshake: 20 },
    health: ['down', 11],
    want: 'try 10.0.0.2:4500: private address, candidate 2 of 2',
  },
  {
    say: 'down, roamed, no candidates',
    candidates: [],
    peer: { at: ROAMED, handshake: 20 },
    health: ['down', 60],
    want: `keep ${ROAMED}: it called from there; it has no candidates`,
  },
  {
    say: 'one candidate stays',
    candidates: ONE,
    peer: { at: '198.51.100.20:4500' },
    health: ['connecting', 999],
    want: 'try 198.51.100.20:4500: public address, candidate 1 of 1',
  },
  { say: 'new, the other calls first', candidates: TWO, second: true, want: 'wait: it calls first' },
  {
    say: 'the other had its moment',
    candidates: TWO,
    second: true,
    peer: {},
    health: ['connecting', 0.2],
    want: 'wait: it calls first',
  },
  {
    say: 'the other let it pass',
    candidates: TWO,
    second: true,
    peer: {},
    health: ['connecting', 0.3],
    want: 'try 198.51.100.20:4500: public address, candidate 1 of 2',
  },
  {
    say: 'the other went down',
    candidates: TWO,
    second: true,
    peer: { handshake: 90 },
    health: ['down', 6],
    want: 'try 198.51.100.20:4500: public address, candidate 1 of 2',
  },
  {
    say: 'the clock went back',
    candidates: TWO,
    peer: {},
    health: ['connecting', -3600],
    want: 'try 198.51.100.20:4500: public address, candidate 1 of 2',
  },
]

t.test('choices', async (t) => {
  for (const row of ROWS) {
    const { at, handshake } = row.peer ?? {}
    const peer =
      row.peer &&
      peerState(key('paris'), {
        ...(at === undefined ? {} : { endpoint: at }),
        ...(handshake === undefined ? {} : { lastHandshakeMs: NOW - handshake * 1000 }),
      })
    const health = row.health && { state: row.health[0], sinceMs: NOW - row.health[1] * 1000 }
    const { how, address, why } = chooseEndpoint({
      nowMs: NOW,
      rotateMs: 5000,
      callsFirst: row.second !== true,
      candidates: row.candidates,
      peer,
      health,
    })
    t.equal(`${how}${address === undefined ? '' : ` ${address}`}: ${why}`, row.want, row.say)
  }
})

t.test('the turn ends when it is said to end', async (t) => {
  const health = { state: 'connecting', sinceMs: NOW - 7000 } as const
  t.equal(
    chooseEndpoint({ nowMs: NOW, rotateMs: 5000, callsFirst: true, candidates: TWO, peer: undefined, health }).nextAtMs,
    NOW + 3000,
  )
  const up = { state: 'up', sinceMs: NOW - 7000 } as const
  t.equal(
    chooseEndpoint({
      nowMs: NOW,
      rotateMs: 5000,
      callsFirst: true,
      candidates: TWO,
      peer: peerState(key('paris'), { endpoint: ROAMED }),
      health: up,
    }).nextAtMs,
    undefined,
  )
})
