import { spawnSync } from 'node:child_process'
import { existsSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import t from 'tap'
import { SYSTEM_PACKAGES } from '../../scripts/system-packages.ts'

const SCRIPT = join(import.meta.dirname, '..', '..', 'scripts', 'install-system-packages.ts')
const NOBODY = 65_534

/** The module's answer in a process of somebody who is not root. */
function asNobody(expression: string): string {
  const code = `import { installPackages } from ${JSON.stringify(SCRIPT)}\nconsole.log(${expression})`
  const uid = process.getuid?.() === 0 ? { uid: NOBODY } : {}
  const done = spawnSync(process.execPath, ['--input-type=module', '-e', code], { encoding: 'utf8', ...uid })
  // The runner has every process write a note where nobody may not write: what it says about that is not ours.
  return done.stdout.trim()
}

function whyNot(): string | false {
  if (!existsSync('/usr/bin/apt-get')) return 'needs apt-get'
  for (let folder = import.meta.dirname; folder !== '/'; folder = dirname(folder)) {
    if ((statSync(folder).mode & 0o001) === 0) return `others may not enter ${folder}`
  }
  return false
}

t.test('not root: the exact command', { skip: whyNot() }, async (t) => {
  t.equal(
    asNobody(`installPackages(['curl', 'nftables'])`),
    'missing system packages; run as root: apt-get update && apt-get install -y curl nftables',
  )
})

t.test('an unknown purpose is wrong usage', async (t) => {
  const done = spawnSync(process.execPath, [SCRIPT, 'everything'], { encoding: 'utf8' })
  t.equal(done.status, 2)
  t.equal(done.stderr, `usage: install-system-packages ${Object.keys(SYSTEM_PACKAGES).join('|')}\n`)
})
