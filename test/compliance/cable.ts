/** The suite for every Cable, whatever technology makes its links. It runs on WireGuard and on a cable without keys. */
import t, { type Test } from 'tap'
import {
  type ApplyLaneInit,
  type Cable,
  type CableDevice,
  type CableLink,
  type CallChoice,
  type FarEnd,
  type LinkState,
  linkKey,
} from '../../gateway/cable/cable-driver.ts'
import { farEnd } from '../../gateway/links/check-remotes.ts'
import { Round } from '../../kernel/apply/round.ts'
import type { FakeRouteTable } from '../../kernel/fake/fake-route-table.ts'
import { type AddressPort, formatAddressPort, parseAddressPort } from '../../model/addresses/address-port.ts'
import { formatAddress } from '../../model/values/ip.ts'
import type { Endpoint } from '../../model/objects.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'

export interface CableUnderTest {
  readonly cable: Cable
  readonly routes: FakeRouteTable
  /** Returns the Endpoint that a gateway of another cluster on lane 0 publishes. Its device need not exist. */
  readonly endpointOf: (cluster: string, node: string) => Endpoint
  /** Makes the far end send, from `at` if given. */
  readonly onReason: (end: FarEnd, at?: AddressPort) => void
  /** Returns the milliseconds of the cable's clock. */
  readonly nowMs: () => number
}

const never = new AbortController().signal
const HOME = parseAddressPort('198.51.100.20:4500')
const NAT = parseAddressPort('203.0.113.9:61000')
const TRY: CallChoice = { how: 'try', at: HOME, why: 'candidate 1 of 1' }
const KEEP: CallChoice = { how: 'keep', why: 'it answers' }
const WAIT: CallChoice = { how: 'wait', why: 'it calls us' }

/** A lane of milano with links to paris and tokyo. */
class LaneStory {
  readonly under: CableUnderTest
  readonly paris: FarEnd
  readonly tokyo: FarEnd

  constructor(under: CableUnderTest) {
    this.under = under
    this.paris = this.endOf('paris', 'gw')
    this.tokyo = this.endOf('tokyo', 'gw')
  }

  endOf(cluster: string, node: string): FarEnd {
    return farEnd(this.under.endpointOf(cluster, node), this.under.cable.rules)
  }

  lane(links: readonly CableLink[], successors: readonly CableLink[] = [], mtu = 1400): CableDevice {
    const address = `${formatAddress(this.under.cable.rules.probeAddress(1, 0))}/32`
    const what = { remoteLane: 0, ownLane: 0, device: 'sealane0', port: 4500, mtu, address, behindNat: false }
    return { ...what, links, successors }
  }

  link(end: FarEnd, choice: CallChoice = TRY): CableLink {
    const [cluster = '', octet = 2] = end.endpoint.startsWith('tokyo') ? ['tokyo', 3] : ['paris', 2]
    const laneAddress = formatAddress(this.under.cable.rules.probeAddress(octet, 0))
    return { ...end, cluster, node: 'gw', laneAddress, prefixes: [`244.${octet}.0.0/16`], choice }
  }

  /** Applies a lane and returns the number of changes. Throws the error of a failed change. */
  async apply(lane: CableDevice, change: Partial<ApplyLaneInit> = {}): Promise<number> {
    const round = newRound()
    const seen = (await this.under.cable.observe([0], [...lane.links, ...lane.successors], never)).get(0)
    const more = { withIpv6: false, seen, mayJoin: false, callAgain: new Set<string>(), pathSource: new Map() }
    await this.under.cable.apply(lane, { ...more, round, signal: never, ...change })
    round.finish()
    return round.changes
  }

  async state(...ends: readonly FarEnd[]) {
    return (await this.under.cable.observe([0], ends, never)).get(0)
  }

  async linkState(end: FarEnd): Promise<LinkState | undefined> {
    return (await this.state(end))?.links.get(linkKey(end))
  }

  async at(end: FarEnd): Promise<string | undefined> {
    const at = (await this.linkState(end))?.at
    return at && formatAddressPort(at)
  }

  async device() {
    return (await this.under.routes.links()).find(({ name }) => name === 'sealane0')
  }
}

function newRound(): Round {
  return new Round({ logger: new CapturingLogger() })
}

export function cableCompliance(make: (t: Test) => CableUnderTest | Promise<CableUnderTest>): void {
  const story = (title: string, body: (t: Test, lane: LaneStory) => Promise<void>): void => {
    void t.test(title, async (t) => body(t, new LaneStory(await make(t))))
  }
  story('what it says of itself', rulesStory)
  story('a lane comes and goes', comesAndGoes)
  story('links are brought to the plan, and no others are touched', linksStory)
  story('who is only called is sent nothing', successorStory)
  story('where a far end is', placesStory)
  story('called anew', calledAnew)
  story('who called since the plan was made is left where it is', heardSince)
}

async function rulesStory(t: Test, story: LaneStory): Promise<void> {
  const { cable, endpointOf } = story.under
  const { rules } = cable
  t.ok(Number.isInteger(rules.overhead) && rules.overhead > 0, 'octets')
  const addresses = [1, 2].flatMap((index) => [0, 7].map((lane) => formatAddress(rules.probeAddress(index, lane))))
  t.equal(new Set(addresses).size, addresses.length, 'each lane of each cluster has its own address')
  const [paris, other] = [endpointOf('paris', 'gw'), endpointOf('paris', 'gw2')]
  t.equal(rules.endpointProblem(paris), undefined)
  t.equal(rules.identityOf(paris), rules.identityOf({ ...paris, spec: { ...paris.spec, candidates: [] } }))
  t.not(rules.identityOf(paris), rules.identityOf(other))
  t.match(rules.identityTaken('Endpoint paris.gw-lane0').message, /Endpoint paris\.gw-lane0$/)
  const bad = { ...paris, spec: { ...paris.spec, publicKey: 'short', capabilities: [] } }
  t.type(rules.endpointProblem(bad), 'string', 'what cannot be a far end is said why')
  t.ok((await cable.driver()).name.length > 0)
  t.equal(rules.endsWithProcess('of another cable'), undefined)
  t.ok(rules.sessionMs > 0)
  const lane = story.lane([story.link(story.paris)], [story.link(story.tokyo, WAIT)])
  const { text } = rules.plan(lane)
  t.equal(rules.plan(lane).text, text, 'the same plan, the same text')
  for (const part of ['sealane0', '4500', formatAddressPort(HOME)]) t.match(text, part)
}

async function comesAndGoes(t: Test, story: LaneStory): Promise<void> {
  const { cable, routes, endpointOf } = story.under
  await cable.prepare([0])
  t.equal(await story.state(), undefined)
  const lane = story.lane([])
  t.ok((await story.apply(lane)) > 0)
  t.match(await story.device(), { mtu: 1400, up: true })
  const addresses = async (): Promise<string[]> =>
    (await routes.addresses()).filter(({ device }) => device === 'sealane0').map(({ address }) => address)
  t.strictSame(await addresses(), [lane.address])
  t.equal(await story.apply(lane), 0, 'applied again: nothing to do')
  await story.apply({ ...lane, mtu: 1300 })
  t.match(await story.device(), { mtu: 1300 })
  const state = await story.state()
  if (state === undefined) throw new Error('the lane has gone')
  const reported = endpointOf('milano', 'gw')
  const own = { ...reported, spec: { ...reported.spec, ...cable.rules.endpointFields(state, undefined) } }
  t.equal(cable.rules.identityOf(own), state.identity, 'others know it by what it tells')
  t.equal(cable.rules.endpointProblem(own), undefined)

  t.equal(await cable.remove(['sealane0'], newRound(), never), true)
  t.ok(await story.device(), 'what is kept stays')
  t.equal(await cable.remove([], newRound(), never), true)
  t.equal(await story.device(), undefined)
  t.equal(await story.state(), undefined)
  t.equal(await cable.remove([], newRound(), never), true, 'again')
  await story.apply(lane)
  t.equal((await story.state())?.identity, state.identity, 'made anew, it is who it was')
  await t.rejects(cable.observe([0], [], AbortSignal.abort()), 'who is stopped says so')
}

async function linksStory(t: Test, story: LaneStory): Promise<void> {
  const { paris, tokyo, under } = story
  const both = story.lane([story.link(paris), story.link(tokyo, WAIT)])
  await story.apply(both)
  t.equal(await story.apply(both), 0)
  t.strictSame([...((await story.state(paris, tokyo))?.links.keys() ?? [])].sort(), [paris, tokyo].map(linkKey))
  t.strictSame([...((await story.state(tokyo))?.links.keys() ?? [])], [linkKey(tokyo)], 'those that are asked for')
  t.equal((await story.state({ ...paris, remoteLane: 1 }))?.links.size, 0, 'and on that lane')
  t.equal((await story.state({ ...paris, identity: story.endOf('paris', 'gw2').identity }))?.links.size, 0, 'and those')
  under.onReason(paris, NAT)
  const heard = await story.linkState(paris)
  t.match(heard, { handshakeMs: under.nowMs(), carries: true })
  await story.apply(story.lane([story.link(paris, KEEP)]))
  t.strictSame(await story.linkState(paris), heard, 'the session lives on')
  t.equal(await story.linkState(tokyo), undefined, 'who is not planned goes')
}

async function successorStory(t: Test, story: LaneStory): Promise<void> {
  const { paris, under } = story
  const next = story.endOf('paris', 'gw2')
  await story.apply(story.lane([story.link(paris)], [story.link(next)]))
  t.equal((await story.linkState(paris))?.carries, true)
  t.match(await story.linkState(next), { carries: false, at: HOME }, 'but it is called')
  under.onReason(next)
  await story.apply(story.lane([story.link(next, KEEP)]))
  t.match(await story.linkState(next), { carries: true, handshakeMs: under.nowMs() }, 'the session goes on')
  t.equal(await story.linkState(paris), undefined)
}

async function placesStory(t: Test, story: LaneStory): Promise<void> {
  const { paris, under } = story
  await story.apply(story.lane([story.link(paris, WAIT)]))
  t.equal(await story.at(paris), undefined)
  await story.apply(story.lane([story.link(paris)]))
  t.equal(await story.at(paris), formatAddressPort(HOME))
  under.onReason(paris, NAT)
  t.equal(await story.at(paris), formatAddressPort(NAT), 'it is followed')
  await story.apply(story.lane([story.link(paris, KEEP)]))
  t.equal(await story.at(paris), formatAddressPort(NAT), 'and left there')
  await story.apply(story.lane([story.link(paris)]))
  t.equal(await story.at(paris), formatAddressPort(HOME), 'unless it is tried elsewhere')
}

async function calledAnew(t: Test, story: LaneStory): Promise<void> {
  const { paris, tokyo, under } = story
  const both = story.lane([story.link(paris), story.link(tokyo)])
  await story.apply(both)
  for (const end of [paris, tokyo]) under.onReason(end)
  await story.apply(both, { callAgain: new Set([linkKey(paris)]) })
  const anew = await story.linkState(paris)
  t.match(anew, { rxBytes: 0, carries: true, at: HOME })
  t.equal(anew?.handshakeMs, undefined, 'made anew it knows nothing')
  t.equal((await story.linkState(tokyo))?.handshakeMs, under.nowMs(), 'the other knows')
}

async function heardSince(t: Test, story: LaneStory): Promise<void> {
  const { paris, under } = story
  const lane = story.lane([story.link(paris)])
  await story.apply(lane)
  const seen = await story.state(paris)
  under.onReason(paris, NAT)
  await story.apply(lane, { seen })
  t.equal(await story.at(paris), formatAddressPort(NAT))
  t.not((await story.linkState(paris))?.handshakeMs, undefined)
}
