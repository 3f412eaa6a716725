/** A lane that is handed over: the new gateway is called first, and carries traffic only after it answers. */
import t from 'tap'
import { type LaneFacts, chooseServer, nextLookMs } from '../../../gateway/links/choose-server.ts'
import { planLanes } from '../support/wireguard-plans.ts'
import { parseAddressPort } from '../../../model/addresses/address-port.ts'
import { planDevice } from '../../../gateway/cable/wireguard/plan-device.ts'
import { ANNOTATION_PUBLISHED_AT } from '../../../model/lanes/lane-servers.ts'
import type { Endpoint } from '../../../model/objects.ts'
import type { PeerState } from '../../../kernel/wireguard/wireguard-device.ts'
import { NOW, UPTIME, cluster, endpoint, key, keyOf, laneState, peerState, world } from '../support/worlds.ts'

const OWN = cluster('milano', 1, '10.42.0.0/16', '244.0.0.0/16')
const PARIS = cluster('paris', 2, '10.52.0.0/16')
const TOKYO = cluster('tokyo', 3, '10.62.0.0/16')

/** A gateway of a cluster; `minute` is when the broker received it. */
function gateway(id: string, node: string, minute: number): Endpoint {
  const made = endpoint(id, node, 0, [`private 192.0.2.${minute + 100}:4500`], key(`${id}-${node}`))
  const stamp = new Date(Date.UTC(2026, 10, 20, 12, minute)).toISOString()
  return { ...made, metadata: { ...made.metadata, annotations: { [ANNOTATION_PUBLISHED_AT]: stamp } } }
}

const [A, B, C] = [gateway('paris', 'a', 1), gateway('paris', 'b', 2), gateway('paris', 'c', 3)]
const PREFIXES = ['10.52.0.0/16']
const sentTo = ({ spec }: Endpoint, facts: Partial<Omit<PeerState, 'endpoint'>> = {}): PeerState =>
  peerState(spec.publicKey, { allowedIps: PREFIXES, lastHandshakeMs: NOW - 60_000, ...facts })
const called = ({ spec }: Endpoint, lastHandshakeMs?: number): PeerState =>
  peerState(spec.publicKey, lastHandshakeMs === undefined ? {} : { lastHandshakeMs })

const device = (...peers: PeerState[]) => ({ name: 'sealane0', publicKey: key('own'), listenPort: 4500, peers })

function factsOf(peers: PeerState[], downMs: number, nowMs = NOW): LaneFacts {
  const { links } = laneState(device(...peers), [A, B, C])
  return { linkOf: (endpoint) => links.get(keyOf(endpoint)), downMs, monotonicMs: UPTIME + nowMs - NOW }
}

t.test('who serves', async (t) => {
  const rows: [say: string, claims: [Endpoint, ...Endpoint[]], peers: PeerState[], want: string][] = [
    ['one alone', [A], [], 'a'],
    ['one alone that was sent to', [A], [sentTo(A)], 'a'],
    ['nobody was sent to: the last one at once', [B, A], [], 'b'],
    ['the other goes on until the newcomer has shaken hands', [B, A], [sentTo(A)], 'a then b'],
    ['also while it is being called', [B, A], [sentTo(A), called(B)], 'a then b'],
    ['it has', [B, A], [sentTo(A), called(B, NOW - 100)], 'b'],
    ['the other goes on to claim', [B, A], [sentTo(B)], 'b'],
    ['one that has been sent to never', [B, A], [called(A), called(B)], 'b'],
    ['a third comes in the middle', [C, B, A], [sentTo(A), called(B)], 'a then c'],
    ['and shakes hands first', [C, B, A], [sentTo(A), called(B), called(C, NOW)], 'c'],
    ['the other is silent: still nothing to lose by waiting', [B, A], [sentTo(A, { lastHandshakeMs: 0 })], 'a then b'],
  ]
  for (const [say, claims, peers, want] of rows) {
    const { server, successor } = chooseServer(claims, factsOf(peers, 0))
    t.equal(
      [server, ...(successor === undefined ? [] : [successor])].map(({ spec }) => spec.node).join(' then '),
      want,
      say,
    )
  }
  t.equal(
    chooseServer([B, A], { downMs: 0, monotonicMs: UPTIME, linkOf: () => undefined }).server,
    B,
    'without a device',
  )
})

t.test('a server that is silent gives way to one that answers', async (t) => {
  const rows: [say: string, claims: [Endpoint, ...Endpoint[]], peers: PeerState[], downMs: number, want: string][] = [
    ['a moment', [B, A], [sentTo(B)], 4999, 'b'],
    ['the one before is called', [B, A], [sentTo(B)], 5000, 'b then a'],
    ['and answers', [B, A], [sentTo(B), called(A, NOW)], 5200, 'a'],
    ['and serves; the other is called', [B, A], [sentTo(A)], 5400, 'a then b'],
    ['and comes back', [B, A], [sentTo(A), called(B, NOW)], 0, 'b'],
    ['a dead one, and the newcomer answers after long', [B, A], [sentTo(A), called(B, NOW)], 14_000, 'b'],
    ['and has its time', [B, A], [sentTo(B, { lastHandshakeMs: NOW - 4999 })], 14_200, 'b'],
    ['and not for ever', [B, A], [sentTo(B, { lastHandshakeMs: NOW - 5000 })], 15_000, 'b then a'],
    ['one that never shook hands', [B, A], [peerState(B.spec.publicKey, { allowedIps: PREFIXES })], 5000, 'b then a'],
    ['nobody is there before it', [A], [sentTo(A)], 60_000, 'a'],
    ['two are there: in turn', [C, B, A], [sentTo(C)], 5000, 'c then b'],
    ['two are there: the other', [C, B, A], [sentTo(C)], 10_000, 'c then a'],
    ['two are there: the first again', [C, B, A], [sentTo(C)], 15_000, 'c then b'],
  ]
  for (const [say, claims, peers, downMs, want] of rows) {
    const { server, successor } = chooseServer(claims, factsOf(peers, downMs))
    const nodes = [server, ...(successor === undefined ? [] : [successor])].map(({ spec }) => spec.node)
    t.equal(nodes.join(' then '), want, say)
  }
})

t.test('on the device: prefixes stay with one peer, and move in one step', async (t) => {
  const TOKYO_A = gateway('tokyo', 'a', 1)
  const plan = (...peers: PeerState[]) => {
    const devices = new Map([[0, device(...peers, sentTo(TOKYO_A, { allowedIps: ['10.62.0.0/16'] }))]])
    const facts = { own: OWN, clusters: [OWN, PARIS, TOKYO], endpoints: [A, B, TOKYO_A], devices }
    const since = new Map([[keyOf(B), UPTIME - 1300]])
    return planLanes(world({ ...facts, successorsSince: since }))
  }
  const prefixes = (planned: ReturnType<typeof plan>) =>
    planned.lanes.flatMap((lane) =>
      planDevice(lane).config.peers.map(({ publicKey, allowedIps }) => [publicKey, allowedIps.length]),
    )
  const before = plan(sentTo(A), called(B))
  t.strictSame(prefixes(before), [
    [A.spec.publicKey, 2],
    [TOKYO_A.spec.publicKey, 2],
    [B.spec.publicKey, 0],
  ])
  t.strictSame(before.refusals, [])
  const [newcomer] = before.lanes[0]?.successors ?? []
  t.match(
    newcomer?.choice,
    { how: 'try', at: parseAddressPort('192.0.2.102:4500'), attempt: 1 },
    'called, and called anew',
  )
  t.ok((before.nextAtMs ?? 0) <= UPTIME + 200, 'and looked at soon')

  const after = plan(sentTo(A), called(B, NOW - 50))
  t.strictSame(prefixes(after), [
    [B.spec.publicKey, 2],
    [TOKYO_A.spec.publicKey, 2],
  ])
  t.match(after.refusals, [
    { subject: 'Endpoint paris.a-lane0', reason: 'LaneServedByOther', message: /served by node b/ },
  ])
})

t.test('one that does not answer is looked at calmly', async (t) => {
  t.equal(nextLookMs(UPTIME, UPTIME), UPTIME + 200)
  t.equal(nextLookMs(UPTIME - 19_999, UPTIME), UPTIME + 200)
  t.equal(nextLookMs(UPTIME - 20_000, UPTIME), UPTIME + 2000)
})

/** Rounds of a far gateway, one each 200 ms, with a device that follows the plan. */
class Rounds {
  readonly alive = new Set<Endpoint>()
  claims: [Endpoint, ...Endpoint[]]
  #peers: PeerState[] = []
  #nowMs = NOW
  #downSinceMs: number | undefined
  #answers = 0
  /** Each change of the gateway that traffic is sent to. */
  readonly log: string[] = []

  constructor(...claims: [Endpoint, ...Endpoint[]]) {
    this.claims = claims
  }

  pass(ms: number): void {
    for (const end = this.#nowMs + ms; this.#nowMs < end; this.#nowMs += 200) this.#round()
  }

  get up(): boolean {
    return this.#downSinceMs === undefined
  }

  #round(): void {
    const downMs = this.#downSinceMs === undefined ? 0 : this.#nowMs - this.#downSinceMs
    const { server, successor } = chooseServer(this.claims, factsOf(this.#peers, downMs, this.#nowMs))
    if (this.log.at(-1) !== server.spec.node) this.log.push(server.spec.node)
    const known = new Map(this.#peers.map((peer) => [peer.publicKey, peer]))
    const peer = (one: Endpoint, allowedIps: readonly string[]): PeerState => {
      const before = known.get(one.spec.publicKey) ?? peerState(one.spec.publicKey)
      const shakes = this.alive.has(one) && before.lastHandshakeMs === undefined
      return { ...before, allowedIps, ...(shakes ? { lastHandshakeMs: this.#nowMs } : {}) }
    }
    this.#peers = [peer(server, PREFIXES), ...(successor === undefined ? [] : [peer(successor, [])])]
    this.#answers = this.alive.has(server) ? this.#answers + 1 : 0
    if (this.#answers >= 2) this.#downSinceMs = undefined
    else if (this.#answers === 0) this.#downSinceMs ??= this.#nowMs
  }
}

t.test('over time: handed over, lost, replaced, and back', async (t) => {
  const rounds = new Rounds(A)
  rounds.alive.add(A)
  rounds.pass(60_000)
  rounds.alive.add(B)
  rounds.claims = [B, A]
  rounds.pass(60_000)
  t.strictSame(rounds.log, ['a', 'b'], 'handed over while both serve')
  rounds.alive.delete(B)
  rounds.alive.delete(A)
  rounds.pass(15_000)
  rounds.claims = [C, B, A]
  rounds.alive.add(C)
  rounds.pass(60_000)
  t.ok(rounds.up, 'a third replaces two dead ones')
  t.equal(rounds.log.at(-1), 'c')
  rounds.alive.add(B)
  const before = rounds.log.length
  rounds.pass(60_000)
  t.equal(rounds.log.length, before, 'one that comes back changes nothing')
  rounds.alive.delete(C)
  rounds.pass(60_000)
  t.ok(rounds.up, 'where it still claims the lane, it serves when the last one is lost')
  t.equal(rounds.log.at(-1), 'b')
  rounds.alive.add(C)
  rounds.pass(60_000)
  t.ok(rounds.up)
  t.equal(rounds.log.at(-1), 'c')
  t.ok(rounds.log.length < 12, `nobody flaps: ${rounds.log.join(' ')}`)
})
