/**
 * The failure table (scripts/documents/failures.ts) contains every code with which a check names a cause, and every
 * fault that the tests cause for real. docs/troubleshooting.md is generated from the table.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { ON_PATH } from '../../explain/path/reasons-on-path.ts'
import { type ReasonCode, knownReason } from '../../model/reasons/reasons.ts'
import { explainDocument, explainSchema } from '../../scripts/documents/explain-document.ts'
import { ALL_FAILURES } from '../../scripts/documents/failures.ts'
import { troubleshootingDocument } from '../../scripts/documents/troubleshooting-document.ts'
import { ALL_FAULTS } from '../netns/support/all-faults.ts'
import { ROOT, sourceFiles } from '../support/source-tree.ts'

const codes = new Set<string>(ALL_FAILURES.map(({ code }) => code))

t.test('each row has its own code and, if any, its own symptom', async (t) => {
  t.equal(codes.size, ALL_FAILURES.length)
  const symptoms = ALL_FAILURES.map(({ symptom }) => symptom).filter((symptom) => symptom !== '')
  t.equal(new Set(symptoms).size, symptoms.length)
  for (const symptom of symptoms) t.match(symptom, /^[A-Z].*[^.]$/, symptom)
})

t.test('every code that a check gives is in the table', async (t) => {
  const checks = sourceFiles(/\.ts$/, ['explain']).filter(({ path }) => path.startsWith('explain/checks/'))
  t.ok(checks.length > 10, 'there are checks to judge')
  const given = checks.flatMap(({ text }) =>
    [...text.matchAll(/\breason: '([A-Z][A-Za-z]+)'/g)].map(([, code]) => code),
  )
  const missing = new Set(given.filter((code) => knownReason(code) !== undefined && !codes.has(code ?? '')))
  t.same([...missing], [])
})

t.test('every fault that is made at sites is in the table', async (t) => {
  const faults = ALL_FAULTS
  t.ok(faults.length >= 40, `${faults.length} faults`)
  t.equal(new Set(faults.map(({ name }) => name)).size, faults.length, 'each has a name of its own')
  const found = new Set(faults.flatMap(({ found: at }) => Object.values(at).flat()))
  t.same(
    [...found].filter((code) => !codes.has(code)),
    [],
  )
})

t.test('where a call ends by a fault fits the list of codes on a way', async (t) => {
  for (const { name, found, ends } of ALL_FAULTS) {
    const { at } = ends
    const [station, code] = at ?? []
    if (station !== undefined && code !== undefined) t.ok(ON_PATH[code]?.at.includes(station), `${name}: ${code}`)
    const breaking = Object.values(found)
      .flat()
      .filter((one) => ON_PATH[one as ReasonCode]?.effect === 'breaks')
    if (at === undefined) t.same(breaking, [], `${name} ends no call`)
  }
})

t.test('docs/troubleshooting.md is written from it', async (t) => {
  const text = readFileSync(join(ROOT, 'docs/troubleshooting.md'), 'utf8')
  t.equal(troubleshootingDocument(text), text, 'npm run docs:troubleshooting')
})

t.test('docs/explain.md and its schema are written from the list of codes on a way', async (t) => {
  t.equal(readFileSync(join(ROOT, 'docs/explain.md'), 'utf8'), explainDocument(), 'npm run docs:explain')
  t.equal(readFileSync(join(ROOT, 'docs/schemas/explain.json'), 'utf8'), explainSchema(), 'npm run docs:explain')
})
