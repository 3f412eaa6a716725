/** The helper that runs a program as the user `nobody` works wherever the checkout lies. */
import { execFileSync, spawnSync } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { asNobody, cannotBeNobody } from '../support/as-nobody.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

t.test('reads below a folder that is closed, and writes nothing there', { skip: cannotBeNobody }, async (t) => {
  const closed = join(temporaryFolder(t), 'closed')
  mkdirSync(closed, { mode: 0o700 })
  const file = join(closed, 'file')
  writeFileSync(file, 'text', { mode: 0o600 })
  const [command, ...who] = asNobody([file])
  t.equal(execFileSync(command, [...who, 'cat', file], { encoding: 'utf8' }), 'text')
  t.equal(execFileSync(command, [...who, 'id', '-un'], { encoding: 'utf8' }), 'nobody\n')
  for (const [program, path] of [
    ['touch', file],
    ['mkdir', join(closed, 'new')],
  ] as const) {
    const { status, stderr } = spawnSync(command, [...who, program, path], { encoding: 'utf8' })
    t.match([status, stderr], [1, /Permission denied/], program)
  }
})

t.test('has no capability where it needs none', { skip: cannotBeNobody }, async (t) => {
  const [command, ...who] = asNobody(['/usr/bin/env'])
  const said = execFileSync(command, [...who, 'cat', '/proc/self/status'], { encoding: 'utf8' })
  t.match(said, /^CapEff:\s+0+$/m)
})
