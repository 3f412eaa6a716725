/**
 * From what machines saw of a probe to the place where its packets end, and to what that means for the explanation. Pure.
 * What the lines say is observed; what a machine that was not asked does with a packet stays unknown.
 */
import {
  LANE_DEVICE_PREFIX,
  NFT_TABLE_GATEWAY,
  NFT_TABLE_NODE,
  NFT_TABLE_TRACE,
  VXLAN_DEVICE,
} from '../../model/model.ts'
import { knownReason } from '../../model/reasons/reasons.ts'
import type { Outcome, PathExplanation, PathStep, Station } from './document.ts'
import type { ProbeDocument, ProbeEnd, ProbeLine, ProbeReport } from './packet-probe.ts'
import type { CallPackets } from './probe-packets.ts'
import { clean } from './station.ts'

/** A place on the way that was asked, or could not be. */
export interface ProbePlace {
  readonly cluster: string
  readonly node?: string
  /** The caller is there. */
  readonly isCaller: boolean
  /** It is on the called side. */
  readonly isFar: boolean
  readonly source: string
  readonly report?: ProbeReport
  readonly notAsked?: string
}

export interface ProbeInit {
  readonly packets: CallPackets
  /** The called port. */
  readonly port: number
  readonly sourcePort: number
  /** What sent the packets. */
  readonly by: string
  /** It is not the caller: rules may treat the two differently, by their labels and addresses. */
  readonly isStandIn: boolean
  readonly places: readonly ProbePlace[]
  readonly nowMs: number
}

type Ended = Pick<ProbeEnd, 'family' | 'table' | 'chain' | 'rule' | 'reason'>

/** What one packet did at one place. */
export interface Journey {
  readonly isAnswer: boolean
  readonly enteredBy?: string
  readonly leftBy?: string
  /** Its last destination there. */
  readonly destination?: string
  /** It came to a process of the machine itself. */
  readonly arrived: boolean
  readonly ended?: Ended
  /** Tables and chains, in their order. */
  readonly passed: readonly string[]
}

const MOST_PASSED = 24
const MOST_COUNTERS = 24
const DROPPED = /\bcounter name "?dropped-([a-z-]{1,40})"?/

interface OpenJourney {
  isAnswer: boolean
  enteredBy?: string
  leftBy?: string
  destination?: string
  arrived: boolean
  ended?: Ended
  passed: string[]
  reason?: string
}

/** The packets of the probe in the lines of one place, in their order. Lines about anything else are left out. */
export function journeysOf(lines: readonly ProbeLine[], sourcePort: number): readonly Journey[] {
  const all: OpenJourney[] = []
  const byId = new Map<string, OpenJourney>()
  for (const line of lines) {
    const { id, packet } = line
    const isOurs = line.table.startsWith(NFT_TABLE_TRACE)
    if (isOurs && packet !== undefined && (line.chain === 'enters' || line.chain === 'starts')) {
      // An id may be that of an earlier packet.
      const isAnswer = packet.port === sourcePort && packet.sourcePort !== sourcePort
      const { inDevice: enteredBy, destination } = packet
      const begun: OpenJourney = { isAnswer, arrived: false, passed: [] }
      if (enteredBy !== undefined) begun.enteredBy = enteredBy
      if (destination !== undefined) begun.destination = destination
      all.push(begun)
      byId.set(id, begun)
      continue
    }
    const journey = byId.get(id)
    if (journey !== undefined && journey.ended === undefined) follow(journey, line, isOurs)
  }
  return all.map(({ reason: _reason, ...journey }) => journey)
}

function follow(journey: OpenJourney, line: ProbeLine, isOurs: boolean): void {
  const { packet, family, table, chain, rule, action } = line
  if (isOurs) {
    if (packet === undefined) return
    if (packet.destination !== undefined) journey.destination = packet.destination
    if (chain === 'arrives') journey.arrived = true
    if (chain === 'leaves' && packet.outDevice !== undefined) journey.leftBy = packet.outDevice
    return
  }
  const place = `${family} ${table} ${chain}`
  if (journey.passed.at(-1) !== place) journey.passed.push(place)
  const reason = knownReason(DROPPED.exec(rule ?? '')?.[1])
  if (reason !== undefined) journey.reason = reason
  if (action !== 'drop') return
  const why = journey.reason === undefined ? {} : { reason: journey.reason }
  journey.ended = { family, table, chain, ...(rule === undefined ? {} : { rule }), ...why }
}

/** Whether the packet left for another machine of the clusterset, and how. */
function leftFor(device: string | undefined): 'lane' | 'overlay' | 'other' | undefined {
  if (device === undefined) return undefined
  if (device === VXLAN_DEVICE) return 'overlay'
  return new RegExp(`^${LANE_DEVICE_PREFIX}\\d`).test(device) ? 'lane' : 'other'
}

interface Followed {
  readonly place: ProbePlace
  readonly requests: readonly Journey[]
  readonly answers: readonly Journey[]
}

/** What became of the packets. */
export function planProbe(init: ProbeInit): ProbeDocument {
  const { packets, port, sourcePort, by, isStandIn, places, nowMs } = init
  const followed = places.map((place): Followed => {
    const all = journeysOf(place.report?.lines ?? [], sourcePort)
    return {
      place,
      requests: all.filter(({ isAnswer }) => !isAnswer),
      answers: all.filter(({ isAnswer }) => isAnswer),
    }
  })
  const sent = places.find(({ isCaller, report }) => isCaller && report?.sent !== undefined)?.report?.sent
  const said = sent ?? { result: 'failed' as const, message: notSentText(places) }
  const cluster = gotBy(followed, packets)
  const end = asFarAsFollowed(endOf(said.result, followed, { ...init, cluster }), packets)
  const outcome = outcomeOf(said.result, { protocol: packets.protocol, end, isStandIn })
  const source = sent?.source ?? packets.source
  return {
    ...{
      by: clean(by),
      isStandIn,
      protocol: packets.protocol,
      ...(source === undefined ? {} : { source: clean(source) }),
    },
    ...{ sourcePort, destination: packets.to, port, result: said.result, outcome },
    message: clean(messageOf(said.message, end, outcome)),
    isCut: packets.isCut,
    ...(sent?.ms === undefined ? {} : { ms: sent.ms }),
    ...(cluster === undefined ? {} : { cluster: clean(cluster) }),
    ...(end === undefined ? {} : { end }),
    places: followed.map((one) => placeOf(one, nowMs)),
  }
}

function notSentText(places: readonly ProbePlace[]): string {
  const why = places.find(({ isCaller }) => isCaller)?.notAsked
  return `no packet was sent${why === undefined ? '' : `: ${why}`}`
}

function messageOf(said: string, end: ProbeEnd | undefined, outcome: Outcome): string {
  const found = end === undefined ? said : `${said}; ${end.message}`
  return outcome === 'AMBIGUOUS' ? `${found}; the caller has other labels and addresses, and may fare otherwise` : found
}

/** Where not all addresses were followed, only a packet that was seen to end there says where it ends. */
function asFarAsFollowed(end: ProbeEnd | undefined, { isCut }: CallPackets): ProbeEnd | undefined {
  if (end === undefined || !isCut || end.table !== undefined) return end
  const message = clean(`${end.message}; not all addresses of the called end could be followed`)
  return { ...end, message, isExact: false }
}

interface Sent extends Pick<ProbeInit, 'isStandIn'> {
  readonly protocol: 'tcp' | 'udp'
  readonly end: ProbeEnd | undefined
}

function outcomeOf(result: ProbeDocument['result'], { protocol, end, isStandIn }: Sent): Outcome {
  switch (result) {
    case 'answered':
      return 'REACHABLE'
    case 'failed':
      return end?.table === undefined ? 'UNDETERMINED' : lostOf(end, isStandIn)
    case 'refused':
    case 'unreachable':
      return lostOf(end, isStandIn)
    case 'silent':
      // A service of UDP may have no answer to an empty packet.
      return protocol === 'tcp' || end?.table !== undefined ? lostOf(end, isStandIn) : 'UNDETERMINED'
  }
}

/** A network policy may refuse a stand-in and let the caller pass. Our own tables do not look at labels of pods. */
function lostOf(end: ProbeEnd | undefined, isStandIn: boolean): Outcome {
  const isOurs = end?.table === NFT_TABLE_NODE || end?.table === NFT_TABLE_GATEWAY
  const isOnLane =
    end?.isExact === true && end.table === undefined && (end.station === 'link' || end.station === 'gateway')
  return !isStandIn || isOurs || isOnLane ? 'UNREACHABLE' : 'AMBIGUOUS'
}

/** The cluster whose address the packets have when they leave the caller. */
function gotBy(followed: readonly Followed[], { clusterOf }: CallPackets): string | undefined {
  const all = new Set(clusterOf.values())
  const at = followed.find(({ place }) => place.isCaller)?.requests.at(-1)?.destination
  return (at === undefined ? undefined : clusterOf.get(at)) ?? (all.size === 1 ? [...all][0] : undefined)
}

/** The called side comes after the own one; there, who hands on over the overlay comes first. */
function inOrder(followed: readonly Followed[]): readonly Followed[] {
  const rank = ({ place, requests }: Followed): number => {
    if (place.isCaller) return 0
    if (!place.isFar) return 1
    return requests.some(({ leftBy }) => leftFor(leftBy) === 'overlay') ? 2 : 3
  }
  return [...followed].sort((a, b) => rank(a) - rank(b))
}

type EndInit = Pick<ProbeInit, 'places' | 'packets'> & { readonly cluster: string | undefined }

function endOf(result: ProbeDocument['result'], all: readonly Followed[], init: EndInit): ProbeEnd | undefined {
  if (result === 'answered') return undefined
  const ordered = inOrder(all)
  const dropped = ordered.findLast(({ requests }) => requests.at(-1)?.ended !== undefined)
  if (dropped !== undefined) return droppedAt(dropped, dropped.requests.at(-1)?.ended ?? {}, 'forward')
  const back = ordered.find(({ answers }) => answers.at(-1)?.ended !== undefined)
  if (back !== undefined) return droppedAt(back, back.answers.at(-1)?.ended ?? {}, 'return')
  const last = ordered.findLast(({ requests }) => requests.length > 0)
  if (last === undefined) return withoutTrace(result, ordered)
  const journey = last.requests.at(-1)
  if (journey === undefined) return undefined
  const { place } = last
  const at = atPlace(place)
  const name = nameOf(place)
  if (journey.arrived) {
    const message = `the packets came to a program of ${name} itself`
    return { ...at, direction: 'forward', station: place.isFar ? 'far-pod' : 'node', message, isExact: true }
  }
  const how = leftFor(journey.leftBy)
  if (how === undefined) {
    const message = `${name} takes the packets and has no way out for them: no route, or something that nft does not show`
    return { ...at, direction: 'forward', station: place.isFar ? 'far-node' : 'node', message, isExact: true }
  }
  if (result === 'refused') return refusedBeyond(last, how, init)
  return lostBeyond(last, journey, { ordered, how, cluster: init.cluster })
}

function atPlace({ cluster, node }: ProbePlace): Pick<ProbeEnd, 'cluster' | 'node'> {
  return { cluster: clean(cluster), ...(node === undefined ? {} : { node: clean(node) }) }
}

function nameOf({ node, source }: ProbePlace): string {
  return node ?? source
}

function droppedAt({ place, requests }: Followed, ended: Ended, direction: 'forward' | 'return'): ProbeEnd {
  const { family = '', table = '', chain = '', rule, reason } = ended
  const by = rule === undefined ? 'the policy of the chain' : `rule "${rule}"`
  const how = rule !== undefined && /\breject\b/.test(rule) ? 'refuses' : 'drops'
  const what = direction === 'return' ? 'the answer' : 'the packets'
  return {
    ...atPlace(place),
    ...{ direction, station: stationOfDrop(place, requests.at(-1), ended) },
    ...{ family: clean(family), table: clean(table), chain: clean(chain) },
    ...(rule === undefined ? {} : { rule: clean(rule) }),
    ...(reason === undefined ? {} : { reason }),
    message: clean(`${nameOf(place)} ${how} ${what} in table ${family} ${table}, chain ${chain}: ${by}`),
    isExact: true,
  }
}

function stationOfDrop(place: ProbePlace, journey: Journey | undefined, { table, reason }: Ended): Station {
  const ofGateway = table?.endsWith('_gateway') === true
  if (place.isFar) return ofGateway || leftFor(journey?.enteredBy) === 'lane' ? 'far-gateway' : 'far-node'
  if (reason?.startsWith('access-') === true) return 'access'
  return ofGateway || !place.isCaller ? 'gateway' : 'node'
}

/** No machine has seen a packet. */
function withoutTrace(result: ProbeDocument['result'], ordered: readonly Followed[]): ProbeEnd | undefined {
  const caller = ordered.find(({ place }) => place.isCaller)?.place
  if (caller === undefined || result === 'failed') return undefined
  const at = { ...atPlace(caller), direction: 'forward', station: 'node' } as const
  const isTraced = caller.report !== undefined && caller.report.problem === undefined
  if (result === 'unreachable' && isTraced) {
    return { ...at, message: `the kernel of ${nameOf(caller)} has no route for them, and sends none`, isExact: true }
  }
  return { ...at, message: 'no machine on the way could follow the packets', isExact: false }
}

function refusedBeyond(last: Followed, how: 'lane' | 'overlay' | 'other', { cluster }: EndInit): ProbeEnd {
  const { place } = last
  const reached = place.isFar && how === 'other'
  return {
    ...(reached ? atPlace(place) : { cluster: clean(cluster ?? '-') }),
    ...{ direction: 'forward', station: reached ? 'far-pod' : 'far-node', reason: 'CallRefused' },
    message: reached
      ? `${nameOf(place)} hands the packets to the called end, which refuses them: nothing listens at the port`
      : `the packets leave ${nameOf(place)}, and what refuses them is behind it`,
    isExact: reached,
  }
}

interface Beyond {
  readonly ordered: readonly Followed[]
  readonly how: 'lane' | 'overlay' | 'other'
  readonly cluster: string | undefined
}

/** The last machine that saw the packets let them go on, and no answer came. */
function lostBeyond(last: Followed, journey: Journey, { ordered, how, cluster }: Beyond): ProbeEnd {
  const { place } = last
  const left = `the packets leave ${nameOf(place)} by ${journey.leftBy ?? '-'}`
  if (place.isFar && how === 'other') {
    const isHeard = ordered.some(({ answers }) => answers.length > 0)
    const [direction, what] = isHeard
      ? (['return', 'the answer is lost on the way back'] as const)
      : (['forward', 'the called end does not answer'] as const)
    const message = `${left} to the called end, and ${what}`
    return { ...atPlace(place), direction, station: 'far-pod', reason: 'CallUnanswered', message, isExact: !isHeard }
  }
  const station: Station = how === 'lane' ? 'link' : place.isFar ? 'far-node' : how === 'overlay' ? 'gateway' : 'node'
  const next = ordered.filter((one) => one !== last && isNext(one.place, place, { how, cluster }))
  // Of a trace with lines left out, silence says nothing.
  const silent = next.filter(({ place: { report } }) => report?.problem === undefined && report?.leftOut === 0)
  const isExact = next.length > 0 && silent.length === next.length
  const names = silent.map((one) => nameOf(one.place)).join(', ')
  const seen =
    silent.length === 0
      ? 'what follows could not be asked'
      : `${names} ${silent.length > 1 ? 'do' : 'does'} not see them`
  const at = station === 'far-node' && cluster !== undefined ? { cluster: clean(cluster) } : atPlace(place)
  return { ...at, direction: 'forward', station, reason: 'CallUnanswered', message: clean(`${left}; ${seen}`), isExact }
}

/** Whether a packet that leaves this way may come there. That another cluster does not see it says nothing. */
function isNext(one: ProbePlace, from: ProbePlace, { how, cluster }: Pick<Beyond, 'how' | 'cluster'>): boolean {
  if (how === 'overlay') return one.cluster === from.cluster
  if (how !== 'lane' || one.isFar === from.isFar) return false
  return !one.isFar || cluster === undefined || one.cluster === cluster
}

function placeOf({ place, requests, answers }: Followed, nowMs: number): ProbeDocument['places'][number] {
  const { report, source } = place
  const why = place.notAsked ?? report?.problem
  const shown = requests.at(-1) ?? answers.at(-1)
  const ms = report === undefined ? Number.NaN : nowMs - Date.parse(report.at)
  return {
    ...{ ...atPlace(place), source: clean(source) },
    ...(report === undefined ? {} : { at: clean(report.at) }),
    ...(Number.isNaN(ms) ? {} : { ageSeconds: Math.max(0, Math.floor(ms / 1000)) }),
    ...{ requests: requests.length, answers: answers.length, leftOut: report?.leftOut ?? 0 },
    passed: shown === undefined ? [] : passedTexts(shown),
    counters: (report?.counters ?? []).slice(0, MOST_COUNTERS).map((one) => ({ ...one, name: clean(one.name) })),
    ...(why === undefined ? {} : { notAsked: clean(why) }),
  }
}

function passedTexts({ enteredBy, leftBy, passed }: Journey): string[] {
  const shown = passed.slice(0, MOST_PASSED)
  const all = [
    ...(enteredBy === undefined ? [] : [`from ${enteredBy}`]),
    ...shown,
    ...(passed.length > shown.length ? [`and ${passed.length - shown.length} more`] : []),
    ...(leftBy === undefined ? [] : [`to ${leftBy}`]),
  ]
  return all.map(clean)
}

// What the probe means for the explanation.

/** Stations of packets, which a probe may pass. The others decide before there is one. */
const ON_WAY: readonly Station[] = ['balance', 'node', 'gateway', 'link', 'far-gateway', 'far-node', 'far-pod']

/** The explanation together with what became of the packets. What was observed counts more than what was computed. */
export function withProbe(path: PathExplanation, probe: ProbeDocument): PathExplanation {
  const isOneWay = path.ways.length <= 1 && path.waysLeftOut === 0
  const outcome = joined(path.outcome, probe, isOneWay)
  const at = probe.end === undefined ? undefined : stepOf(path.steps, probe)
  const isMade = outcome === 'UNREACHABLE' && path.outcome !== 'UNREACHABLE'
  const steps = path.steps.map((step) => marked(step, probe, { at, fails: isMade }))
  const end = probe.end === undefined ? {} : { end: { ...probe.end, ...(at === undefined ? {} : { seq: at.seq }) } }
  const { failing: before, ...rest } = path
  const failing = outcome !== 'UNREACHABLE' ? undefined : isMade && at !== undefined ? failingAt(steps, at.seq) : before
  const [way, ...more] = path.ways
  const oneWay = way === undefined || !isOneWay ? path.ways : [{ ...wayOf(way, outcome, failing) }, ...more]
  return {
    ...rest,
    ...{ outcome, steps, ways: oneWay },
    message: outcome === path.outcome ? path.message : clean(joinedMessage(path, probe, outcome)),
    ...(failing === undefined ? {} : { failing }),
    probe: { ...probe, ...end },
  }
}

function wayOf(
  { failing: _before, ...way }: PathExplanation['ways'][number],
  outcome: Outcome,
  failing: PathExplanation['failing'],
): PathExplanation['ways'][number] {
  return { ...way, outcome, ...(failing === undefined ? {} : { failing }) }
}

function joined(facts: Outcome, { outcome, isStandIn }: ProbeDocument, isOneWay: boolean): Outcome {
  switch (outcome) {
    case 'REACHABLE':
      if (facts === 'UNREACHABLE') return 'AMBIGUOUS'
      return facts === 'UNDETERMINED' && isOneWay && !isStandIn ? 'REACHABLE' : facts
    case 'UNREACHABLE':
      return facts === 'UNREACHABLE' || isOneWay ? 'UNREACHABLE' : 'AMBIGUOUS'
    case 'AMBIGUOUS':
    case 'UNDETERMINED':
      return facts === 'REACHABLE' ? 'UNDETERMINED' : facts
  }
}

function joinedMessage(path: PathExplanation, probe: ProbeDocument, outcome: Outcome): string {
  if (outcome === 'UNREACHABLE') return `packets of the probe end: ${probe.message}`
  if (probe.outcome === 'REACHABLE')
    return `a packet of the probe passed there and back${path.outcome === 'UNREACHABLE' ? `, although ${path.message}` : ''}`
  return `${path.message}; the probe: ${probe.message}`
}

/** The step at which the packets end: the nearest one before it if the facts have none there. */
function stepOf(steps: readonly PathStep[], { end, cluster }: ProbeDocument): PathStep | undefined {
  if (end === undefined) return undefined
  const ofWay = steps.filter(({ way, direction }) => {
    return direction === end.direction && (way === undefined || cluster === undefined || way === cluster)
  })
  const exact = ofWay.find(({ station }) => station === end.station)
  if (exact !== undefined) return exact
  const rank = ON_WAY.indexOf(end.station)
  const isBefore = ({ station }: PathStep): boolean => ON_WAY.indexOf(station) <= rank
  return (end.direction === 'return' ? ofWay.find(isBefore) : ofWay.findLast(isBefore)) ?? steps.at(-1)
}

const OBSERVED = { evidence: 'observed', source: 'the probe', ageSeconds: 0 } as const

function marked(
  step: PathStep,
  { end, result, cluster, outcome, places, isStandIn }: ProbeDocument,
  { at, fails }: { readonly at: PathStep | undefined; readonly fails: boolean },
): PathStep {
  if (!ON_WAY.includes(step.station) && step !== at) return step
  if (step.way !== undefined && cluster !== undefined && step.way !== cluster) return step
  if (result === 'answered' && outcome === 'REACHABLE') {
    // What is unknown of the caller stays so.
    if (step.decision !== 'unknown' || isStandIn) return { ...step, probe: 'passed' }
    const { reason: _unknown, ...rest } = step
    const message = 'a packet of the probe passed, there and back'
    return { ...rest, ...OBSERVED, decision: 'passes', message, probe: 'passed' }
  }
  if (end === undefined || at === undefined) return step
  if (step === at) {
    const said = { ...step, probe: 'ended' as const }
    if (!fails) return said
    const { reason: _reason, ...others } = said
    const why = end.reason === undefined ? {} : { reason: end.reason }
    return { ...others, ...why, ...OBSERVED, decision: 'fails', message: end.message }
  }
  const isSeen = places.some(({ requests }) => requests > 0)
  return isSeen && step.seq < at.seq ? { ...step, probe: 'passed' } : step
}

function failingAt(steps: readonly PathStep[], seq: number): PathExplanation['failing'] {
  const step = steps.find((one) => one.seq === seq)
  if (step === undefined) return undefined
  const { station, message, reason } = step
  return { seq, station, message, ...(reason === undefined ? {} : { reason }) }
}

/** The document of a probe that could not begin. */
export function noProbe(
  why: string,
  { to, protocol }: { readonly to: string; readonly protocol: 'tcp' | 'udp' },
): ProbeDocument {
  const ends = { sourcePort: 0, destination: clean(to), port: 0 }
  const message = clean(`no packet was sent: ${why}`)
  return {
    ...{ by: 'no machine', isStandIn: false, protocol, ...ends, isCut: false },
    ...{ result: 'failed', outcome: 'UNDETERMINED', message, places: [] },
  }
}
