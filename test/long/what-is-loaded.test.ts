/** The cost of a start depends on the loaded packages, so each command and each part loads only those that it needs. */
import { execFile } from 'node:child_process'
import { copyFileSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { copyWithDirectImports } from '../../scripts/direct-imports.ts'
import { COMPILED } from '../cli/run-cli.ts'

const ROOT = join(import.meta.dirname, '../..')

/**
 * Loads the modules one after another, and prints the packages that they loaded. The list contains Node's own fetch if
 * it was loaded.
 */
const SCRIPT = `
import { registerHooks } from 'node:module'
const loaded = new Set()
registerHooks({
  load(url, context, next) {
    const name = /.*node_modules\\/((?:@[^/]+\\/)?[^/]+)/.exec(url)?.[1]
    if (name !== undefined) loaded.add(name)
    return next(url, context)
  },
})
for (const module of process.argv.slice(1)) await import(module)
if (process.moduleLoadList.some((name) => name.includes('undici/undici'))) loaded.add('undici')
console.log(JSON.stringify([...loaded].sort()))
`

/** A folder for sources with direct imports, as in the bundle. From here Node finds packages, and strips types. */
const PLACE = join(ROOT, '.tap')
mkdirSync(PLACE, { recursive: true })
const copy = mkdtempSync(join(PLACE, 'loaded-'))
copyFileSync(join(ROOT, 'package.json'), join(copy, 'package.json'))
t.teardown(() => rmSync(copy, { recursive: true, force: true }))

async function packagesOf(...modules: readonly string[]): Promise<string[]> {
  for (const module of modules) copyWithDirectImports(ROOT, module, copy)
  const files = modules.map((module) => join(copy, module))
  // The test runner adds itself to every Node that is started.
  const env = { PATH: process.env['PATH'], NODE_OPTIONS: '', ...COMPILED }
  const args = ['--input-type=module', '-e', SCRIPT, '--', ...files]
  const { stdout } = await promisify(execFile)(process.execPath, args, { env })
  return JSON.parse(stdout) as string[]
}

/** The gRPC client and the package that it depends on. */
const GRPC = ['@grpc/grpc-js', '@js-sdsl/ordered-map']

t.test('the tree of commands', async (t) => {
  t.same(await packagesOf('cli/program.ts'), ['commander', 'ipaddr.js'])
})

t.test('tokens and members of a broker that does not run are read without a server', async (t) => {
  const loaded = await packagesOf('cli/program.ts', 'cli/broker/reach-broker.ts', 'compose/broker/offline.ts')
  t.same(loaded, ['commander', 'ipaddr.js'])
})

t.test('those of a broker that runs, without what the broker itself needs', async (t) => {
  const loaded = await packagesOf('cli/program.ts', 'protocol/admin/admin-client.ts')
  t.same(loaded, [...GRPC, 'commander', 'ipaddr.js'])
})

t.test('a site', async (t) => {
  t.same(await packagesOf('cli/program.ts', 'cli/context/open-site.ts', 'cli/site/export.ts'), [
    'commander',
    'ipaddr.js',
    'yaml',
    'zod',
  ])
})

t.test('a broker on a cluster is asked in its pod, without what the broker itself needs', async (t) => {
  const loaded = await packagesOf('cli/program.ts', 'cli/context/with-admin.ts', 'cli/broker/pod-broker.ts')
  t.same(
    loaded.filter((name) => !['ws', 'yaml'].includes(name)),
    [...GRPC, '@kubernetes/client-node', 'commander', 'ipaddr.js'].sort(),
  )
})

/**
 * Packages that a part on a node must not load: gRPC, certificates and the API client. The second list holds large
 * packages that no part needs.
 */
const NOT_OF_A_NODE = ['@grpc/grpc-js', '@kubernetes/client-node', '@peculiar/x509', 'ws']
const OF_NOBODY = ['@opentelemetry/api', 'undici']

const WITHOUT: Readonly<Record<string, readonly string[]>> = {
  'compose/site/agent.ts': ['@kubernetes/client-node', 'dns2', 'netlink', 'ws'],
  'compose/site/dns.ts': [...NOT_OF_A_NODE, 'netlink'],
  'compose/site/gateway.ts': [...NOT_OF_A_NODE, 'dns2'],
  'compose/site/routeagent.ts': [...NOT_OF_A_NODE, 'dns2'],
}

t.test("a cluster: the driver brings neither Node's fetch nor a server", async (t) => {
  const loaded = await packagesOf('compose/site/kube-site.ts')
  t.ok(loaded.includes('@kubernetes/client-node'), 'the packages are seen')
  t.same(
    loaded.filter((name) => [...OF_NOBODY, '@grpc/grpc-js', 'netlink', 'ws'].includes(name)),
    [],
  )
})

for (const [module, others] of Object.entries(WITHOUT)) {
  t.test(`sealane up: ${module}`, async (t) => {
    const loaded = await packagesOf('cli/program.ts', 'cli/site/up.ts', module)
    t.ok(loaded.includes('pino'), 'the packages are seen')
    t.same(
      loaded.filter((name) => [...others, ...OF_NOBODY].includes(name)),
      [],
    )
  })
}
