/** The findings for a site whose state is on a full disk: the disk is named as the cause, and not the files on it. */
import { spawnSync } from 'node:child_process'
import { cpSync, existsSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { writeTokenFile } from '../../cli/broker/token.ts'
import { runCli } from '../cli/run-cli.ts'
import { siteWith } from '../cli/status/site-with.ts'
import { failure } from '../support/failure.ts'
import { netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const skip = netnsMissing() ?? false

/** A healthy site on a file system of its own that has room for about 400 files. */
async function siteOnDisk(t: Test): Promise<{ readonly file: string; readonly state: string }> {
  const site = await siteWith(t)
  const [state, before] = [site.path('state'), site.path('before')]
  cpSync(state, before, { recursive: true })
  mount(t, ['-t', 'tmpfs', '-o', 'nr_inodes=400', 'tmpfs', state])
  t.teardown(() => spawnSync('umount', ['--lazy', state]))
  cpSync(before, state, { recursive: true })
  // The command would make this folder again.
  rmSync(join(state, 'leases'), { recursive: true, force: true })
  return { file: site.file, state }
}

function mount(t: Test, words: readonly string[]): void {
  const { status, stderr } = spawnSync('mount', words, { encoding: 'utf8' })
  t.equal(status, 0, stderr)
}

/** Fills the disk until not one more file fits. */
function fill(state: string): void {
  for (let i = 0; i < 500; i += 1) {
    try {
      writeFileSync(join(state, `ballast-${i}`), '')
    } catch {
      return
    }
  }
  throw new Error('it took 500 files')
}

async function reasons(file: string): Promise<readonly string[]> {
  const { stdout } = await runCli(['status', '--site', file, '--ask', '127.0.0.1:1', '-o', 'json'])
  return (JSON.parse(stdout) as { problems: { reason: string }[] }).problems.map(({ reason }) => reason)
}

t.test('the disk of the state is full', { skip }, async (t) => {
  const { file, state } = await siteOnDisk(t)
  fill(state)
  const said = await reasons(file)
  t.ok(said.includes('DiskFull'), said.join())
  t.notOk(said.includes('NotReadable'), said.join())
})

t.test('the disk of the state takes no writes', { skip }, async (t) => {
  const { file, state } = await siteOnDisk(t)
  mount(t, ['-o', 'remount,ro', state])
  const said = await reasons(file)
  t.ok(said.includes('DiskReadOnly'), said.join())
  t.notOk(said.includes('NotReadable'), said.join())
})

t.test('a token that does not fit on the disk is named', { skip }, async (t) => {
  const folder = temporaryFolder(t)
  mount(t, ['-t', 'tmpfs', '-o', 'size=4096', 'tmpfs', folder])
  t.teardown(() => spawnSync('umount', ['--lazy', folder]))
  const file = join(folder, 'token')
  const make = (): Promise<{ readonly id: string; readonly text: string }> => {
    writeFileSync(join(folder, 'other'), 'x'.repeat(4096))
    return Promise.resolve({ id: '0123456789', text: 'a secret' })
  }
  const { message } = await failure(writeTokenFile(file, make))
  t.match(message, /^--out .*: ENOSPC.*: token 0123456789 was made, and is lost with the file$/)
  t.notMatch(message, /a secret/)
  t.notOk(existsSync(file))
})
