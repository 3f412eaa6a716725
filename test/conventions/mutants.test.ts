/**
 * `npm run test:mutants` makes the documented mutations, chooses the same ones in each run, and counts them correctly.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { chooseMutants } from '../mutants/choose-mutants.ts'
import { EQUIVALENT } from '../mutants/equivalent.ts'
import { applyMutant, describeMutant, makeMutants } from '../mutants/make-mutants.ts'
import { nearestTests } from '../mutants/nearest-tests.ts'
import { ROOMS, filesOf } from '../mutants/rooms.ts'
import { copyTree } from '../mutants/tree-copy.ts'
import { type Outcome, summary, tryMutant } from '../mutants/try-mutant.ts'
import { typeCheck } from '../mutants/type-check.ts'
import { ROOT } from '../support/source-tree.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

t.test('each kind of mistake', async (t) => {
  const rows: readonly (readonly [source: string, ...mutants: string[]])[] = [
    ['f(a < b, a >= b)', 'f(a <= b, a >= b)', 'f(a < b, a > b)', ';'],
    ['x = a === b && c', 'x = a !== b && c', 'x = a === b || c', ';'],
    ['const x = a + b - 1', 'const x = a - b - 1', 'const x = a + b + 1', 'const x = a + b - 2'],
    ['if (!a) b()', 'if (a) b()', 'if (!a) ;'],
    // The negation of this condition equals the changed operator, so only one mutant results.
    ['const x = a === b ? c : d', 'const x = a !== b ? c : d'],
    ['if (a) return', 'if (!(a)) return', ';'],
    ['if (a) { return } else { b() }', 'if (!(a)) { return } else { b() }', 'if (a) { return } else { ; }'],
    ['const x: true | 1 = true', 'const x: true | 1 = false'],
    ['const x = [0x10, 2n]', 'const x = [17, 2n]', 'const x = [0x10, 3n]'],
    ['const f = () => Math.min(a, b)', 'const f = () => Math.max(a, b)'],
    ['const f = () => [a]', 'const f = () => []'],
    ['const f = () => { return as.filter(b) }', 'const f = () => { return as }', 'const f = () => { return [] }'],
    ['type A = 1\nimport type { B } from "./b.ts"\nconst f = (): string[] => []'],
  ]
  for (const [source, ...want] of rows) {
    const made = makeMutants('a.ts', source).map((mutant) => applyMutant(source, mutant))
    t.same(made.toSorted(), want.toSorted(), source)
  }
})

t.test('a mutant says where it is and what it changes', async (t) => {
  const source = `\nconst x = ${'a'.repeat(70)} <\n  b\n`
  const [mutant] = makeMutants('a.ts', source)
  t.equal(mutant?.line, 2)
  t.equal(describeMutant(mutant!), `\`…${'a'.repeat(28)} < b\` -> \`…${'a'.repeat(28)} <= b\``)
})

t.test('the same sources and seed give the same mutants, of all rooms, and at most two of a file', async (t) => {
  const source = Array.from({ length: 9 }, (_, i) => `const x${i} = a > ${i}`).join('\n')
  const mutants = (file: string, text = source): ReturnType<typeof makeMutants> => makeMutants(file, text)
  const rooms = [[mutants('a/a.ts'), mutants('a/b.ts')], [mutants('b/a.ts')]]
  const choose = (seed: number, of = rooms): string[] =>
    chooseMutants(of, { seed, count: 5, accept: ({ was }) => was !== 'a > 3' }).map(({ file, was }) => `${file} ${was}`)
  const chosen = choose(1)
  t.same(choose(1), chosen)
  t.notSame(choose(2), chosen)
  const files = chosen.map((one) => one.split(' ')[0])
  t.match(files[0], /^a/)
  t.match(files[1], /^b/, 'rooms in turn')
  t.equal(new Set(files).size, 3, 'each file before one has its second')
  t.ok(files.every((file) => files.filter((one) => one === file).length <= 2))
  t.notOk(
    chosen.some((one) => one.endsWith('a > 3')),
    'what is not accepted is passed over',
  )
  const moved = [rooms[0]!, [mutants('b/a.ts', `const added = 1\n${source}`)]]
  const ofFile = (all: readonly string[]): string[] => all.filter((one) => one.startsWith('a/'))
  t.same(ofFile(choose(1, moved)), ofFile(chosen), 'a change of one file leaves the choice of others')
})

t.test('the files that are mutated exist, and so do the equivalent mutants', async (t) => {
  for (const room of ROOMS) t.ok(filesOf(room, ROOT).length > 3, room.name)
  for (const { file, was, becomes } of EQUIVALENT) {
    const made = makeMutants(file, readFileSync(join(ROOT, file), 'utf8'))
    t.ok(
      made.some((one) => one.was === was && one.becomes === becomes),
      `${file}: ${was} -> ${becomes}`,
    )
  }
})

/** Writes a small project in which `model/a.ts` has its own test, and another test is two imports away. */
function project(t: Parameters<typeof temporaryFolder>[0], files: Readonly<Record<string, string>>): string {
  const root = temporaryFolder(t)
  const all = {
    'tsconfig.json': '{"compilerOptions":{"strict":true,"noUnusedLocals":true,"types":[],"module":"nodenext"}}',
    'model/a.ts': 'export const over = (n: number): boolean => n > 3\n',
    'model/b.ts': "import { over } from './a.ts'\nexport const under = (n: number): boolean => !over(n)\n",
    'model/c.ts': "import type { over } from './a.ts'\nexport type Over = typeof over\n",
    'test/model/a.test.ts': "import { over } from '../../model/a.ts'\nif (!over(4)) process.exit(1)\n",
    'test/dns/b.test.ts':
      "import { under } from '../../model/b.ts'\nif (!under(3)) setInterval(() => undefined, 1e6)\n",
    'test/model/c.test.ts': "import '../../model/c.ts'\nprocess.exit(1)\n",
    ...files,
  }
  for (const [path, text] of Object.entries(all)) {
    mkdirSync(join(root, path, '..'), { recursive: true })
    writeFileSync(join(root, path), text)
  }
  return root
}

t.test('what does not type-check is no mutant', async (t) => {
  const root = project(t, {})
  const accept = typeCheck(root, ['model/a.ts'])
  t.ok(accept('model/a.ts', 'export const over = (n: number): boolean => n >= 3\n'))
  t.notOk(accept('model/a.ts', 'export const over = (n: number): boolean => n + 3\n'), 'types')
  t.notOk(accept('model/a.ts', 'export const over = (n: number): boolean => n >\n'), 'syntax')
  t.ok(accept('model/a.ts', 'const a = 1\nexport const over = (n: number): boolean => n > 3\n'), 'an unused name')
})

t.test('the nearest test comes first, and one that imports types alone is none', async (t) => {
  t.same(nearestTests(project(t, {}))('model/a.ts'), ['test/model/a.test.ts', 'test/dns/b.test.ts'])
})

t.test('a mutant is killed by a test that fails, or does not end, because of it', async (t) => {
  const root = project(t, { 'test/model/broken.test.ts': "import '../../model/a.ts'\nprocess.exit(1)\n" })
  const source = 'export const over = (n: number): boolean => n > 3\n'
  const mutants = makeMutants('model/a.ts', source)
  const boundary = mutants.find(({ kind }) => kind === 'boundary')!
  const number = mutants.find(({ kind }) => kind === 'number')!
  const tree = copyTree(root, join(temporaryFolder(t), 'patient'), 100)
  const hasty = copyTree(root, join(temporaryFolder(t), 'hasty'), 1)
  const { signal } = new AbortController()
  const attempt = async (mutant: typeof number, ...tests: string[]): Promise<string> => {
    const init = { tree, tests, most: 2, clean: new Map(), signal }
    const { fate, by, ran, broken } = await tryMutant(mutant, init)
    return [fate, by ?? '-', ran, ...broken].join(' ')
  }
  const [near, far, broken] = ['test/model/a.test.ts', 'test/dns/b.test.ts', 'test/model/broken.test.ts']
  t.equal(await attempt(number, near, far), `killed ${near} 1`)
  const late = {
    tree: hasty,
    tests: [far],
    most: 1,
    clean: new Map([[far, Promise.resolve('passed' as const)]]),
    signal,
  }
  t.match(await tryMutant(boundary, late), { fate: 'timed out', by: far, ran: 1 })
  t.equal(await attempt(boundary, near), 'survived - 1')
  t.equal(await attempt(boundary, broken, near, far), `survived - 2 ${broken}`, 'it fails anyway, and two may run')
  t.equal(tree.read('model/a.ts'), source, 'the copy is as it was')
  t.equal(readFileSync(join(root, 'model/a.ts'), 'utf8'), source)
})

t.test('nine of ten must be killed', async (t) => {
  const [mutant] = makeMutants('a.ts', 'f(1)')
  const one = (fate: Outcome['fate']): Outcome => {
    return { mutant: mutant!, fate, by: undefined, ran: 1, reaching: 1, seconds: 1, broken: [] }
  }
  const all = (killed: number, late: number, survived: number): Outcome[] => [
    ...Array.from({ length: killed }, () => one('killed')),
    ...Array.from({ length: late }, () => one('timed out')),
    ...Array.from({ length: survived }, () => one('survived')),
  ]
  t.match(summary(all(8, 1, 1), 0.9), { ok: true, text: /^9 killed, 1 survived of 10: 90\.0 %$/m })
  t.match(summary(all(17, 0, 2), 0.9), { ok: false, text: /^17 killed, 2 survived of 19: 89\.5 %, at least 90 %/m })
  t.equal(summary([], 0.9).ok, false)
})
