import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { SYSTEM_PACKAGES } from '../../scripts/system-packages.ts'
import { asNobody, cannotBeNobody } from '../support/as-nobody.ts'

const SCRIPT = join(import.meta.dirname, '..', '..', 'scripts', 'install-system-packages.ts')

/** Returns the module's answer in a process without root rights. */
function answerOfNobody(expression: string): string {
  const code = `import { installPackages } from ${JSON.stringify(SCRIPT)}\nconsole.log(${expression})`
  const who = cannotBeNobody === false ? asNobody([process.execPath, SCRIPT]) : []
  const args = [...who, process.execPath, '--input-type=module', '-e', code]
  const done = spawnSync('/usr/bin/env', args, { encoding: 'utf8' })
  // The test runner makes every process write a note to a folder that the user `nobody` cannot write to. The warnings
  // about this on standard error do not matter.
  return done.stdout.trim()
}

t.test('not root: the exact command', async (t) => {
  t.equal(
    answerOfNobody(`installPackages(['curl', 'nftables'])`),
    existsSync('/usr/bin/apt-get')
      ? 'missing system packages; run as root: apt-get update && apt-get install -y curl nftables'
      : 'missing system packages: curl nftables (Debian names); install them first',
  )
})

t.test('an unknown purpose is wrong usage', async (t) => {
  const done = spawnSync(process.execPath, [SCRIPT, 'everything'], { encoding: 'utf8' })
  t.equal(done.status, 2)
  t.equal(done.stderr, `usage: install-system-packages ${Object.keys(SYSTEM_PACKAGES).join('|')} …\n`)
})
