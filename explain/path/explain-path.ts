/** Explains one call from its caller to the called pod and back, station by station. Pure, and never throws. */
import type { ServiceShares } from '../../model/services/services.ts'
import { pairFindings } from '../explain.ts'
import type { Outcome, PathExplanation, PathStep, PathWay } from './document.ts'
import { MemberView, type PathSide } from './member-view.ts'
import {
  backHomeSteps,
  balanceStep,
  farGatewayStep,
  farNodeStep,
  farPodStep,
  gatewayStep,
  linkBackStep,
  linkStep,
  nodeStep,
  wayLinks,
} from './packet-stations.ts'
import { type CallPackets, callPackets } from './probe-packets.ts'
import { type PathFrom, type PathTo, fromText, toText } from './path-ends.ts'
import {
  accessStep,
  backendsOf,
  backendsStep,
  callerStep,
  hasLaterCause,
  nameStep,
  offeredFamilies,
  refusedStep,
  sharesOf,
  sharesStep,
  whyNotImported,
} from './service-stations.ts'
import { type StepDraft, boundedStep, clean } from './station.ts'
import {
  type Trip,
  type Way,
  type WrongQuestion,
  callerOf,
  callingBy,
  familiesOf,
  familyOfCall,
  isOwn,
  isSameAddress,
  ownerOf,
} from './trip.ts'

/** All ways are explained. Of more than these, the document has those that end before those that arrive. */
const MOST_WAYS = 4
const MOST_ASKED = 20
const MOST_NOT_ASKED = 10

export interface PathQuestion {
  readonly from: PathFrom
  readonly to: PathTo
}

export interface PathSides {
  /** The member of the caller. */
  readonly here: PathSide
  /** Other members that were asked, in any order. */
  readonly far?: readonly PathSide[]
}

/** A question about something that is not there gives a WrongQuestion. */
export function explainPath(question: PathQuestion, sides: PathSides): PathExplanation | WrongQuestion {
  const found = explainCall(question, sides)
  return 'wrong' in found ? found : found.path
}

/** The explanation, with the packets that a probe of the call has. */
export interface ExplainedCall {
  readonly path: PathExplanation
  /** Undefined if the called address is not known. */
  readonly packets?: CallPackets
  readonly protocol: 'tcp' | 'udp'
}

/** As explainPath(). */
export function explainCall(question: PathQuestion, sides: PathSides): ExplainedCall | WrongQuestion {
  const here = new MemberView(sides.here, false)
  const asked = (sides.far ?? []).map((side) => ({ title: side.title, view: new MemberView(side, true) }))
  for (const { title, view } of asked) {
    const wrong = guarded(() => wrongSide(here, view, title), undefined)
    if (wrong !== undefined) return wrong
  }
  const far = new Map(asked.map(({ view }) => [view.self, view]))
  const { protocol } = question.to
  for (const view of far.values()) {
    for (const finding of guarded(() => pairFindings(here.world, view.world), [])) here.add(finding)
  }
  try {
    const caller = callerOf(question.from, here)
    if ('wrong' in caller) return caller
    const trip = tripOf(question, { here, far, caller })
    if ('wrong' in trip) return trip
    const found = answered(trip)
    const packets = guarded(() => callPackets(trip, ways(found)), undefined)
    const path = documentOf(question, { here, asked }, found)
    return { path, protocol, ...(packets === undefined ? {} : { packets }) }
  } catch (error) {
    // An address in the facts that no parser takes ends here: what it is part of is not known.
    return { path: documentOf(question, { here, asked }, { common: [failedStep(here, error)], ways: [] }), protocol }
  }
}

function ways(found: Found): readonly Way[] {
  return found.ways.map(({ way }) => way)
}

interface AskedMember {
  /** The option that named the member. */
  readonly title: string | undefined
  readonly view: MemberView
}

/** A member that was asked as the called side, and cannot be. */
function wrongSide(here: MemberView, view: MemberView, title: string | undefined): WrongQuestion | undefined {
  const name = title === undefined ? '' : `${title}: `
  const hint = 'name the member that is called; see: sealane show clusters'
  const own = here.list('Membership')?.[0]?.spec
  const its = view.list('Membership')
  if (its === undefined || own === undefined) return undefined
  const [membership] = its
  if (membership === undefined) return { wrong: `${name}has not joined a clusterset`, hint }
  const { clusterset } = membership.spec
  if (view.self === here.self) return { wrong: `${name}is ${clean(view.self)}, where the caller is`, hint }
  const isKnown =
    here.seen('Cluster') === undefined || here.cluster(view.self) !== undefined || here.world.notLinked.has(view.self)
  if (isKnown && clusterset === own.clusterset) return undefined
  return { wrong: `${name}${clean(view.self)} is no member of clusterset ${clean(own.clusterset)}`, hint }
}

function guarded<T>(work: () => T, otherwise: T): T {
  try {
    return work()
  } catch {
    return otherwise
  }
}

type Ends = Pick<Trip, 'here' | 'far' | 'caller'>

function tripOf({ to }: PathQuestion, ends: Ends): Trip | WrongQuestion {
  const { here } = ends
  const imports = here.seen('ServiceImport') ?? []
  if (to.what === 'service') {
    const imported = imports.find(
      ({ object: { metadata } }) => metadata.namespace === to.namespace && metadata.name === to.name,
    )
    const trip = { ...ends, to, service: { namespace: to.namespace, name: to.name }, imported }
    const called = byFamily(trip)
    const virtual = to.host === undefined ? virtualOf(imported?.object.spec.ips, called) : undefined
    return { ...called, virtual }
  }
  const imported = imports.find(({ object }) => object.spec.ips?.some((ip) => isSameAddress(ip, to.address)) === true)
  if (imported !== undefined) {
    const { namespace = '', name } = imported.object.metadata
    return byFamily({ ...ends, to, service: { namespace, name }, imported, virtual: to.address })
  }
  if (isOwn(to.address, here)) {
    const hint = 'name an address or a service of another cluster'
    return { wrong: `${to.address}: an address of this cluster, within which Sealane carries nothing`, hint }
  }
  if (here.seen('Cluster') !== undefined && ownerOf(to.address, here) === undefined) {
    const apart = [...ends.far.values()].find((view) => here.world.notLinked.has(view.self) && isOwn(to.address, view))
    if (apart !== undefined) {
      const why = `an address of ${clean(apart.self)}, with which the topology does not link this cluster`
      return { wrong: `${to.address}: ${why} (NotLinkedByTopology)`, hint: 'see at the broker: sealane topology show' }
    }
    const which = here.world.notLinked.size === 0 ? 'no member' : 'no member that this cluster links with'
    return { wrong: `${to.address}: ${which} has this address`, hint: 'see: sealane show clusters' }
  }
  return byFamily({ ...ends, to })
}

/** The trip by one address family, which both ends have. */
function byFamily(trip: Trip): Trip {
  const found = familyOfCall(trip.caller, offeredFamilies(trip))
  return { ...trip, ...found, caller: callingBy(trip.caller, found.family) }
}

/** The clusterset IP of the family of the call. */
function virtualOf(ips: readonly string[] | undefined, { family }: Trip): string | undefined {
  return ips?.find((ip) => family !== undefined && familiesOf([ip]).includes(family))
}

interface Found {
  readonly common: readonly StepDraft[]
  readonly ways: readonly { readonly way: Way; readonly steps: readonly StepDraft[] }[]
}

function answered(trip: Trip): Found {
  const { here, service, imported, to } = trip
  const common: StepDraft[] = []
  const take = (step: () => StepDraft | undefined): boolean => {
    const found = guardedStep(here, step)
    if (found !== undefined) common.push(found)
    return found?.decision === 'fails'
  }
  const end = (ways: Found['ways']): Found => ({ common, ways })
  if (take(() => callerStep(trip))) return end([])
  const why = service === undefined || imported !== undefined ? undefined : whyNotImported(trip, service)
  if (to.what === 'service' && take(() => nameStep(trip, why))) return end([])
  if (service !== undefined && imported === undefined) {
    if (why?.isRefusal === true) take(() => refusedStep(trip, why))
    return end([])
  }
  const shares = guarded(() => sharesOf(trip), undefined)
  if (service !== undefined && to.what === 'service' && to.host !== undefined) {
    return end([wayOf(trip, to.host.cluster, shares)])
  }
  if (service !== undefined) {
    if (shares === undefined) {
      common.push(failedStep(here, 'the shares of the clusters cannot be computed from these facts'))
      return end([])
    }
    if (take(() => sharesStep(trip, shares))) return end([])
    const called = shares.shares.filter(({ share }) => share > 0)
    // Of clusters without calls, those that a later station explains.
    const wanted = called.length > 0 ? called : shares.shares.filter(hasLaterCause)
    const sorted = [...wanted].sort((a, b) => b.share - a.share)
    if (sorted.length === 0) {
      take(() => backendsStep(trip, { cluster: '-', backends: [] }, shares))
      return end([])
    }
    return end(sorted.map(({ cluster, share }) => wayOf(trip, cluster, shares, share)))
  }
  const owner = to.what === 'address' ? ownerOf(to.address, here) : undefined
  if (owner === undefined) common.push(failedStep(here, 'the members could not be read'))
  return end(owner === undefined ? [] : [wayOf(trip, owner, undefined)])
}

/** The steps of one way, up to the first that fails. */
function wayOf(trip: Trip, cluster: string, shares: ServiceShares | undefined, share?: number): Found['ways'][number] {
  const { here } = trip
  const backends = guarded(() => backendsOf(trip, cluster), [])
  const way: Way = { cluster, backends, ...(share === undefined ? {} : { share }) }
  const isHere = cluster === here.self
  const links = guarded(() => wayLinks(trip, way), { gateways: undefined, links: [], up: [] })
  const stations: readonly (() => StepDraft | undefined | readonly StepDraft[])[] = [
    () => accessStep(trip, way),
    () => backendsStep(trip, way, shares),
    () => balanceStep(trip, way),
    ...(isHere
      ? []
      : [
          () => nodeStep(trip, way, links),
          () => gatewayStep(trip, way, links),
          () => linkStep(trip, way, links),
          () => farGatewayStep(trip, way),
          () => farNodeStep(trip, way, 'forward'),
        ]),
    () => farPodStep(trip, way),
    ...(isHere
      ? []
      : [
          () => farNodeStep(trip, way, 'return'),
          () => farGatewayStep(trip, way, 'return'),
          () => linkBackStep(trip, way, links),
          () => backHomeSteps(trip, way, links),
        ]),
  ]
  const steps: StepDraft[] = []
  for (const station of stations) {
    for (const step of [guardedSteps(here, station)].flat()) {
      steps.push({ ...step, way: cluster })
      if (step.decision === 'fails') return { way, steps }
    }
  }
  return { way, steps: endedAtEffect(steps, false) }
}

function isCause({ decision }: StepDraft): boolean {
  return decision === 'fails' || decision === 'unknown'
}

/** An effect whose cause no later step is counts as the end, and what follows it is left out. */
function endedAtEffect(steps: readonly StepDraft[], isCausedLater: boolean): readonly StepDraft[] {
  const at = steps.findIndex(
    ({ decision }, i) => decision === 'follows' && !isCausedLater && !steps.slice(i + 1).some(isCause),
  )
  return at < 0 ? steps : steps.slice(0, at + 1).map((step, i) => (i === at ? { ...step, decision: 'fails' } : step))
}

function guardedSteps(
  here: MemberView,
  station: () => StepDraft | undefined | readonly StepDraft[],
): readonly StepDraft[] {
  try {
    return [station() ?? []].flat()
  } catch (error) {
    return [failedStep(here, error)]
  }
}

function guardedStep(here: MemberView, step: () => StepDraft | undefined): StepDraft | undefined {
  return guardedSteps(here, step)[0]
}

/** A step that facts of this kind do not allow to decide: it is unknown, not wrong. */
function failedStep({ self, world }: MemberView, error: unknown): StepDraft {
  return {
    ...{ direction: 'forward', station: 'caller', cluster: self, component: 'this command', object: 'facts' },
    ...{ decision: 'unknown', reason: 'NotReadable', message: String(error) },
    ...{ evidence: 'computed', source: 'this command', ageSeconds: 0 },
    ...(world.target === '' ? {} : { notes: [world.target] }),
  }
}

function outcomeOf(steps: readonly Pick<StepDraft, 'decision'>[]): Outcome {
  const has = (decision: StepDraft['decision']): boolean => steps.some((step) => step.decision === decision)
  if (has('fails')) return 'UNREACHABLE'
  if (has('unknown')) return 'UNDETERMINED'
  return has('partly') ? 'AMBIGUOUS' : 'REACHABLE'
}

/** Some ways that pass and some that do not are ambiguous: it depends on the connection. */
function together(first: readonly Pick<StepDraft, 'decision'>[], ways: readonly Outcome[]): Outcome {
  const common = outcomeOf(first)
  // An effect before the ways part is one of all calls, and a way that ends is its cause.
  if (first.some(({ decision }) => decision === 'follows')) {
    return common === 'UNREACHABLE' || ways.includes('UNREACHABLE') ? 'UNREACHABLE' : 'UNDETERMINED'
  }
  if (common === 'UNREACHABLE' || (ways.length > 0 && ways.every((one) => one === 'UNREACHABLE'))) return 'UNREACHABLE'
  if (ways.includes('UNREACHABLE')) return 'AMBIGUOUS'
  const all = [common, ...ways]
  if (all.includes('UNDETERMINED')) return 'UNDETERMINED'
  return all.includes('AMBIGUOUS') ? 'AMBIGUOUS' : 'REACHABLE'
}

interface Members {
  readonly here: MemberView
  readonly asked: readonly AskedMember[]
}

function documentOf({ from, to }: PathQuestion, { here, asked }: Members, found: Found): PathExplanation {
  const common = endedAtEffect(
    found.common,
    found.ways.some((one) => one.steps.some(isCause)),
  )
  const isEnded = common.some(({ decision }) => decision === 'fails')
  const all = isEnded ? [] : found.ways
  const ways = shownWays(all)
  const steps: PathStep[] = []
  const add = (drafts: readonly StepDraft[]): PathStep[] => {
    const added = drafts.map((draft, i) => boundedStep(draft, steps.length + i + 1))
    steps.push(...added)
    return added
  }
  const first = add(common)
  const listed = ways.map(({ way, steps: drafts }): PathWay => {
    const own = add(drafts)
    const { cluster, share } = way
    const failing = failingOf(own)
    return {
      ...{ cluster: clean(cluster), outcome: outcomeOf(own) },
      ...(share === undefined ? {} : { share }),
      ...(failing === undefined ? {} : { failing }),
    }
  })
  const outcome = together(
    first,
    all.map((one) => outcomeOf(one.steps)),
  )
  const failing = outcome === 'UNREACHABLE' ? failingOf(steps) : undefined
  const worst = steps.find(({ decision }) => decision === WORST[outcome])
  // Of several ways, one may end whole, while no step of the others lets only some packets pass.
  const decisive = worst ?? (outcome === 'AMBIGUOUS' ? steps.find(({ decision }) => decision === 'fails') : undefined)
  return {
    format: 1,
    takenAt: clean(here.world.takenAt),
    ...{ from: fromText(from), to: toText(to), outcome },
    message: messageOf(outcome, decisive),
    ...(failing === undefined ? {} : { failing }),
    ...(decisive?.next === undefined ? {} : { next: decisive.next }),
    ...(decisive?.next === undefined || decisive.nextAt === undefined ? {} : { nextAt: decisive.nextAt }),
    ...{ ways: listed, waysLeftOut: all.length - ways.length, steps },
    asked: asked.slice(0, MOST_ASKED).map(({ title, view: { self } }) => ({
      ...(title === undefined ? {} : { option: clean(title) }),
      cluster: clean(self),
      isOnWay: steps.some(({ cluster }) => cluster === clean(self)),
    })),
    notAsked: notAsked(steps, here),
  }
}

/** The ways of the document, the largest share first. */
function shownWays(ways: Found['ways']): Found['ways'] {
  if (ways.length <= MOST_WAYS) return ways
  const rank = (way: Found['ways'][number]): number => BAD_FIRST.indexOf(outcomeOf(way.steps))
  const shown = new Set([...ways].sort((a, b) => rank(a) - rank(b)).slice(0, MOST_WAYS))
  return ways.filter((way) => shown.has(way))
}

const BAD_FIRST: readonly Outcome[] = ['UNREACHABLE', 'UNDETERMINED', 'AMBIGUOUS', 'REACHABLE']

const WORST = { REACHABLE: undefined, AMBIGUOUS: 'partly', UNDETERMINED: 'unknown', UNREACHABLE: 'fails' } as const

function failingOf(steps: readonly PathStep[]): NonNullable<PathExplanation['failing']> | undefined {
  const found = steps.find(({ decision }) => decision === 'fails')
  if (found === undefined) return undefined
  const { seq, station, reason, message } = found
  return { ...{ seq, station, message }, ...(reason === undefined ? {} : { reason }) }
}

function messageOf(outcome: Outcome, step: PathStep | undefined): string {
  if (outcome === 'REACHABLE') return 'all steps pass, there and back'
  if (step === undefined) return 'some ways pass and others end: it depends on the connection'
  const { seq, station, message, way, decision } = step
  if (outcome === 'AMBIGUOUS' && decision === 'fails')
    return `it depends on the connection: packets to ${way ?? ''} end at step ${seq}, ${station}: ${message}`
  const how = {
    AMBIGUOUS: 'some packets end',
    UNDETERMINED: 'what is known passes; it is not known',
    UNREACHABLE: 'packets end',
  }
  return `${how[outcome]} at step ${seq}, ${station}: ${message}`
}

function notAsked(steps: readonly PathStep[], { world }: MemberView): string[] {
  const unknown = steps.flatMap(({ decision, object, cluster, message }) =>
    decision === 'unknown' ? [`${object} (${cluster}): ${message}`] : [],
  )
  const questions = world.unanswered.map(({ what, message }) => clean(`${what}: ${message}`))
  return [...new Set([...unknown, ...questions].map(clean))].slice(0, MOST_NOT_ASKED)
}
