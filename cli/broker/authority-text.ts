/** The authorities of a clusterset, for people. Pure. */
import type { AuthorityFacts, AuthorityStatus } from '../../compose/parts/broker-authority.ts'
import { renderTable } from '../render-table.ts'

/** Members that the table has; all are in -o json. */
const MAX_ROWS = 50

/** Tables: the authorities, and during a rotation the members and what they are waited for. */
export function authorityText(status: AuthorityStatus): string {
  const { current, next, members, waitsFor } = status
  const rows: (readonly [string, AuthorityFacts])[] = [
    ['current', current],
    ...(next === undefined ? [] : [['next', next] as const]),
  ]
  const authorities = renderTable(
    [
      { title: 'AUTHORITY', cell: ([role]) => role },
      { title: 'FINGERPRINT', cell: ([, { fingerprint }]) => fingerprint.slice(0, 16) },
      { title: 'SIGNS', cell: ([, { signs }]) => (signs ? 'yes' : 'no') },
      { title: 'FROM', cell: ([, { notBefore }]) => notBefore },
      { title: 'UNTIL', cell: ([, { notAfter }]) => notAfter },
    ],
    rows,
  )
  if (next === undefined) return authorities
  const why = new Map(waitsFor.members.map((one) => [one.id, one.why]))
  const shown = [...members].sort((a, b) => Number(why.has(b.id)) - Number(why.has(a.id))).slice(0, MAX_ROWS)
  const table = renderTable(
    [
      { title: 'MEMBER', cell: ({ id }) => id },
      { title: 'KNOWS NEXT', cell: ({ knowsNext }) => (knowsNext ? 'yes' : 'no') },
      { title: 'USES', cell: ({ uses }) => uses },
      { title: 'LEARNS', cell: ({ follows }) => (follows ? 'at once' : 'when it renews') },
      { title: 'CERTIFICATE ENDS', cell: ({ certificateEnds }) => certificateEnds },
    ],
    shown,
  )
  const waits = waitsFor.members.slice(0, MAX_ROWS).map(({ id, why }) => `waits for ${id}: it ${why}\n`)
  const tokens = waitsFor.tokens.map((id) => `waits for token ${id}: it names the old authority alone\n`)
  const more = members.length > MAX_ROWS ? `and ${members.length - MAX_ROWS} more members: -o json has all\n` : ''
  return `${authorities}\n${shown.length === 0 ? '' : table}${more}${[...waits, ...tokens].join('')}`
}

/** What comes next, by itself or by a command. */
export function nextText({ phase, waitsFor }: AuthorityStatus): string {
  const isFree = waitsFor.members.length === 0 && waitsFor.tokens.length === 0
  switch (phase) {
    case 'steady':
      return 'nothing; "sealane broker ca rotate" begins a rotation'
    case 'announced':
      return isFree
        ? 'the running broker lets the next authority sign and serve'
        : 'members get the next authority; it signs and serves once nobody is waited for'
    case 'switched':
      return isFree
        ? '"sealane broker ca finish" removes the old authority; "sealane broker ca abort" goes back to it'
        : 'members get certificates of the next authority; then "sealane broker ca finish"'
    case 'withdrawn':
      return isFree
        ? 'the running broker removes the withdrawn authority'
        : 'members get certificates of the old authority; then the withdrawn one goes by itself'
  }
}
