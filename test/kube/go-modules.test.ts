/** The Go programs of the test tree pass Go's own checks: gofmt, vet, and their own tests. */
import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import t from 'tap'
import { type GoRun, goVersion, runGo } from './support/build-programs.ts'

const TESTS = join(import.meta.dirname, '..')
// This module downloads what it tests, so only `npm run test:conformance` runs it.
const DOWNLOADS = ['kube/conformance']
/**
 * Programs of other projects, linked with a main of a hundred lines. Vet would read all of Kubernetes for them, which
 * takes five minutes of processor time; the compiler reads them, and the whole tier runs them.
 */
const LINKS = ['kube', 'kube/coredns', 'kube/network-policies', 'kube/render']
const noGo = goVersion() === undefined ? 'needs Go' : false

t.setTimeout(1_200_000)

const files = readdirSync(TESTS, { recursive: true, encoding: 'utf8' })
const modules = files
  .filter((path) => /(^|\/)go\.mod$/.test(path))
  .map((path) => join(TESTS, dirname(path)))
  .filter((folder) => !DOWNLOADS.includes(relative(TESTS, folder)))
  .sort()

t.test('the Go modules are found', async (t) => {
  const names = modules.map((folder) => relative(TESTS, folder))
  t.strictSame(names, ['kube', 'kube/coredns', 'kube/network-policies', 'kube/render', 'test-kubelet'])
})

t.test('what the modules share has one version, and is compiled once', async (t) => {
  const kube = versionsIn('kube')
  for (const name of ['kube/coredns', 'kube/network-policies', 'kube/render', 'test-kubelet']) {
    const replaced = [...readFileSync(join(TESTS, name, 'go.mod'), 'utf8').matchAll(/^\t(\S+) => \1 (\S+)$/gm)]
    t.ok(replaced.length > 4, `${name} replaces some`)
    for (const [, module = '', version] of replaced) t.equal(version, kube.get(module), `${name}: ${module}`)
    const rest = [...versionsIn(name)].filter(([module, version]) => kube.has(module) && kube.get(module) !== version)
    const linked = rest.filter(([module]) => LINKED_BY_KUBE.test(module))
    t.strictSame(linked, [], `${name} leaves none at another version`)
  }
})

/** The modules that both link. The rest of a go.mod is for tests of other modules, and is not compiled. */
const LINKED_BY_KUBE =
  /^(k8s\.io|golang\.org\/x\/(crypto|net|oauth2|sync|sys|term|text|time)$|sigs\.k8s\.io\/structured)/

/** From each module to its version, or to its replacement. */
function versionsIn(name: string): ReadonlyMap<string, string> {
  const text = readFileSync(join(TESTS, name, 'go.mod'), 'utf8')
  const required = [...text.matchAll(/^\t(\S+) (v\S+)/gm)].map(
    ([, module = '', version = '']) => [module, version] as const,
  )
  const replaced = [...text.matchAll(/^\t(\S+) => \S+ (v\S+)/gm)].map(
    ([, module = '', to = '']) => [module, to] as const,
  )
  return new Map([...required, ...replaced])
}

t.test('gofmt has nothing to change', { skip: noGo }, async (t) => {
  t.equal(execFileSync('gofmt', ['-l', TESTS], { encoding: 'utf8' }), '')
})

for (const folder of modules) {
  const name = relative(TESTS, folder)
  t.test(`the Go module ${name}`, { skip: noGo }, async (t) => {
    if (!LINKS.includes(name)) {
      const vetted = await runGo(folder, 'vet')
      t.strictSame(outcome(vetted), { code: 0, said: '' }, 'go vet has nothing to say')
    }
    // Vet has just run on its own.
    const tested = await runGo(folder, 'test', ['-vet=off'])
    t.strictSame(outcome(tested), { code: 0, said: '' }, tested.stdout)
    const passed = [...tested.stdout.matchAll(/^ok\s+\S+\/(\S+)/gm)].map(([, last = '']) => last)
    t.strictSame(passed.sort(), testedPackages(folder), 'every package that has tests has passed them')
  })
}

/** The messages without those about downloads, which Go prints the first time. */
function outcome({ code, stderr }: GoRun): { readonly code: number; readonly said: string } {
  return { code, said: stderr.replaceAll(/^go: downloading .*\n/gm, '') }
}

/** The names of the folders with Go tests; modules inside the module are left out. */
function testedPackages(folder: string, top = true): string[] {
  if (!top && existsSync(join(folder, 'go.mod'))) return []
  const entries = readdirSync(folder, { withFileTypes: true })
  const inside = entries.flatMap((one) => (one.isDirectory() ? testedPackages(join(folder, one.name), false) : []))
  const own = entries.some(({ name }) => name.endsWith('_test.go')) ? [folder.split('/').at(-1) ?? ''] : []
  return [...own, ...inside].sort()
}
