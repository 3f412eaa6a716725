import t from 'tap'
import {
  type OpenConnections,
  brokenConnectionsText,
  isWorthReporting,
  openConnectionsProblem,
  openConnectionsText,
} from '../../model/member-status.ts'
import { MAX_OPEN_CONNECTIONS } from '../../model/values/limits.ts'

/** The figure `12`, `12+` for at least 12, or `-` for unknown. */
function figure(text: string): OpenConnections | undefined {
  return text === '-' ? undefined : { count: parseInt(text, 10), atLeast: text.endsWith('+') }
}

t.test('when a figure is told anew', (t) => {
  const minute = 60_000
  const rows: [reported: string, now: string, ageMs: number, want: boolean][] = [
    ['-', '-', 60 * minute, false],
    ['-', '0', 0, true],
    ['3', '-', 0, true],
    ['0', '0', 60 * minute, false],
    ['0', '1', 0, true],
    ['1', '0', 0, true],
    ['3', '13', 0, false],
    ['3', '14', 0, true],
    ['3', '4', 9 * minute, false],
    ['3', '4', 10 * minute, true],
    ['1000', '1100', minute, false],
    ['1000', '1101', 0, true],
    ['1000', '899', 0, true],
    ['1000', '1000', 60 * minute, false],
    ['1000', '1000+', 0, true],
  ]
  for (const [reported, now, ageMs, want] of rows) {
    t.equal(isWorthReporting(figure(reported), figure(now), ageMs), want, `${reported}, now ${now}, after ${ageMs} ms`)
  }
  t.end()
})

t.test('figures that cannot be', (t) => {
  const rows: [count: unknown, atLeast: unknown, want: RegExp | undefined][] = [
    [0, false, undefined],
    [MAX_OPEN_CONNECTIONS, true, undefined],
    [MAX_OPEN_CONNECTIONS + 1, false, /^count 2147483648: expected a whole number from 0 to 2147483647$/],
    [-1, false, /^count -1: /],
    [0.5, false, /^count 0\.5: /],
    [Infinity, false, /^count Infinity: /],
    ['1', false, /^count 1: /],
    [undefined, false, /^count undefined: /],
    [1, undefined, /^atLeast: /],
  ]
  for (const [count, atLeast, want] of rows) {
    const found = openConnectionsProblem({ count, atLeast })
    if (want === undefined) t.equal(found, undefined)
    else t.match(found, want)
  }
  t.end()
})

t.test('in words', (t) => {
  const one: [text: string, want: string][] = [
    ['0', 'no open connections'],
    ['1', 'about 1 open connection'],
    ['12', 'about 12 open connections'],
    ['200000+', 'at least 200000 open connections'],
  ]
  for (const [text, want] of one) t.equal(openConnectionsText(figure(text)!), want)
  const rows: [members: string, want: string][] = [
    ['milano 12', 'About 12 open connections with pods of milano break'],
    ['milano -', 'Open connections with pods of milano break, how many is not known'],
    [
      'milano 12, paris 200000+, tokyo 0',
      'About 12 open connections with pods of milano, at least 200000 open connections with pods of paris ' +
        'and no open connections with pods of tokyo break',
    ],
    [
      'milano 12, paris -, tokyo -',
      'About 12 open connections with pods of milano break, and open connections with pods of paris and tokyo break, ' +
        'how many is not known',
    ],
  ]
  for (const [members, want] of rows) {
    const reported = members.split(', ').map((member) => {
      const [cluster = '', text = ''] = member.split(' ')
      const openConnections = figure(text)
      return openConnections === undefined ? { cluster } : { cluster, openConnections }
    })
    t.equal(brokenConnectionsText(reported, 'break'), want)
  }
  t.end()
})
