/** How `sealane explain` reads at a terminal. Pure; its texts are printable already. */
import type { PathExplanation, PathStep, ProbeDocument } from '../../../explain/path/path.ts'
import { type Column, renderTable } from '../../context/context.ts'

/** 2 would be wrong usage elsewhere; here, as for `status`, a question that could not be put ends with 3. */
export const PATH_EXIT_CODES = { REACHABLE: 0, UNREACHABLE: 1, AMBIGUOUS: 2, UNDETERMINED: 3 } as const

const COLUMNS: readonly Column<PathStep>[] = [
  { title: 'STEP', cell: ({ seq }) => String(seq), align: 'right' },
  { title: 'STATION', cell: ({ direction, station }) => (direction === 'return' ? `${station} (back)` : station) },
  { title: 'CLUSTER', cell: ({ cluster }) => cluster },
  { title: 'NODE', cell: ({ node = '-' }) => node },
  { title: 'DECISION', cell: ({ decision }) => decision },
  { title: 'REASON', cell: ({ reason = '-' }) => reason },
  { title: 'MESSAGE', cell: (step) => step.message },
]

/** `wide` shows also the packets, notes and ages of steps that pass. */
export function pathText(path: PathExplanation, wide: boolean): string {
  const { outcome, from, to, message, steps, notAsked, next, nextAt, waysLeftOut, failing, ways, asked, probe } = path
  const code = failing?.reason === undefined ? '' : ` (${failing.reason})`
  const table = renderTable(COLUMNS, steps)
  const lines = [
    `${outcome}: ${from} to ${to}${code}`,
    message,
    '',
    table.trimEnd(),
    ...detailLines(steps, wide),
    ...(ways.length > 1 || waysLeftOut > 0 ? ['', ...wayLines(path)] : []),
    ...(probe === undefined ? [] : ['', ...probeLines(probe, wide)]),
    ...(asked.length === 0 ? [] : ['', ...asked.map(askedText)]),
    ...(notAsked.length === 0 ? [] : ['', 'could not be asked:', ...notAsked.map((one) => `  ${one}`)]),
    ...(next === undefined || outcome === 'REACHABLE'
      ? []
      : ['', `next${nextAt === undefined ? '' : ` (in ${nextAt})`}: ${next}`]),
  ]
  return `${lines.join('\n')}\n`
}

function askedText({ option, cluster, isOnWay }: PathExplanation['asked'][number]): string {
  const by = option === undefined ? '' : ` (${option})`
  return `asked: ${cluster}${by}${isOnWay ? '' : ', which is on no way of this call'}`
}

function detailLines(steps: readonly PathStep[], wide: boolean): readonly string[] {
  const lines = steps.flatMap((step) => {
    const { seq, decision, notes, source, ageSeconds, evidence, station } = step
    const shown = wide || decision !== 'passes' || station === 'shares' || station === 'backends'
    const packet = packetText(step)
    return [
      ...(packet === '' ? [] : [`  ${seq}: ${packet}`]),
      ...(shown ? notes.map((note) => `  ${seq}: ${note}`) : []),
      ...(wide ? [`  ${seq}: ${evidence}, ${source}, ${ageSeconds} s ago`] : []),
    ]
  })
  return lines.length === 0 ? [] : ['', ...lines]
}

/** A packet that a step rewrites. */
function packetText({ input, output }: PathStep): string {
  if (input === undefined || output === undefined) return ''
  const [before, after] = [tupleText(input), tupleText(output)]
  return before === after ? '' : `${before} becomes ${after}`
}

function tupleText({ protocol, source = '?', destination = '?', port }: NonNullable<PathStep['input']>): string {
  const bracketed = destination.includes(':') && port !== undefined ? `[${destination}]` : destination
  return `${protocol} ${source} > ${bracketed}${port === undefined ? '' : `:${port}`}`
}

function wayLines({ ways, waysLeftOut }: PathExplanation): readonly string[] {
  return [
    ...ways.map(({ cluster, share, outcome, failing }) => {
      const part = share === undefined ? '' : ` (${share / 100} %)`
      return `way to ${cluster}${part}: ${outcome}${failing === undefined ? '' : ` at step ${failing.seq}`}`
    }),
    ...(waysLeftOut === 0 ? [] : [`and ${waysLeftOut} more ways`]),
  ]
}

/** What became of the packets, and what each place saw. `wide` shows also the chains of packets that passed. */
function probeLines(probe: ProbeDocument, wide: boolean): readonly string[] {
  const { by, protocol, source, sourcePort, destination, port, result, message, ms, end, places } = probe
  const from = `${bracketed(source ?? '?')}:${sourcePort}`
  const time = ms === undefined ? '' : `, ${ms} ms`
  return [
    `probe: ${protocol} ${from} > ${bracketed(destination)}:${port}, sent by ${by}`,
    `  ${result}${time}: ${message}`,
    ...(end === undefined ? [] : [`  ends at ${endText(end)}`]),
    ...places.flatMap((place) => placeLines(place, wide || end !== undefined)),
  ]
}

function bracketed(address: string): string {
  return address.includes(':') ? `[${address}]` : address
}

function endText({
  seq,
  station,
  cluster,
  node,
  reason,
  isExact,
  direction,
}: NonNullable<ProbeDocument['end']>): string {
  const step = seq === undefined ? '' : `step ${seq}, `
  const back = direction === 'return' ? ' (back)' : ''
  const where = node === undefined ? cluster : `${cluster}, node ${node}`
  const code = reason === undefined ? '' : ` (${reason})`
  return `${step}${station}${back}: ${where}${code}${isExact ? '' : ', or later: what follows could not be asked'}`
}

function placeLines(place: ProbeDocument['places'][number], shown: boolean): readonly string[] {
  const { cluster, node, source, ageSeconds, requests, answers, passed, counters, notAsked } = place
  const name = `${cluster}${node === undefined ? '' : `, node ${node}`}`
  if (notAsked !== undefined) return [`  ${name} (${source}): not followed: ${notAsked}`]
  const age = ageSeconds === undefined ? '' : `, ${ageSeconds} s ago`
  return [
    `  ${name} (${source}${age}): ${requests} packets and ${answers} answers seen`,
    ...(shown && passed.length > 0 ? [`    ${passed.join(' > ')}`] : []),
    ...(shown ? counters.map((one) => `    ${one.name}: ${one.before} to ${one.after}`) : []),
  ]
}
