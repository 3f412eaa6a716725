/** The output of `npm run build`: every file loads, and the code from packages comes with its licence. */
import { execFile } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { compileProduct } from '../../scripts/compile-product.ts'
import { ROOT } from '../support/source-tree.ts'

/** The folder from which Node finds the packages that are not bundled, as it does from dist/. */
const PLACE = join(ROOT, 'node_modules', '.cache')

/** Prints each file that does not load, with the reason. */
const SCRIPT = `
const wrong = []
for (const file of process.argv.slice(1)) {
  await import(file).catch((error) => wrong.push(file + ': ' + error.message))
}
console.log(JSON.stringify(wrong))
process.exit()
`

t.test('the compiled copy', async (t) => {
  mkdirSync(PLACE, { recursive: true })
  const folder = mkdtempSync(join(PLACE, 'sealane-compiled-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  const { SEALANE_IMAGE: before } = process.env
  process.env['SEALANE_IMAGE'] = 'registry.example/sealane:2'
  t.ok(compileProduct(folder))
  if (before === undefined) delete process.env['SEALANE_IMAGE']
  else process.env['SEALANE_IMAGE'] = before
  const run = async (args: readonly string[]): Promise<string> => {
    const env = { PATH: process.env['PATH'], NODE_OPTIONS: '' }
    return (await promisify(execFile)(process.execPath, args, { env })).stdout
  }

  const chunks = readdirSync(join(folder, 'chunks')).map((name) => join(folder, 'chunks', name))
  t.ok(chunks.length > 100, `${chunks.length} files: what a command loads stays in files of its own`)
  const wrong = await run(['--input-type=module', '-e', SCRIPT, '--', ...chunks])
  t.strictSame(JSON.parse(wrong), [], 'each loads, also what only a rare action asks for')

  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string }
  t.equal(await run([join(folder, 'cli/main.js'), '--version']), `${version}\n`)
  const help = await run([join(folder, 'cli/main.js'), 'broker', 'deploy', '--help'])
  t.match(help, /"registry\.example\/sealane:2"/, 'it installs the image that it was built for')
  const licences = readFileSync(join(folder, 'third-party-licenses.txt'), 'utf8')
  for (const name of ['zod', '@grpc/grpc-js', '@kubernetes/client-node', 'commander', 'yaml', 'pino']) {
    t.match(licences, new RegExp(`^${name} \\d.*: (MIT|ISC|Apache-2.0)$`, 'm'), name)
  }
  t.match(licences, /Permission is hereby granted/)
})
