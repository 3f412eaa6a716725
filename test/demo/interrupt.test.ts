/** The endings that count as those of an interrupted demo, shown with small programs in place of the demos. */
import { spawnSync } from 'node:child_process'
import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { ROOT } from '../support/source-tree.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const GOES_ON = 'setInterval(() => undefined, 1000)'
const SAYS = "process.stderr.write('begins\\n')"
const report = (failure: string, checks: readonly object[] = []): string =>
  `process.stdout.write(${JSON.stringify(`${JSON.stringify({ ok: false, checks, failure })}\n`)})`
const atCtrlC = (what: string): string => `process.on('SIGINT', () => { ${what} }); ${GOES_ON}; ${SAYS}`

/** Runs interrupt.ts on this program. */
function interrupted(t: Test, program: string, seconds = '0'): { status: number | null; stderr: string } {
  const file = join(temporaryFolder(t), 'demo.mjs')
  writeFileSync(file, program)
  const args = ['--disable-warning=ExperimentalWarning', join(ROOT, 'test/demo/interrupt.ts'), seconds, file]
  const env = { ...process.env, SEALANE_GONE_SECONDS: '0.5' }
  const { status, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8', env })
  return { status, stderr }
}

t.test('a demo that says by what it was stopped, and leaves nothing', async (t) => {
  t.strictSame(interrupted(t, atCtrlC(`${report('stopped by SIGINT')}; process.exit(130)`)), { status: 0, stderr: '' })
})

const WRONG: Readonly<Record<string, readonly [program: string, says: RegExp, seconds?: string]>> = {
  'it crashes': [
    atCtrlC("throw new Error('a fault')"),
    /^it ended by exit code 1, expected exit code 130\n[^]*a fault/,
  ],
  'it crashes before': [`${SAYS}; throw new Error('early')`, /^it ended by exit code 1,[^]*early/, '60'],
  'it dies of the signal': [`${SAYS}; ${GOES_ON}`, /^it ended by SIGINT, expected exit code 130\n/],
  'it ends by itself': [SAYS, /^it ended by itself\n/, '60'],
  'it reports nothing': [
    atCtrlC('process.exit(130)'),
    /^its report says "", expected one that says "stopped by SIGINT"/,
  ],
  'it reports something else': [atCtrlC(`${report('no lane')}; process.exit(130)`), /^its report says "no lane"/],
  'a check had failed': [
    atCtrlC(`${report('stopped by SIGINT', [{ name: 'a call', ok: false }])}; process.exit(130)`),
    /^these failed before: a call\n/,
  ],
}
for (const [name, [program, says, seconds]] of Object.entries(WRONG)) {
  t.test(name, async (t) => {
    const { status, stderr } = interrupted(t, program, seconds)
    t.equal(status, 1)
    t.match(stderr, says)
  })
}

t.test('a folder and a process are left behind', async (t) => {
  const leaves = `
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { spawn } from 'node:child_process'
mkdtempSync(join(tmpdir(), 'sealane-demo-lab-'))
spawn('sleep', ['100'], { detached: true, stdio: 'ignore' })
${atCtrlC(`${report('stopped by SIGINT')}; process.exit(130)`)}`
  const { status, stderr } = interrupted(t, leaves)
  t.equal(status, 1)
  const [, folder = '', pid = ''] = /^it left behind:\nfolder (\S+) .*\nprocess (\d+) sleep 100\n$/.exec(stderr) ?? []
  t.match(folder, /sealane-demo-lab-/, stderr)
  rmSync(folder, { recursive: true })
  process.kill(Number(pid), 'SIGKILL')
})
