/** What `sealane join --expose` writes into a site file: one line, or nothing if more would change. */
import fc from 'fast-check'
import t from 'tap'
import { textExposing } from '../../../../kubeapi/files/user/edit-site-file.ts'
import { parseSiteFile } from '../../../../kubeapi/files/site-file.ts'

const HEAD = 'apiVersion: sealane.io/v1alpha1\nkind: Site\nmetadata: { name: milano }\n'
const POD = 'podCIDRs: [10.42.0.0/16]\n'

t.test('forms of a site file', async (t) => {
  const rows: readonly [title: string, before: string, after: string | undefined][] = [
    ['a block', `${HEAD}spec:\n  ${POD}`, `${HEAD}spec:\n  exposure: pods\n  ${POD}`],
    [
      'comments',
      `${HEAD}spec: # ours\n\n  # pods\n    ${POD}`,
      `${HEAD}spec: # ours\n\n  # pods\n    exposure: pods\n    ${POD}`,
    ],
    ['stated', `${HEAD}spec:\n  exposure: nothing # mine\n  ${POD}`, `${HEAD}spec:\n  exposure: pods # mine\n  ${POD}`],
    ['stated so', `${HEAD}spec:\n  ${POD}  exposure: "pods"\n`, `${HEAD}spec:\n  ${POD}  exposure: "pods"\n`],
    ['a word in a text', `${HEAD}spec:\n  description: |\n    exposure: none\n  ${POD}`, undefined],
    ['lines of Windows', `${HEAD}spec:\n  ${POD}`.replaceAll('\n', '\r\n'), undefined],
    [
      'in braces',
      `${HEAD}spec: { podCIDRs: [10.42.0.0/16] }\n`,
      `${HEAD}spec: { podCIDRs: [ 10.42.0.0/16 ], exposure: pods }\n`,
    ],
    ['quoted', `${HEAD}spec:\n  exposure: 'nothing'\n  ${POD}`, undefined],
  ]
  for (const [title, before, after] of rows) {
    const changed = textExposing('site.yaml', before, 'pods')
    if (after !== undefined) t.equal(changed, after, title)
    t.equal(parseSiteFile('site.yaml', changed ?? '').exposure, 'pods', title)
  }
  const wrong = [`${HEAD}spec:\n  exposure: later\n  ${POD}`, 'spec:\n', '', '{']
  for (const text of wrong) t.equal(textExposing('site.yaml', text, 'pods'), undefined, text)
})

t.test('whatever the text: nothing else changes, and it never throws', async (t) => {
  const line = fc.constantFrom(
    `  ${POD}`,
    '  labels: { a: b }\n',
    '  exposure: exports\n',
    '# x\n',
    '\n',
    '  description: |\n    exposure: a\n',
  )
  fc.assert(
    fc.property(fc.array(line, { maxLength: 6 }), (lines) => {
      const text = `${HEAD}spec:\n${lines.join('')}`
      const changed = textExposing('site.yaml', text, 'nothing')
      if (changed === undefined) return true
      const [before, after] = [parseSiteFile('site.yaml', text), parseSiteFile('site.yaml', changed)]
      return JSON.stringify({ ...before, exposure: 'nothing' }, keys) === JSON.stringify(after, keys)
    }),
    { numRuns: 60 },
  )
  t.pass()
})

/** The fields in one order. */
function keys(_key: string, value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)))
}
