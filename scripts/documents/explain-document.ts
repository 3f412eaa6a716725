/** docs/explain.md: at which station of a call each code ends it, from the list that `sealane explain` follows. */
import { OUTCOMES, STATIONS, type Outcome, type Station, pathSchema } from '../../explain/path/document.ts'
import { type Effect, type OnPath, ON_PATH } from '../../explain/path/reasons-on-path.ts'
import { ALL_FAULTS } from '../../test/netns/support/all-faults.ts'
import type { CallEnd, Fault } from '../../test/netns/support/fault.ts'
import { PATH_EXIT_CODES } from '../../cli/status/path/path-text.ts'
import { listItem, paragraph } from './wrap-text.ts'

const STATION_TEXTS: Readonly<Record<Station, string>> = {
  caller: 'The pod, node or address that calls.',
  name: 'What DNS answers, and for how long.',
  shares: 'Which cluster gets which share of the calls, as `sealane show traffic`.',
  access: 'Whether the caller may, as `sealane access check`: egress here, offer and exposure there.',
  backends: 'The ready pods, and why others are left out.',
  balance: 'The node of the caller rewrites the clusterset IP to a pod.',
  node: 'The route of that node over the overlay to the gateways.',
  gateway: 'The own gateway gives the caller its global address.',
  link: 'The links that packets are spread over: cable, way, round trip, size, state.',
  'far-gateway': 'The far gateway gives the packet the own address of the pod.',
  'far-node': 'The node of the pod, and its route back.',
  'far-pod': 'The pod, and the NetworkPolicies there.',
}

const OUTCOME_TEXTS: Readonly<Record<Outcome, string>> = {
  REACHABLE: 'every step passes, there and back',
  AMBIGUOUS: 'some packets pass: of several clusters or gateways, some are cut off',
  UNDETERMINED: 'what is known passes, and something could not be asked',
  UNREACHABLE: 'the call ends at the step that `failing` names',
}

const EFFECT_TEXTS: Readonly<Record<Exclude<Effect, 'note'>, string>> = {
  breaks: 'Ends calls',
  why: 'Says why calls end',
  may: 'Ends some calls',
}

export function explainDocument(): string {
  const outcomes = OUTCOMES.map((one) =>
    listItem(`\`${one}\` (exit code ${PATH_EXIT_CODES[one]}): ${OUTCOME_TEXTS[one]}`),
  )
  const stations = STATIONS.map((station) =>
    [`### ${station}`, STATION_TEXTS[station], ...codesAt(station)].join('\n\n'),
  )
  const parts = [
    ...[...HEAD, outcomes.join('\n')],
    ...['## Stations', paragraph(STATIONS_TEXT), ...stations],
    ...['## Faults made for real', paragraph(FAULTS_TEXT), faultTable(), paragraph(PASSES_TEXT), passingFaults()],
  ]
  return `${parts.join('\n\n')}\n`
}

const HEAD = [
  '# Explain one call',
  '<!-- Written by: npm run docs:explain -->',
  paragraph(
    '`sealane explain FROM TO` follows one call from station to station, there and back. It asks the functions that ' +
      'decide, and holds no model of its own. Run it where the caller is; `--to-context` or `--to-site` also asks the ' +
      'called side. Without it, steps that only that side knows are `unknown`. `-o json|yaml` follows ' +
      '[this schema](schemas/explain.json).',
  ),
] as const

const STATIONS_TEXT =
  'Each code of [troubleshooting](troubleshooting.md) that concerns a call, by the first station that it can be about. A ' +
  'finding counts if its object is on the way. Other codes end no call. Bold: tests make the fault on real sites, and ' +
  'the call ends there with this code.'

const FAULTS_TEXT =
  'Tests make these faults on plain sites. `sealane explain`, on the machine where the call starts, ends here. Without ' +
  'an outcome it is `UNREACHABLE`.'
const PASSES_TEXT = 'These end no call: `sealane explain` says `REACHABLE`, or what is in brackets.'

interface EndingFault extends Fault {
  readonly ends: CallEnd & { readonly at: NonNullable<CallEnd['at']> }
}

function isEnding(fault: Fault): fault is EndingFault {
  return fault.ends.at !== undefined
}

const ENDING = ALL_FAULTS.filter(isEnding)
const SEEN = new Set<string>(ENDING.map(({ ends }) => ends.at[1]))

function faultTable(): string {
  const rows = ENDING.map(({ name, ends: { at, outcome } }) => {
    const [station, code] = at
    return `| ${name} | ${station} \`${code}\`${outcome === undefined ? '' : ` (\`${outcome}\`)`} |`
  })
  return ['| Fault | Ends at |', '|---|---|', ...rows].join('\n')
}

function passingFaults(): string {
  return ALL_FAULTS.filter((fault) => !isEnding(fault))
    .map(({ name, ends }) => listItem(`${name}${arrivalText(ends)}`))
    .join('\n')
}

function arrivalText({ outcome }: CallEnd): string {
  return outcome === 'REACHABLE' ? '' : ` (\`${outcome ?? ''}\`)`
}

function codesAt(station: Station): readonly string[] {
  const rows = Object.entries(ON_PATH).filter(([, { at }]) => at[0] === station)
  const items = Object.entries(EFFECT_TEXTS).flatMap(([effect, text]) => {
    const codes = rows.filter(([, row]) => row.effect === effect).map(codeText)
    return codes.length === 0 ? [] : [listItem(`${text}: ${codes.join(', ')}`)]
  })
  return items.length === 0 ? [] : [items.join('\n')]
}

function codeText([code, { at, onReturn }]: readonly [string, OnPath]): string {
  const later = at.slice(1)
  const more = [
    ...(onReturn === true ? ['on the way back'] : []),
    ...(later.length > 0 ? [`also at ${later.join(', ')}`] : []),
  ]
  const name = SEEN.has(code) ? `**\`${code}\`**` : `\`${code}\``
  return `${name}${more.length === 0 ? '' : ` (${more.join('; ')})`}`
}

/** docs/schemas/explain.json. */
export function explainSchema(): string {
  return `${JSON.stringify(pathSchema(), undefined, 2)}\n`
}
