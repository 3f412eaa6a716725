/** How the report of a run of the published suite is evaluated. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { stringify } from 'yaml'
import { ROOT } from '../support/source-tree.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { validate, tableOf } from './conformance/report.ts'
import { suiteProgram } from './conformance/suite-program.ts'
import { UNDER_TRANSLATION } from './conformance/under-translation.ts'

interface Spec {
  readonly desc: string
  readonly passed: boolean
  readonly failed: boolean
  readonly skipped: boolean
  readonly message: string
}

const [EXCUSE = { id: '', spec: '', reason: '' }] = UNDER_TRANSLATION

function spec(desc: string, result: 'passed' | 'failed' | 'skipped' = 'passed', message = ''): Spec {
  return { desc, passed: result === 'passed', failed: result === 'failed', skipped: result === 'skipped', message }
}

/** A report in which all specs pass, except for the given ones. */
function report(...others: readonly Spec[]): string {
  const filled = (name: string, count: number): Spec[] => Array.from({ length: count }, (_, i) => spec(`${name} ${i}`))
  const optional = [...others, ...filled('optional', 13 - others.length)]
  return stringify({
    groups: [
      { name: 'Required', tests: filled('required', 14) },
      { name: 'Optional', tests: optional },
    ],
    suitefailure: '',
  })
}

t.test('every spec has to pass', async (t) => {
  const failed = spec('a', 'failed', ' - it did not')
  const excused = spec(EXCUSE.spec, 'failed')
  const nothing = ['0 Required specs are in the report, at least 14 are expected']
  const rows: readonly (readonly [says: string, text: string, excuses: typeof UNDER_TRANSLATION, wanted: string[]])[] =
    [
      ['all pass', report(), [], []],
      ['one fails', report(failed), [], ['failed: a (it did not)']],
      ['one is not conformant', report({ ...failed, failed: false }), [], ['failed: a (it did not)']],
      ['one is skipped', report(spec('b', 'skipped', 'one cluster')), [], ['skipped: b (one cluster)']],
      ['an excused one fails', report(excused), UNDER_TRANSLATION, []],
      ['an excused one fails where it has no excuse', report(excused), [], [`failed: ${EXCUSE.spec}`]],
      [
        'an excused one is skipped',
        report(spec(EXCUSE.spec, 'skipped')),
        UNDER_TRANSLATION,
        [`skipped: ${EXCUSE.spec}`],
      ],
      ['an excused one passes', report(spec(EXCUSE.spec)), UNDER_TRANSLATION, []],
      ['others fail beside it', report(excused, failed), UNDER_TRANSLATION, ['failed: a (it did not)']],
      ['no such spec', report(), UNDER_TRANSLATION, ['T25 has an excuse, and there is no such spec in the report']],
      ['an empty file', '', [], [...nothing, '0 Optional specs are in the report, at least 13 are expected']],
    ]
  for (const [says, text, excuses, wanted] of rows) t.same(validate(text, excuses).faults, wanted, says)
  const [first] = validate(stringify({ groups: [], suitefailure: 'no CRDs' })).faults
  t.equal(first, 'the suite did not start: no CRDs')
})

t.test('the table', async (t) => {
  const { rows } = validate(report(spec('a', 'failed', ' - it did not'), spec('b', 'skipped')))
  const table = tableOf(rows.filter(({ spec }) => /^(a|b|required 0)$/.test(spec)))
  t.equal(
    table,
    [
      'passed   Required  required 0',
      'failed   Optional  a',
      '                   it did not',
      'skipped  Optional  b',
      '1 of 3 passed, 1 failed, 1 skipped',
      '',
    ].join('\n'),
  )
})

t.test('what may fail between overlapping clusters stands in the limits', async (t) => {
  const limits = readFileSync(join(ROOT, 'docs', 'limits.md'), 'utf8')
  for (const { id } of UNDER_TRANSLATION) t.match(limits, new RegExp(`\\b${id}\\b`))
  const named = [...limits.matchAll(/\bT\d\d\b/g)].map(([id]) => id)
  t.same([...new Set(named)].sort(), UNDER_TRANSLATION.map(({ id }) => id).sort(), 'and nothing else does')
})

t.test('a folder that is no checkout of the suite is refused with a sentence', async (t) => {
  const directory = temporaryFolder(t)
  const checkout = join(directory, 'nowhere')
  await t.rejects(suiteProgram({ directory, checkout }), {
    message: `SEALANE_MCS_SUITE is ${checkout}, and there is no go.mod in it: expected a checkout of github.com/kubernetes-sigs/mcs-api`,
  })
})
