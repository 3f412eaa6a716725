/** Which node takes a lane, which keeps it, and which is a standby. */
import t from 'tap'
import { wireguardRules } from '../../../gateway/cable/wireguard/plan-device.ts'
import { type LeaseFacts, isRelieved, planLease, whyLost, whyOpen } from '../../../gateway/lease/plan-lease.ts'
import { LANE_LEASE_MS as LEASE_MS } from '../../../model/lanes/lane-servers.ts'
import { laneCandidates, leavingReason } from '../../../model/lanes/gateway-node.ts'
import type { ConnectionState, Gateway, Node } from '../../../model/objects.ts'
import { connectionsTo, gatewayObject, nodeObject } from '../../support/objects/node-objects.ts'

const NOW = 1_000_000
const lease = (holder: string, facts: Partial<NonNullable<LeaseFacts['lease']>> = {}) => ({
  holder,
  offer: undefined,
  changedMs: NOW - 1000,
  durationMs: LEASE_MS,
  ...facts,
})

const FACTS: LeaseFacts = {
  node: 'a',
  nowMs: NOW,
  lease: undefined,
  lost: false,
  openSinceMs: NOW,
  away: undefined,
  never: false,
  turn: 0,
  reported: false,
  relieved: false,
  writtenMs: undefined,
  leaseMs: LEASE_MS,
}
/** By default a holder renews at this interval. */
const RENEW_MS = 3000

t.test('what a node does', async (t) => {
  const drain = 'the node is cordoned'
  const offered = lease('b', { offer: drain })
  const lapsed = lease('b', { changedMs: NOW - LEASE_MS })
  const rows: [say: string, facts: Partial<LeaseFacts>, want: string][] = [
    ['nobody has it', {}, 'serve take'],
    ['nobody ever had it, and another node goes first', { turn: 1, openSinceMs: NOW - 4999 }, 'stand by'],
    ['which did not come', { turn: 1, openSinceMs: NOW - 5000 }, 'serve take'],
    [
      'it was given back, and another node goes first',
      { lease: lease(''), turn: 1, openSinceMs: NOW - 1499 },
      'stand by',
    ],
    ['which did not come', { lease: lease(''), turn: 1, openSinceMs: NOW - 1500 }, 'serve take'],
    ['it was given back', { lease: lease('') }, 'serve take'],
    ['it is ours, as after a restart', { lease: lease('a') }, 'serve renew'],
    ['and was renewed just now', { lease: lease('a'), writtenMs: NOW - RENEW_MS + 1 }, 'serve'],
    ['and it is time', { lease: lease('a'), writtenMs: NOW - RENEW_MS }, 'serve renew'],
    ['a shorter one, just now', { lease: lease('a'), leaseMs: 5000, writtenMs: NOW - 999 }, 'serve'],
    ['a shorter one in time', { lease: lease('a'), leaseMs: 5000, writtenMs: NOW - 1000 }, 'serve renew'],
    ['ours and long silent: the API was away', { lease: lease('a', { changedMs: 0 }), writtenMs: NOW }, 'serve'],
    ['we go: offered at once', { lease: lease('a'), writtenMs: NOW, away: drain }, 'serve renew'],
    ['offered already', { lease: lease('a', { offer: drain }), writtenMs: NOW, away: drain }, 'serve'],
    ['we stay after all', { lease: lease('a', { offer: drain }), writtenMs: NOW }, 'serve renew'],
    ['another has it', { lease: lease('b'), openSinceMs: undefined }, 'stand by'],
    ['another has it, and we have told', { lease: lease('b'), openSinceMs: undefined, reported: true }, 'serve'],
    ['and it is up', { lease: lease('b'), openSinceMs: undefined, reported: true, relieved: true }, 'stand by'],
    ['another offers it', { lease: offered }, 'serve take'],
    ['another offers it, and we go as well', { lease: offered, away: drain, openSinceMs: 0 }, 'stand by'],
    ['another is silent, and lost', { lease: lapsed, lost: true }, 'serve take'],
    ['another is silent, no more', { lease: lapsed }, 'stand by'],
    ['another is silent, and we have told', { lease: lapsed, reported: true }, 'serve'],
    ['another is lost, and we go as well', { lease: lapsed, lost: true, away: drain }, 'stand by'],
    ['and nobody else came', { lease: lapsed, lost: true, away: drain, openSinceMs: NOW - 10_000 }, 'serve take'],
    [
      'and it offered the lane before it was lost',
      { lease: { ...lapsed, offer: drain }, lost: true, away: drain, openSinceMs: NOW - 10_000 },
      'serve take',
    ],
    ['but our process ends', { lease: lapsed, lost: true, away: 'it ends', never: true, openSinceMs: 0 }, 'stand by'],
    ['somebody removed ours just now', { writtenMs: NOW - RENEW_MS + 1 }, 'serve'],
    ['and it is time', { writtenMs: NOW - RENEW_MS }, 'serve take'],
    ['nobody has it, we told, and it is not our turn', { turn: 1, reported: true }, 'serve'],
  ]
  for (const [say, facts, want] of rows) {
    const { role, write } = planLease({ ...FACTS, ...facts })
    t.equal([role, ...(write === undefined ? [] : [write])].join(' '), want, say)
  }
})

t.test('when a Lease may be taken', async (t) => {
  for (const lost of [false, true]) {
    t.equal(whyOpen(undefined, NOW, lost), 'free')
    t.equal(whyOpen(lease(''), NOW, lost), 'free')
    t.equal(whyOpen(lease('b', { offer: '' }), NOW, lost), 'offered')
    t.equal(whyOpen(lease('b', { offer: '', changedMs: NOW - LEASE_MS }), NOW, lost), lost ? 'lapsed' : 'offered')
    t.equal(whyOpen(lease('b'), NOW, lost), undefined)
    t.equal(whyOpen(lease('b', { changedMs: NOW - LEASE_MS + 1 }), NOW, lost), undefined)
    t.equal(whyOpen(lease('b', { changedMs: NOW - LEASE_MS }), NOW, lost), lost ? 'lapsed' : undefined)
  }
})

t.test('when the lane of a holder that lapsed is lost', async (t) => {
  const labelled = (lane: string | undefined, spec: NonNullable<Node['spec']> = {}): Node =>
    nodeObject('a', { metadata: { labels: lane === undefined ? {} : { 'sealane.io/gateway': lane } }, spec })
  const here = labelled('0')
  const up = gateway('a', { paris: 'down', tokyo: 'up' })
  const rows: [say: string, node: Node | undefined, gateway: Gateway | undefined, want: RegExp | undefined][] = [
    ['its kernel may carry', here, up, undefined],
    ['its Node does not exist', undefined, up, /Node does not exist/],
    ['it has no label', labelled(undefined), up, /label/],
    ['it has the label of another lane', labelled('1'), up, /label/],
    ['it is cordoned', labelled('0', { unschedulable: true }), up, /cordoned/],
    ['it has told nothing', here, undefined, /no connection that is up/],
    ['it was up nowhere', here, gateway('a', { paris: 'down', tokyo: 'connecting' }), /no connection that is up/],
    ['its lane ends with its process', here, gateway('a', { paris: 'up' }, 'wireguard-userspace'), /user space/],
  ]
  for (const [say, node, gateway, want] of rows) {
    const why = whyLost({ rules: wireguardRules, lane: 0, node, gateway })
    if (want === undefined) t.equal(why, undefined, say)
    else t.match(why, want, say)
  }
  t.match(
    whyLost({ rules: wireguardRules, lane: 1, node: labelled('1'), gateway: up }),
    /no connection that is up/,
    'what it told of lane 0',
  )
})

/** `{ paris: 'up' }` is the link from lane 0 to paris. */
function gateway(
  name: string,
  states: Readonly<Record<string, ConnectionState>>,
  driver = 'wireguard-kernel',
): Gateway {
  const lanes = [{ lane: 0, device: 'sealane0', mtu: 1420, driver }]
  return gatewayObject(name, { lanes, connections: connectionsTo(states) })
}

t.test('when a node that hands over is needed no more', async (t) => {
  const own = gateway('a', { paris: 'up', tokyo: 'up', lima: 'down' })
  const rows: [say: string, holder: Gateway | undefined, elapsedMs: number, want: boolean][] = [
    ['the other says nothing', undefined, 0, false],
    ['it is up nowhere', gateway('b', { paris: 'connecting' }), 0, false],
    ['it is not everywhere', gateway('b', { paris: 'up', tokyo: 'connecting' }), 0, false],
    ['it is where we are', gateway('b', { paris: 'up', tokyo: 'up' }), 0, true],
    ['long ago, and still not everywhere', gateway('b', { paris: 'up' }), 31_000, false],
  ]
  const needed = new Set(['0/paris', '0/tokyo'])
  for (const [say, holder, elapsedMs, want] of rows) {
    t.equal(isRelieved({ lane: 0, holder, own, needed, elapsedMs }), want, say)
  }
  const toTwo = new Set(['0/paris', '1/paris'])
  const first = gateway('b', { paris: 'up' })
  t.equal(isRelieved({ lane: 0, holder: first, own, needed: toTwo, elapsedMs: 0 }), false, 'one of two links')
  const bothLinks = connectionsTo({ paris: 'up' }).flatMap((one) => [one, { ...one, remoteLane: 1 }])
  const ownBoth = { ...own, status: { ...own.status!, connections: bothLinks } }
  const facts = { lane: 0, holder: first, own: ownBoth, needed: toTwo }
  t.equal(isRelieved({ ...facts, elapsedMs: 15_000 }), false, 'the other link may still come up')
  t.equal(isRelieved({ ...facts, elapsedMs: 15_001 }), true, 'between these two there is no way; paris is reached')
  const elsewhere = new Set(['0/paris', '0/tokyo'])
  t.equal(
    isRelieved({ ...facts, own, needed: elsewhere, elapsedMs: 60_000 }),
    false,
    'a cluster that this node alone reaches is waited for',
  )
  t.equal(isRelieved({ ...facts, own, elapsedMs: 5000 }), false, 'the far end of the other link may be moving')
  t.equal(isRelieved({ ...facts, own, elapsedMs: 5001 }), true, 'the far end of the other link has died')
  const gone = gateway('a', { paris: 'down', tokyo: 'down' })
  const holder = gateway('b', { paris: 'up' })
  t.equal(isRelieved({ lane: 0, holder, own: gone, needed, elapsedMs: 1000 }), false, 'a moment of silence')
  t.equal(isRelieved({ lane: 0, holder, own: gone, needed, elapsedMs: 31_000 }), true, 'we are not up there either')
  t.equal(isRelieved({ lane: 0, holder: gateway('b', {}), own, needed: new Set(), elapsedMs: 0 }), true, 'no others')
})

t.test('which nodes go, and which may take a lane', async (t) => {
  const node = (name: string, facts: Partial<Pick<Node, 'spec'>> & Partial<Node['metadata']> = {}): Node => {
    const { spec, labels, annotations } = facts
    const all = { 'sealane.io/gateway': '0', ...labels }
    const metadata = { labels: all, ...(annotations && { annotations }) }
    return nodeObject(name, { metadata, ...(spec && { spec }) })
  }
  const tainted = (key: string) => node('n', { spec: { taints: [{ key, effect: 'NoSchedule' }] } })
  t.equal(leavingReason(node('n')), undefined)
  t.equal(leavingReason(tainted('node-role.kubernetes.io/control-plane')), undefined)
  t.equal(leavingReason(node('n', { spec: { unschedulable: true } })), 'the node is cordoned')
  const key = 'ToBeDeletedByClusterAutoscaler'
  t.equal(leavingReason(tainted(key)), `the node has the taint ${key}`)
  const nodes = [
    node('d', { labels: { 'node-role.kubernetes.io/control-plane': '' } }),
    node('c'),
    node('b', { spec: { unschedulable: true } }),
    node('e', { annotations: { 'sealane.io/public-address': '192.0.2.1' } }),
    node('f', { labels: { 'sealane.io/gateway': '1' } }),
  ]
  t.strictSame(laneCandidates(nodes, 0), ['e', 'c', 'd'])
  t.strictSame(laneCandidates([], 0), [])
})
