/** The address at which a peer is called, when it is called again, and why: one row per situation. */
import t from 'tap'
import { type EndpointChoice, type EndpointChoiceInit, chooseEndpoint } from '../../../gateway/reach/choose-endpoint.ts'
import { HandshakeRetries } from '../../../gateway/reach/call-history.ts'
import { planLanes } from '../support/wireguard-plans.ts'
import { parseAddress } from '../../../model/addresses/addresses.ts'
import { formatAddressPort, parseAddressPort } from '../../../model/addresses/address-port.ts'
import type { ConnectionState } from '../../../model/objects.ts'
import { NOW, UPTIME, cluster, endpoint, key, peerState, world } from '../support/worlds.ts'

const TWO = endpoint('paris', 'gw', 0, ['public 198.51.100.20:4500', 'private 10.0.0.2:4500']).spec.candidates
const ONE = TWO.slice(0, 1)
const ROAMED = '203.0.113.77:61234'

interface Row {
  readonly say: string
  readonly candidates: typeof TWO
  /** The state, and for how many seconds it has lasted. */
  readonly health?: readonly [ConnectionState, number]
  /** The endpoint, and the age of the handshake in seconds. Absent: the peer is new. */
  readonly peer?: { readonly at?: string; readonly handshake?: number; readonly received?: number }
  /** The other end calls first. */
  readonly second?: boolean
  /** Neither end can be called from outside. */
  readonly neither?: boolean
  /** The far end has no address at which it can call us. */
  readonly hidden?: boolean
  /**
   * Where relays take packets, as `member address:port`, and then `failed`, or `since` or `trip` and the seconds, and the
   * end that came last: `we` or `they`.
   */
  readonly relays?: readonly string[]
  /** A relay that has not answered yet. */
  readonly asked?: string
  /** The link is relayed and is called directly. */
  readonly direct?: boolean
  /** Where probes have shown that the far end can be called. */
  readonly punched?: string
  /** The far end moves it. */
  readonly follows?: boolean
  /** Where the link is to go on. */
  readonly moveTo?: string
  /** Where the link was when it was up last. */
  readonly upAt?: string
  /** How many seconds ago the far end called from ROAMED. */
  readonly called?: number
  /** The text `how address: why`, followed by `call <attempt>` and `again in <seconds>` if the choice has them. */
  readonly want: string
}

const RELAYS = ['oslo 203.0.113.1:4601', 'riga 203.0.113.2:4605']
const PUBLIC = 'try 198.51.100.20:4500: public address, candidate 1 of'
const PUNCHED = 'punched: probes pass through the NATs of both ends'
const PRIVATE = 'try 10.0.0.2:4500: private address, candidate 2 of'

const ROWS: Row[] = [
  {
    say: 'it just called: its handshake is given time',
    candidates: TWO,
    peer: { at: ROAMED },
    health: ['connecting', 5],
    called: 0.5,
    want: `keep ${ROAMED}: the remote gateway has just connected from there, again in 0.5`,
  },
  {
    say: 'it called while we let it go first',
    candidates: TWO,
    second: true,
    peer: { at: ROAMED },
    health: ['connecting', 0.2],
    called: 0.1,
    want: `keep ${ROAMED}: the remote gateway has just connected from there, again in 1.6`,
  },
  {
    say: 'it called a second ago, and nothing has come of it: the calls may have crossed',
    candidates: TWO,
    peer: { at: ROAMED },
    health: ['connecting', 5],
    called: 1,
    want: `try ${ROAMED}: the remote gateway has just connected from there, call 3000001, again in 1`,
  },
  {
    say: 'the other end gives it more time',
    candidates: TWO,
    second: true,
    peer: { at: ROAMED },
    health: ['connecting', 5],
    called: 1.7,
    want: `try ${ROAMED}: the remote gateway has just connected from there, call 3000001, again in 1.3`,
  },
  {
    say: 'it called, and nothing came of it',
    candidates: TWO,
    peer: { at: ROAMED },
    health: ['connecting', 5],
    called: 3,
    want: `try ${ROAMED}: observed address, candidate 3 of 3, call 5, again in 1`,
  },
  {
    say: 'it called once; now a candidate has its turn',
    candidates: TWO,
    peer: { at: '10.0.0.2:4500' },
    health: ['connecting', 6],
    called: 0.5,
    want: `${PUBLIC} 3, call 6, again in 1`,
  },
  {
    say: 'down, but it has just called from somewhere else',
    candidates: TWO,
    peer: { at: ROAMED, handshake: 20 },
    health: ['down', 8],
    called: 1,
    want: `keep ${ROAMED}: the remote gateway has just connected from there, again in 2`,
  },
  {
    say: 'down: where it called from has its turn too',
    candidates: TWO,
    peer: { at: '10.0.0.2:4500', handshake: 40 },
    health: ['down', 16],
    called: 40,
    want: `try ${ROAMED}: observed address, candidate 3 of 3, again in 4`,
  },
  {
    say: 'where it called from is a candidate: it has one turn',
    candidates: [...TWO, { kind: 'observed', address: '203.0.113.77', port: 61234 }],
    peer: { at: '10.0.0.2:4500' },
    health: ['connecting', 2],
    called: 40,
    want: `try ${ROAMED}: observed address, candidate 3 of 3, call 2, again in 1`,
  },
  { say: 'new', candidates: TWO, want: `${PUBLIC} 2, call 0, again in 1` },
  {
    say: 'new, without candidates',
    candidates: [],
    want: 'wait: the remote gateway publishes no candidates; it must connect to this gateway',
  },
  {
    say: 'known, without candidates, never called',
    candidates: [],
    peer: {},
    health: ['connecting', 60],
    want: 'wait: the remote gateway publishes no candidates; it must connect to this gateway',
  },
  {
    say: 'called us',
    candidates: [],
    peer: { at: ROAMED },
    health: ['connecting', 60],
    want: `keep ${ROAMED}: the remote gateway connected from there; it publishes no candidates`,
  },
  {
    say: 'up, roamed',
    candidates: TWO,
    peer: { at: ROAMED, handshake: 100 },
    health: ['up', 500],
    want: `keep ${ROAMED}: the remote gateway answers`,
  },
  {
    say: 'up, but the device is new',
    candidates: TWO,
    health: ['up', 2],
    want: `${PUBLIC} 2, call 0, again in 1`,
  },
  {
    say: 'connecting, first call',
    candidates: TWO,
    peer: { at: '198.51.100.20:4500' },
    health: ['connecting', 0.9],
    want: `${PUBLIC} 2, call 0, again in 0.1`,
  },
  {
    say: 'connecting, second call',
    candidates: TWO,
    peer: { at: '198.51.100.20:4500' },
    health: ['connecting', 1],
    want: `${PRIVATE} 2, call 1, again in 1`,
  },
  {
    say: 'connecting, third call',
    candidates: TWO,
    peer: { at: '10.0.0.2:4500' },
    health: ['connecting', 2.25],
    want: `${PUBLIC} 2, call 2, again in 0.75`,
  },
  {
    say: 'the last call in a hurry',
    candidates: ONE,
    peer: { at: '198.51.100.20:4500' },
    health: ['connecting', 14.5],
    want: `${PUBLIC} 1, call 14, again in 0.5`,
  },
  {
    say: 'taken for dead: no hurry any more',
    candidates: ONE,
    peer: { at: '198.51.100.20:4500' },
    health: ['connecting', 15],
    want: `${PUBLIC} 1, call 15, again in 5`,
  },
  {
    say: 'and so on',
    candidates: ONE,
    peer: { at: '198.51.100.20:4500' },
    health: ['connecting', 3601],
    want: `${PUBLIC} 1, call 732, again in 4`,
  },
  {
    say: 'connecting, shook hands',
    candidates: TWO,
    peer: { at: ROAMED, handshake: 1 },
    health: ['connecting', 12],
    want: `keep ${ROAMED}: the handshake has just completed, again in 2`,
  },
  {
    say: 'just went down, shook hands',
    candidates: TWO,
    peer: { at: ROAMED, handshake: 1 },
    health: ['down', 0],
    hidden: true,
    want: `keep ${ROAMED}: the handshake has just completed, again in 2`,
  },
  {
    say: 'connecting, shook hands long ago, in the session',
    candidates: TWO,
    peer: { at: ROAMED, handshake: 20 },
    health: ['connecting', 12],
    want: `${PRIVATE} 2, again in 3`,
  },
  {
    say: 'connecting, shook hands too long ago',
    candidates: TWO,
    peer: { at: ROAMED, handshake: 180 },
    health: ['connecting', 12],
    want: `${PUBLIC} 2, call 12, again in 1`,
  },
  {
    say: 'just went down',
    candidates: TWO,
    peer: { at: ROAMED, handshake: 20 },
    health: ['down', 1],
    want: `keep ${ROAMED}: the remote gateway answered there before, again in 4`,
  },
  {
    say: 'down for a while: the session is kept, its address may have changed',
    candidates: TWO,
    peer: { at: ROAMED, handshake: 20 },
    health: ['down', 5],
    want: `${PUBLIC} 2, again in 5`,
  },
  {
    say: 'down for longer',
    candidates: TWO,
    peer: { at: ROAMED, handshake: 20 },
    health: ['down', 11],
    want: `${PRIVATE} 2, again in 4`,
  },
  {
    say: 'down until the session is of no more use',
    candidates: TWO,
    peer: { at: ROAMED, handshake: 181 },
    health: ['down', 62],
    want: `${PUBLIC} 2, call 24, again in 3`,
  },
  {
    say: 'down, and it cannot call us: it may have lost the session',
    candidates: TWO,
    peer: { at: ROAMED, handshake: 20 },
    health: ['down', 1],
    hidden: true,
    want: `${PRIVATE} 2, call 1, again in 1`,
  },
  {
    say: 'down, roamed, no candidates',
    candidates: [],
    peer: { at: ROAMED, handshake: 20 },
    health: ['down', 60],
    want: `keep ${ROAMED}: the remote gateway connected from there; it publishes no candidates`,
  },
  {
    say: 'new, the other calls first',
    candidates: TWO,
    second: true,
    want: 'wait: the remote gateway connects first, again in 0.3',
  },
  {
    say: 'the other had its moment',
    candidates: TWO,
    second: true,
    peer: {},
    health: ['connecting', 0.25],
    want: 'wait: the remote gateway connects first, again in 0.05',
  },
  {
    say: 'the other let it pass',
    candidates: TWO,
    second: true,
    peer: {},
    health: ['connecting', 0.5],
    want: `${PUBLIC} 2, call 0, again in 1.2`,
  },
  {
    say: 'calls of the second end come at another pace',
    candidates: ONE,
    second: true,
    peer: {},
    health: ['connecting', 3.4],
    want: `${PUBLIC} 1, call 2, again in 1.7`,
  },
  {
    say: 'when there is no hurry, too',
    candidates: ONE,
    second: true,
    peer: {},
    health: ['connecting', 15.3],
    want: `${PUBLIC} 1, call 9, again in 8.5`,
  },
  {
    say: 'the other went down, and its device is new',
    candidates: TWO,
    second: true,
    peer: {},
    health: ['down', 0],
    want: `${PUBLIC} 2, call 0, again in 1.7`,
  },
  {
    say: 'a link that is up moves to another relay',
    candidates: TWO,
    relays: RELAYS,
    health: ['up', 90],
    peer: { at: '203.0.113.1:4601', handshake: 20 },
    moveTo: '203.0.113.2:4605',
    want: 'try 203.0.113.2:4605: relayed by riga, again in 0.4',
  },
  {
    say: 'it does not move to a relay that has gone meanwhile',
    candidates: TWO,
    relays: RELAYS,
    health: ['up', 90],
    peer: { at: '203.0.113.1:4601', handshake: 20 },
    moveTo: '203.0.113.3:4607',
    want: 'keep 203.0.113.1:4601: the remote gateway answers',
  },
  {
    say: 'one that went down has its turns',
    candidates: TWO,
    relays: RELAYS,
    health: ['down', 0.1],
    peer: { at: '203.0.113.1:4601', handshake: 20 },
    upAt: '203.0.113.1:4601',
    moveTo: '203.0.113.1:4601',
    want: 'try 203.0.113.2:4605: relayed by riga, again in 0.9',
  },
  {
    say: 'direct addresses come before relays',
    candidates: TWO,
    relays: RELAYS,
    health: ['connecting', 0.4],
    want: `${PUBLIC} 2, call 0, again in 0.1`,
  },
  {
    say: 'for a shorter time if only probes could find a direct place',
    candidates: TWO,
    relays: RELAYS,
    neither: true,
    health: ['connecting', 0.3],
    want: 'try 203.0.113.1:4601: relayed by oslo, call 1000000, again in 1',
  },
  {
    say: 'no direct address has answered: this end calls through the relay at once',
    candidates: TWO,
    relays: RELAYS,
    health: ['connecting', 0.5],
    want: 'try 203.0.113.1:4601: relayed by oslo, call 1000000, again in 1',
  },
  {
    say: 'so it does at a relay that has just got both ends',
    candidates: TWO,
    relays: ['oslo 203.0.113.1:4601 since 0.1'],
    health: ['connecting', 5],
    want: 'try 203.0.113.1:4601: relayed by oslo, call 1000000, again in 0.9',
  },
  {
    say: 'a round trip as long as usual changes nothing',
    candidates: TWO,
    relays: ['oslo 203.0.113.1:4601 trip 0.3'],
    health: ['connecting', 0.5],
    want: 'try 203.0.113.1:4601: relayed by oslo, call 1000000, again in 1',
  },
  {
    say: 'the call through a relay that is far away has three round trips',
    candidates: TWO,
    relays: ['oslo 203.0.113.1:4601 trip 1.2', 'riga 203.0.113.2:4605'],
    health: ['connecting', 0.5],
    want: 'try 203.0.113.1:4601: relayed by oslo, call 1000000, again in 3.6',
  },
  {
    say: 'and the other end waits as many times longer',
    candidates: TWO,
    relays: ['oslo 203.0.113.1:4601 trip 1.2'],
    second: true,
    peer: { at: '10.0.0.2:4500' },
    health: ['connecting', 0.5],
    want: 'try 203.0.113.1:4601: relayed by oslo, again in 2.52',
  },
  {
    say: 'but not more than five seconds',
    candidates: TWO,
    relays: ['oslo 203.0.113.1:4601 trip 4'],
    health: ['connecting', 0.5],
    want: 'try 203.0.113.1:4601: relayed by oslo, call 1000000, again in 5',
  },
  {
    say: 'the other end goes there and waits for its call, so that the two do not cross',
    candidates: TWO,
    relays: RELAYS,
    second: true,
    peer: { at: '10.0.0.2:4500' },
    health: ['connecting', 0.5],
    want: 'try 203.0.113.1:4601: relayed by oslo, again in 0.7',
  },
  {
    say: 'so it does at a relay that has just got both ends',
    candidates: TWO,
    relays: ['oslo 203.0.113.1:4601 since 0.1', 'riga 203.0.113.2:4605 since 0'],
    second: true,
    peer: { at: '10.0.0.2:4500' },
    health: ['connecting', 5],
    want: 'try 203.0.113.1:4601: relayed by oslo, again in 0.6',
  },
  {
    say: 'so it does at a relay that both ends came to before this one first probed the link',
    candidates: TWO,
    relays: ['oslo 203.0.113.1:4601 since 0.6 we'],
    second: true,
    health: ['connecting', 0.5],
    want: 'try 203.0.113.1:4601: relayed by oslo, call 1000000, again in 1',
  },
  {
    say: 'the end that came last to the relay that is called calls first, whoever did at another one before',
    candidates: TWO,
    relays: ['oslo 203.0.113.1:4601 since 0.1 they', 'riga 203.0.113.2:4605 since 0.2 we'],
    peer: { at: '10.0.0.2:4500' },
    health: ['connecting', 5],
    want: 'try 203.0.113.1:4601: relayed by oslo, again in 0.5',
  },
  {
    say: 'for the far end it is the same order, also if it got to know the two the other way round',
    candidates: TWO,
    relays: ['oslo 203.0.113.1:4601 since 0.2 we', 'riga 203.0.113.2:4605 since 0.1 they'],
    second: true,
    peer: { at: '10.0.0.2:4500' },
    health: ['connecting', 5],
    want: 'try 203.0.113.1:4601: relayed by oslo, call 1000000, again in 0.8',
  },
  {
    say: 'an order from before the link went down says nothing, though another relay has a new one',
    candidates: TWO,
    relays: ['oslo 203.0.113.1:4601 since 9 they', 'riga 203.0.113.2:4605 since 0.1 they'],
    peer: { at: '10.0.0.2:4500' },
    health: ['connecting', 1],
    want: 'try 203.0.113.1:4601: relayed by oslo, call 1000000, again in 0.5',
  },
  {
    say: 'a peer without an address would be called at once',
    candidates: TWO,
    relays: RELAYS,
    second: true,
    peer: {},
    health: ['connecting', 0.5],
    want: 'wait: the remote gateway connects first, again in 0.7',
  },
  {
    say: 'it calls when that did not come',
    candidates: TWO,
    relays: RELAYS,
    second: true,
    peer: { at: '203.0.113.1:4601' },
    health: ['connecting', 1.2],
    want: 'try 203.0.113.1:4601: relayed by oslo, call 1000000, again in 1.3',
  },
  {
    say: 'later if that came, and its answer is under way',
    candidates: TWO,
    relays: RELAYS,
    second: true,
    peer: { at: '203.0.113.1:4601', received: 148 },
    health: ['connecting', 1.2],
    want: 'try 203.0.113.1:4601: relayed by oslo, again in 1.2',
  },
  {
    say: 'the turn of direct addresses begins for both at once, too',
    candidates: TWO,
    relays: RELAYS,
    second: true,
    peer: { at: '203.0.113.1:4601' },
    health: ['connecting', 6.5],
    want: `try 10.0.0.2:4500: private address, candidate 2 of 2, again in 0.7`,
  },
  {
    say: 'nor does the first relay',
    candidates: TWO,
    relays: RELAYS,
    peer: { at: '203.0.113.1:4601' },
    health: ['connecting', 4.1],
    want: 'try 203.0.113.2:4605: relayed by riga, call 1000003, again in 0.4',
  },
  {
    say: 'direct addresses have a turn again',
    candidates: TWO,
    relays: RELAYS,
    peer: { at: '203.0.113.1:4601' },
    health: ['connecting', 8],
    want: `${PUBLIC} 2, call 8, again in 0.5`,
  },
  {
    say: 'no longer than its time, however long a call lasts by then',
    candidates: TWO,
    relays: RELAYS,
    peer: { at: '203.0.113.1:4601' },
    health: ['connecting', 15.2],
    want: `${PRIVATE} 2, call 15, again in 1.3`,
  },
  {
    say: 'nor for a session that is not up',
    candidates: TWO,
    relays: RELAYS,
    peer: { at: '203.0.113.1:4601', handshake: 20 },
    health: ['connecting', 15.2],
    want: `${PUBLIC} 2, again in 1.3`,
  },
  {
    say: 'a relay does for a peer without addresses',
    candidates: [],
    relays: RELAYS,
    health: ['connecting', 8],
    want: 'try 203.0.113.2:4605: relayed by riga, call 1000007, again in 0.5',
  },
  {
    say: 'up through a relay',
    candidates: TWO,
    relays: RELAYS,
    peer: { at: '203.0.113.2:4605', handshake: 100 },
    health: ['up', 100],
    want: 'keep 203.0.113.2:4605: the remote gateway answers',
  },
  {
    say: 'up through a relay that has given the pair another port',
    candidates: TWO,
    relays: RELAYS,
    peer: { at: '203.0.113.2:4603', handshake: 100 },
    health: ['up', 100],
    want: 'try 203.0.113.2:4605: relayed by riga',
  },
  {
    say: 'up through a relay that is about to leave',
    candidates: TWO,
    relays: RELAYS,
    peer: { at: '203.0.113.3:4603', handshake: 100 },
    health: ['up', 100],
    want: 'try 203.0.113.1:4601: relayed by oslo',
  },
  {
    say: 'up through a relay that this process has asked just now',
    candidates: TWO,
    relays: RELAYS,
    asked: '203.0.113.3',
    peer: { at: '203.0.113.3:4603', handshake: 100 },
    health: ['up', 100],
    want: 'keep 203.0.113.3:4603: the remote gateway answers',
  },
  {
    say: 'down, and the relay has not answered this process yet',
    candidates: TWO,
    relays: RELAYS,
    hidden: true,
    asked: '203.0.113.3',
    peer: { at: '203.0.113.3:4603', handshake: 20 },
    upAt: '203.0.113.3:4603',
    health: ['down', 0],
    want: 'try 203.0.113.1:4601: relayed by oslo, again in 1',
  },
  {
    say: 'up directly, at a port like those of relays',
    candidates: endpoint('paris', 'gw', 0, ['public 198.51.100.20:4650']).spec.candidates,
    relays: RELAYS,
    peer: { at: '198.51.100.20:4650', handshake: 100 },
    health: ['up', 100],
    want: 'keep 198.51.100.20:4650: the remote gateway answers',
  },
  {
    say: 'up directly, at the address of a relay',
    candidates: TWO,
    relays: RELAYS,
    peer: { at: '203.0.113.2:4500', handshake: 100 },
    health: ['up', 100],
    want: 'keep 203.0.113.2:4500: the remote gateway answers',
  },
  {
    say: 'the relay is lost: the session goes on over the other one',
    candidates: TWO,
    relays: RELAYS,
    hidden: true,
    peer: { at: '203.0.113.1:4601', handshake: 2 },
    health: ['down', 0],
    want: 'try 203.0.113.2:4605: relayed by riga, again in 1',
  },
  {
    say: 'a move to another relay has failed: the one that carried the link does',
    candidates: TWO,
    relays: ['riga 203.0.113.2:4605 failed', 'oslo 203.0.113.1:4601'],
    hidden: true,
    peer: { at: '203.0.113.2:4605', handshake: 20 },
    upAt: '203.0.113.1:4601',
    health: ['down', 0],
    want: 'try 203.0.113.1:4601: relayed by oslo, again in 1',
  },
  {
    say: 'all relays have failed: each has its turn',
    candidates: TWO,
    relays: RELAYS.map((one) => `${one} failed`),
    hidden: true,
    peer: { at: '203.0.113.2:4605', handshake: 20 },
    upAt: '203.0.113.1:4601',
    health: ['down', 0],
    want: 'try 203.0.113.1:4601: relayed by oslo, again in 1',
  },
  {
    say: 'the session stays on the other one',
    candidates: TWO,
    relays: RELAYS,
    hidden: true,
    peer: { at: '203.0.113.2:4605', handshake: 20 },
    upAt: '203.0.113.1:4601',
    health: ['down', 0.5],
    want: 'try 203.0.113.2:4605: relayed by riga, again in 0.5',
  },
  {
    say: 'a link that was up without a relay has time to come up again',
    candidates: TWO,
    relays: RELAYS,
    hidden: true,
    peer: { at: '10.0.0.2:4500', handshake: 20 },
    upAt: '10.0.0.2:4500',
    health: ['down', 1],
    want: 'keep 10.0.0.2:4500: the remote gateway answered there before, again in 2',
  },
  {
    say: 'a session that is not up yet keeps its address until a relay may be called',
    candidates: TWO,
    relays: RELAYS,
    peer: { at: '10.0.0.2:4500', handshake: 20 },
    health: ['connecting', 0.1],
    want: 'keep 10.0.0.2:4500: the remote gateway answered there before, again in 0.4',
  },
  {
    say: 'so has one at a port of relays, which the far end announces as its own',
    candidates: [{ kind: 'private', address: '10.0.0.2', port: 4610 }],
    relays: RELAYS,
    hidden: true,
    peer: { at: '10.0.0.2:4610', handshake: 20 },
    upAt: '10.0.0.2:4610',
    health: ['down', 1],
    want: 'keep 10.0.0.2:4610: the remote gateway answered there before, again in 2',
  },
  {
    say: 'it does not come up, and the session goes on over a relay',
    candidates: TWO,
    relays: RELAYS,
    hidden: true,
    peer: { at: '10.0.0.2:4500', handshake: 20 },
    upAt: '10.0.0.2:4500',
    health: ['down', 3],
    want: 'try 203.0.113.1:4601: relayed by oslo, again in 1',
  },
  {
    say: 'where it stays',
    candidates: TWO,
    relays: RELAYS,
    hidden: true,
    peer: { at: '203.0.113.1:4601', handshake: 20 },
    upAt: '10.0.0.2:4500',
    health: ['down', 4],
    want: 'try 203.0.113.1:4601: relayed by oslo, again in 1',
  },
  {
    say: 'no address to call before the relays',
    candidates: [],
    relays: RELAYS,
    health: ['connecting', 0.1],
    want: 'wait: the remote gateway publishes no candidates; a relay is called next, again in 0.4',
  },
  {
    say: 'the far end has come over the other one',
    candidates: TWO,
    relays: RELAYS,
    hidden: true,
    peer: { at: ROAMED, handshake: 20 },
    called: 0.1,
    health: ['down', 0.1],
    want: `keep ${ROAMED}: the remote gateway has just connected from there, again in 2.9`,
  },
  {
    say: 'a session has just begun over the other one',
    candidates: TWO,
    relays: RELAYS,
    hidden: true,
    peer: { at: '203.0.113.2:4605', handshake: 1 },
    health: ['down', 5],
    want: 'keep 203.0.113.2:4605: the handshake has just completed, again in 2',
  },
  {
    say: 'up through a relay, and an end can be called now',
    candidates: ONE,
    relays: RELAYS,
    direct: true,
    peer: { at: '203.0.113.2:4605', handshake: 100 },
    health: ['up', 100],
    want: `${PUBLIC} 1, again in 0.4`,
  },
  {
    say: 'up through a relay, and probes pass without it',
    candidates: TWO,
    relays: RELAYS,
    punched: ROAMED,
    peer: { at: '203.0.113.2:4605', handshake: 100 },
    health: ['up', 100],
    want: `try ${ROAMED}: ${PUNCHED}, again in 0.4`,
  },
  {
    say: 'up where probes pass',
    candidates: TWO,
    relays: RELAYS,
    punched: ROAMED,
    peer: { at: ROAMED, handshake: 100 },
    health: ['up', 100],
    want: `keep ${ROAMED}: ${PUNCHED}`,
  },
  {
    say: 'up where probes passed, and the far end has heard this one through the relay alone',
    candidates: TWO,
    relays: RELAYS,
    punched: ROAMED,
    follows: true,
    peer: { at: '203.0.113.2:4605', handshake: 100 },
    health: ['up', 100],
    want: 'keep 203.0.113.2:4605: the remote gateway answers',
  },
  {
    say: 'the far end has moved the link to another of its places',
    candidates: TWO,
    relays: RELAYS,
    punched: ROAMED,
    peer: { at: '203.0.113.77:61235', handshake: 100 },
    health: ['up', 100],
    want: `keep 203.0.113.77:61235: ${PUNCHED}`,
  },
  {
    say: 'probes passed, and the link went down there',
    candidates: TWO,
    relays: RELAYS,
    punched: ROAMED,
    peer: { at: ROAMED, handshake: 100 },
    health: ['down', 0.1],
    want: 'try 203.0.113.1:4601: relayed by oslo, again in 0.9',
  },
  {
    say: 'probes pass before the link was ever up',
    candidates: TWO,
    relays: RELAYS,
    punched: ROAMED,
    health: ['connecting', 2.5],
    want: `try ${ROAMED}: ${PUNCHED}, call 2000002, again in 0.5`,
  },
]

const LINK = { carries: true, rxBytes: 0, txBytes: 0 }

const CALM: Pick<EndpointChoiceInit, 'monotonicMs' | 'rotateMs' | 'jitter' | 'sessionMs'> = {
  sessionMs: 180_000,
  monotonicMs: UPTIME,
  rotateMs: 5000,
  jitter: 0,
}

function text({ how, at, why, attempt, nextAtMs }: EndpointChoice): string {
  return [
    `${how}${at === undefined ? '' : ` ${formatAddressPort(at)}`}: ${why}`,
    ...(attempt === undefined ? [] : [`call ${attempt}`]),
    ...(nextAtMs === undefined ? [] : [`again in ${Math.round(nextAtMs - UPTIME) / 1000}`]),
  ].join(', ')
}

t.test('choices', async (t) => {
  for (const row of ROWS) {
    const { at, handshake, received = 0 } = row.peer ?? {}
    const link = row.peer && {
      ...{ ...LINK, rxBytes: received },
      ...(at === undefined ? {} : { at: parseAddressPort(at) }),
      ...(handshake === undefined ? {} : { handshakeMs: UPTIME - handshake * 1000 }),
    }
    const health = row.health && { state: row.health[0], sinceMs: UPTIME - row.health[1] * 1000 }
    const [callsFirst, callable] = [row.second !== true, row.hidden !== true]
    const { candidates, called } = row
    const roamed = called === undefined ? undefined : { at: parseAddressPort(ROAMED), sinceMs: UPTIME - called * 1000 }
    const relays = (row.relays ?? []).map((words) => {
      const [cluster = '', at = '', mark, seconds, last] = words.split(' ')
      const trip = mark === 'trip' ? { roundTripMs: Number(seconds) * 1000 } : {}
      const since = mark === 'since' ? { sinceMs: UPTIME - Number(seconds) * 1000 } : {}
      const order = last === undefined ? {} : { farWasThere: last === 'we' }
      const failed = mark === 'failed' ? { failed: true as const } : {}
      return { cluster, at: parseAddressPort(at), ...since, ...trip, ...order, ...failed }
    })
    const upAt = row.upAt === undefined ? undefined : parseAddressPort(row.upAt)
    const punched = row.punched === undefined ? undefined : parseAddressPort(row.punched)
    const moveTo = row.moveTo === undefined ? undefined : parseAddressPort(row.moveTo)
    const relaysAsked = row.asked === undefined ? [] : [parseAddress(row.asked)]
    const paths = { candidates, relays, relaysAsked, triesDirect: row.direct === true, upAt, punched, moveTo }
    const neitherCallable = row.neither === true
    const ends = { callsFirst, callable, neitherCallable, link, health, roamed, followsFar: row.follows === true }
    const choice = chooseEndpoint({ ...CALM, ...paths, ...ends })
    t.equal(text(choice), row.want, row.say)
    if (row.relays?.some((words) => words.includes(' trip ')) === true) continue
    const usual = { relays: relays.map((place) => ({ ...place, roundTripMs: 300 })), ...ends }
    const figures = { rttMs: 300, jitterMs: 900 }
    const near = chooseEndpoint({ ...CALM, ...paths, ...usual, health: health && { ...health, figures } })
    t.equal(text(near), row.want, `${row.say}: the same where round trips are known to be usual`)
  }
})

t.test('each place of relays has its turn, however many there are', async (t) => {
  const link = { ...LINK, at: parseAddressPort('198.51.100.20:4500') }
  for (const candidates of [[], ONE, TWO]) {
    for (let count = 1; count <= 9; count++) {
      const relays = Array.from({ length: count }, (_, i) => {
        return { cluster: 'oslo', at: parseAddressPort(`203.0.113.${i + 1}:4601`), failed: true as const }
      })
      const called = new Set<string>()
      for (let ms = 0; ms < 60_000; ms += 500) {
        const health = { state: 'connecting', sinceMs: UPTIME - ms } as const
        const init = { ...CALM, callsFirst: true, callable: true, candidates, relays, link, health }
        const { at } = chooseEndpoint(init)
        if (at !== undefined) called.add(formatAddressPort(at))
      }
      const missing = relays.filter(({ at }) => !called.has(formatAddressPort(at)))
      t.equal(missing.length, 0, `${count} relays, ${candidates.length} candidates`)
    }
  }
})

/** The times in seconds at which an end calls that receives nothing. It plans at the times that its last plan set. */
function callTimes(init: {
  readonly callsFirst: boolean
  readonly jitter: number
  readonly untilMs: number
}): number[] {
  const times: number[] = []
  const link = { ...LINK, at: parseAddressPort('198.51.100.20:4500') }
  const health = { state: 'connecting', sinceMs: UPTIME } as const
  let last = -1
  for (let monotonicMs = UPTIME; monotonicMs < UPTIME + init.untilMs;) {
    const known = { candidates: ONE, link, health }
    const choice = chooseEndpoint({ ...CALM, ...init, monotonicMs, callable: true, ...known })
    const { attempt = last, nextAtMs = Infinity } = choice
    if (attempt !== last) times.push(Math.round(monotonicMs - UPTIME) / 1000)
    if (attempt !== last && attempt !== last + 1) throw new Error(`call ${attempt} after call ${last}`)
    last = attempt
    if (nextAtMs <= monotonicMs) throw new Error(`at ${monotonicMs} it wants to be woken at ${nextAtMs}`)
    monotonicMs = nextAtMs
  }
  return times
}

t.test('a call that went unheard is followed by the next one soon', async (t) => {
  t.strictSame(
    callTimes({ callsFirst: true, jitter: 0, untilMs: 27_000 }),
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 20, 25],
  )
  t.strictSame(
    callTimes({ callsFirst: false, jitter: 0, untilMs: 27_000 }),
    [0.3, 1.7, 3.4, 5.1, 6.8, 8.5, 10.2, 11.9, 13.6, 15.3, 23.8],
  )
  for (const callsFirst of [true, false]) {
    for (let jitter = 0; jitter < 1; jitter += 0.07) {
      const times = callTimes({ callsFirst, jitter, untilMs: 15_000 })
      const pauses = times.slice(1).map((time, i) => time - (times[i] ?? 0))
      t.ok(Math.max(...pauses) < 2.05, `${callsFirst}, jitter ${jitter.toFixed(2)}: ${Math.max(...pauses)} s`)
    }
  }
})

t.test('two ends whose calls crossed do not go on crossing', async (t) => {
  const [first, second] = [true, false].map((callsFirst) => callTimes({ callsFirst, jitter: 0.5, untilMs: 15_000 }))
  const crossing = (first ?? []).filter((time) => (second ?? []).some((other) => Math.abs(time - other) < 0.1))
  t.ok(crossing.length <= 3, `${crossing.length} of ${first?.length} calls are close to one of the other end`)
  const inRow = (first ?? []).some((time, i) => crossing.includes(time) && crossing.includes(first?.[i + 1] ?? -1))
  t.notOk(inRow, 'and never two in a row')
})

t.test('who is called anew: whose call number advanced since the last round', async (t) => {
  const calls = new HandshakeRetries()
  const own = cluster('milano', 1, '10.42.0.0/16', '244.0.0.0/16')
  const paris = endpoint('paris', 'gw', 0, ['public 198.51.100.20:4500'])
  const facts = { own, clusters: [own, cluster('paris', 2, '10.42.0.0/16', '244.1.0.0/16')], endpoints: [paris] }
  const due = (state: ConnectionState, seconds: number, lastHandshakeMs?: number): number => {
    const known = peerState(paris.spec.publicKey, {
      endpoint: '198.51.100.20:4500',
      ...(lastHandshakeMs === undefined ? {} : { lastHandshakeMs }),
    })
    const device = { name: 'sealane0', publicKey: key('own'), listenPort: 4500, peers: [known] }
    const health = new Map([['0/paris', { state, sinceMs: UPTIME - seconds * 1000 }]])
    const { lanes } = planLanes(world({ ...facts, devices: new Map([[0, device]]), health }))
    return calls.due(lanes.flatMap((lane) => lane.links)).size
  }
  t.equal(due('connecting', 0), 0, 'the first call is that of the new peer')
  t.equal(due('connecting', 0.9), 0)
  t.equal(due('connecting', 1.1), 1, 'the second is due')
  t.equal(due('connecting', 1.3), 0, 'once')
  t.equal(due('connecting', 4.1), 1, 'calls that were missed are not made up for')
  t.equal(due('connecting', 5, NOW - 500), 0, 'it shook hands')
  t.equal(due('up', 0, NOW - 500), 0, 'it is up')
  t.equal(due('down', 2, NOW - 30_000), 0, 'it is down, but can call us')
  t.equal(due('down', 4.1), 1, 'its session is gone')
})
