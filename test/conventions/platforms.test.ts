/**
 * docs/platforms.md is what the detectors answer, and README.md and docs/operations.md call nothing supported, or
 * refused, that it does not show.
 */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { PACKETS, PLATFORMS, answersOf, platformsDocument } from '../../scripts/documents/platforms-document.ts'
import { ROOT } from '../support/source-tree.ts'

const ROWS = Object.values(PLATFORMS).flat()
const README = read('README.md')
const OPERATIONS = read('docs/operations.md')

function read(path: string): string {
  return readFileSync(join(ROOT, path), 'utf8')
}

t.test('docs/platforms.md is what npm run docs:platforms writes', async (t) => {
  t.equal(read('docs/platforms.md'), platformsDocument())
})

t.test('a platform of README.md is shown', async (t) => {
  for (const name of listed(cell(README, 'CNI'))) supported(t, 'README.md', name)
  for (const name of listed(cell(README, 'Distribution'))) supported(t, 'README.md', name)
  const refusing = /^\| +\| refused: (.*) \|$/m.exec(README)?.[1] ?? ''
  const refusedNames = listed(refusing)
  t.ok(refusedNames.length > 2, `README.md refuses ${refusedNames.length}`)
  for (const name of refusedNames) refused(t, 'README.md', name)
})

t.test('a platform of docs/operations.md is shown', async (t) => {
  let seen = 0
  for (const head of ['CNI', 'service proxy', 'distribution']) {
    for (const [names, text] of tableOf(OPERATIONS, head)) {
      for (const name of listed(names)) {
        seen += 1
        if (text.startsWith('refused')) refused(t, 'docs/operations.md', name)
        else supported(t, 'docs/operations.md', name)
      }
    }
  }
  t.ok(seen > 25, `${seen} platforms are looked up`)
})

t.test('what is not shown, not found out completely or refused is not supported', async (t) => {
  for (const name of ['Kube-OVN', 'Can', 'EKS Auto Mode', 'GKE Autopilot', 'Weave Net', 'Calico with eBPF or VPP'])
    t.notOk(isSupported(name), name)
  for (const name of ['Kube-OVN', 'Calico', 'Flannel']) t.notOk(isRefused(name), name)
  t.same(listed('GKE (not Autopilot), kubenet (AKS), a (eni, azure) and others (x)'), [
    'GKE',
    'kubenet (AKS)',
    'a (eni, azure)',
  ])
})

t.test('packets have passed where the document says so', async (t) => {
  for (const [name, path] of Object.entries(PACKETS)) t.ok(existsSync(join(ROOT, path)), `${name}: ${path}`)
})

function supported(t: Test, document: string, name: string): void {
  t.ok(isSupported(name), `${document} calls ${name} supported, and docs/platforms.md shows it`)
}

function refused(t: Test, document: string, name: string): void {
  t.ok(isRefused(name), `${document} says that ${name} is refused, and docs/platforms.md shows it`)
}

/** Every row of that name is found out completely and not refused; of a family, such as Calico, at least one is. */
function isSupported(name: string): boolean {
  const named = ROWS.filter((row) => row.name === name)
  const family = ROWS.filter((row) => row.name.startsWith(`${name} `))
  const isShown = ({ objects }: (typeof ROWS)[number]): boolean => {
    const { join: does, notFound } = answersOf(objects)
    return does !== 'refused' && notFound.length === 0
  }
  return named.length > 0 ? named.every(isShown) : family.some(isShown)
}

function isRefused(name: string): boolean {
  const named = ROWS.filter((row) => row.name === name)
  return named.length > 0 && named.every(({ objects }) => answersOf(objects).join === 'refused')
}

/** The second cell of the row that begins with a word. */
function cell(text: string, word: string): string {
  const found = new RegExp(`^\\| ${word} \\| (.*) \\|$`, 'm').exec(text)?.[1]
  if (found === undefined) throw new Error(`there is no row ${word}`)
  return found
}

/** The names in a cell, without links and what is excepted: `GKE (not Autopilot)`. */
function listed(text: string): readonly string[] {
  return text
    .replace(/;.*$/, '')
    .replace(/ and others.*$/, '')
    .replaceAll(/ \(not [^)]*\)/g, '')
    .split(/, (?![^(]*\))/)
    .filter((name) => name !== '')
}

/** The rows of the table whose first column has this heading, with two cells each. */
function tableOf(text: string, heading: string): readonly (readonly [names: string, text: string])[] {
  const table = new RegExp(`^\\| ${heading} \\| you do \\|\\n\\|---\\|---\\|\\n((?:\\|.*\\n)+)`, 'm').exec(text)?.[1]
  if (table === undefined) throw new Error(`docs/operations.md has no table of ${heading}`)
  return [...table.matchAll(/^\| (.*?) \| (.*) \|$/gm)].map(([, names = '', does = '']) => [names, does])
}
