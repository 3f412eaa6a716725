/** One station of a way: what it decides by itself, together with what `diagnose` finds about its objects. Pure. */
import { InvalidAddressError, parseAddressPort } from '../../model/addresses/addresses.ts'
import { fitText, isDnsLabel, printable } from '../../model/model.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import type { Finding } from '../facts/facts.ts'
import type { PacketTuple, PathStep } from './document.ts'
import { type MemberView, type Scope, rootOf } from './member-view.ts'

/** A step before it has its number. */
export type StepDraft = Omit<PathStep, 'seq' | 'notes'> & { readonly notes?: readonly string[] }

/** What all results of one station share. */
export type StepBase = Omit<StepDraft, 'decision' | 'message'>

/**
 * A command that people copy into a shell. Names of objects may be any text in a bundle: undefined if one of them is
 * neither made of DNS labels nor an address with a port.
 */
export function commandText(verb: string, ...names: readonly string[]): string | undefined {
  return names.every(isPlainName) ? ['sealane', verb, ...names].join(' ') : undefined
}

function isPlainName(text: string): boolean {
  if (text.split(/[./]/).every(isDnsLabel)) return true
  try {
    return parseAddressPort(text, 'name').port > 0
  } catch (error) {
    if (error instanceof InvalidAddressError) return false
    throw error
  }
}

const MAX_NOTES = 8
const MAX_TEXT = 400

/**
 * The step as it counts: findings about objects on the way end it, or say why it ends. What the station has observed to
 * pass is not overruled by findings.
 */
export function settled(draft: StepDraft, view: MemberView, scope: Scope): StepDraft {
  const found = view.findingsAt(draft.station, scope, draft.direction === 'return')
  const notes = [...(draft.notes ?? []), ...found.notes.map(noteText)]
  const causes = [...found.breaks, ...found.why]
  if (draft.decision === 'fails') return { ...draft, ...caused(draft, causes, view), notes }
  const isSeen = draft.station === 'link' && draft.decision === 'passes'
  if (isSeen || draft.decision === 'follows') return { ...draft, notes: [...notes, ...causes.map(noteText)] }
  if (found.breaks.length > 0 && isWhole(found.breaks, scope)) {
    return { ...draft, decision: 'fails', ...caused(draft, causes, view), notes }
  }
  const some = [...found.may, ...found.breaks]
  if (some.length === 0 || draft.decision === 'unknown') return { ...draft, notes: [...notes, ...some.map(noteText)] }
  return { ...draft, decision: 'partly', ...caused(draft, some, view), notes }
}

/** Whether the findings are about all nodes that may carry the packet. */
function isWhole(breaks: readonly Finding[], { nodes = [] }: Scope): boolean {
  const lost = new Set(breaks.flatMap(({ subject: { kind, name } }) => (ofNode(kind) ? [name] : [])))
  return breaks.some(({ subject: { kind } }) => !ofNode(kind)) || nodes.every((name) => lost.has(name))
}

function ofNode(kind: string): boolean {
  return kind === 'Node' || kind === 'Gateway' || kind === 'RouteAgent'
}

function caused(draft: StepDraft, findings: readonly Finding[], view: MemberView): Partial<StepDraft> {
  const root = rootOf(closest(findings), view.world.atSite)
  if (root === undefined) return {}
  const { kind, name, namespace } = root.subject
  const object = `${kind} ${namespace === undefined ? '' : `${namespace}/`}${name}`
  return {
    reason: root.reason,
    message: draft.decision === 'fails' && draft.station !== 'link' ? `${draft.message}: ${root.seen}` : root.seen,
    object,
    source: root.source,
    ageSeconds: view.ageOf(root.at),
  }
}

/** What stops links for certain, and is itself not seen by the links. */
const STOPS_LINKS: readonly ReasonCode[] = ['FirewallDrops', 'PortTaken', 'MemberEvicted']

/**
 * What both ends of a link show together is closer to the cause than what the links of one of them show, and a firewall
 * or a taken port that was found is the cause.
 */
function closest(findings: readonly Finding[]): readonly Finding[] {
  const compared = findings.filter(isOfBothEnds)
  if (compared.length === 0) return findings
  const stops = findings.filter(({ reason }) => STOPS_LINKS.includes(reason))
  return stops.length > 0 ? stops : compared
}

function isOfBothEnds({ subject: { kind, name } }: Finding): boolean {
  return kind === 'Link' && name.includes(' and ')
}

function noteText({ reason, seen }: Finding): string {
  return `${reason}: ${seen}`
}

/** Texts from outside become printable and short, and notes few. */
export function boundedStep(draft: StepDraft, seq: number): PathStep {
  const { notes = [], input, output, ...rest } = draft
  const texts = Object.fromEntries(
    Object.entries(rest).map(([field, value]) => [field, typeof value === 'string' ? clean(value) : value]),
  ) as unknown as Omit<StepDraft, 'notes'>
  const shown = [...new Set(notes)].map(clean)
  const left = shown.length - MAX_NOTES
  return {
    seq,
    ...texts,
    ...(input === undefined ? {} : { input: cleanTuple(input) }),
    ...(output === undefined ? {} : { output: cleanTuple(output) }),
    notes: left > 0 ? [...shown.slice(0, MAX_NOTES), `and ${left} more`] : shown,
  }
}

function cleanTuple({ source, destination, ...rest }: PacketTuple): PacketTuple {
  return {
    ...rest,
    ...(source === undefined ? {} : { source: clean(source) }),
    ...(destination === undefined ? {} : { destination: clean(destination) }),
  }
}

export function clean(text: string): string {
  return fitText(printable(text), MAX_TEXT)
}
