import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'

const root = join(import.meta.dirname, '../..')
const bin = join(root, 'node_modules/.bin')
const buf = join(bin, 'buf')

const skip = existsSync(buf) ? false : 'buf is not installed'

t.test('protocol/gen is what broker.proto says', { skip }, async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'sealane-proto-'))
  t.teardown(() => rm(folder, { recursive: true }))
  await promisify(execFile)(buf, ['generate', '--output', folder], {
    cwd: join(root, 'protocol'),
    env: { ...process.env, PATH: `${bin}:${process.env['PATH'] ?? ''}` },
  })
  const fresh = await readFile(join(folder, 'gen/broker.ts'), 'utf8')
  const committed = await readFile(join(root, 'protocol/gen/broker.ts'), 'utf8')
  t.ok(fresh === committed, 'run "npm run proto" and commit the result')
})
