/** `sealane broker backup` and `restore` run as processes on this machine. */
import { existsSync, readFileSync, readdirSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { writeBackupFile } from '../../cli/broker/backup-file.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { messageOf } from '../support/failure.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { LoopbackBroker } from '../cli/loopback-broker.ts'
import { runCli, spawnCli } from '../cli/run-cli.ts'
import { SiteFolder } from '../cli/site-folder.ts'

t.setTimeout(60_000)

t.test('backup beside a running broker, restore into another folder and over a state', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const site = new SiteFolder(t, 'milano')
  await runCli(['join', '--site', site.file, '--token', await broker.token()])
  const folder = temporaryFolder(t)
  const file = join(folder, 'broker.backup')
  const backup = (...words: string[]) =>
    spawnCli(['broker', 'backup', '--state', broker.state, ...words], { cwd: folder })
  t.strictSame(await backup('--output', file), {
    code: 0,
    stdout: `${file}\n`,
    stderr: 'keep this file as secret as a private key: anyone with this file can let any cluster join\n',
  })
  t.equal(statSync(file).mode & 0o777, 0o600)
  t.match(await backup('--output', file), {
    code: 1,
    stderr: `sealane: --output ${file}: the file already exists\nchoose another name, or overwrite it with --force\n`,
  })
  t.equal((await backup('--output', file, '--force')).code, 0)
  t.match((await backup()).stdout, /^sealane-broker-\d{4}-\d\d-\d\dT\d{6}Z\.backup\n$/)
  t.match((await backup('--output', '-')).stdout, /^SQLite format 3/, 'through a pipe')
  t.match(await backup('--output', '/nowhere/x'), { code: 1, stderr: /^sealane: .*\/nowhere\// })
  t.equal(readdirSync(folder).length, 2, 'nothing half is left')

  const restore = (...words: string[]) => runCli(['broker', 'restore', file, ...words])
  const elsewhere = join(temporaryFolder(t), 'state')
  const mistyped = join(folder, 'brocker.backup')
  for (const at of [
    ['--state', elsewhere],
    ['--state', broker.state],
    ['--context', 'hub'],
  ]) {
    t.strictSame(await runCli(['broker', 'restore', mistyped, ...at]), {
      code: 1,
      stdout: '',
      stderr: `sealane: ${mistyped}: no such file\nexpected a file written by "sealane broker backup"\n`,
    })
  }
  t.notOk(existsSync(elsewhere), 'nothing was made')
  const there = await restore('--state', elsewhere)
  t.match(there, { code: 0, stdout: /^restored: the state of \S+Z, with 1 members\n$/ })
  t.match(
    there.stderr,
    /^Tokens in the backup are revoked.* A cluster that joined later comes back by itself.*\nThe backup does not contain later changes: /,
  )
  const listed = await runCli(['cluster', 'list', '--state', elsewhere])
  t.match(listed.stdout, /^milano +silent /m)
  t.match(await restore('--state', broker.state), {
    code: 1,
    stderr: /is in use by another broker: stop it, or choose/,
  })
  t.match(await restore('--state', broker.state, '--at-next-start', '--force'), {
    code: 0,
    stdout: 'backup staged: the broker restores it at its next start\n',
  })
  await broker.stop()
  await broker.start()
  t.notOk(existsSync(join(broker.state, 'restore.db')))
  t.match(await restore('--state', elsewhere), {
    code: 1,
    stderr: /has members: milano; to replace its state anyway, use --force/,
  })
  t.match((await restore('--state', elsewhere, '--force')).stderr, /^the previous state was saved in .*before-restore-/)
  t.match(await runCli(['broker', 'backup', '--state', folder, '--output', `${file}.2`]), {
    code: 1,
    stderr: /no broker state in .*\nfor a broker on a cluster: --context NAME\nreason: StateAbsent\n$/,
  })
})

t.test('what fails half way leaves no file', async (t) => {
  const folder = temporaryFolder(t)
  const file = join(folder, 'backup')
  const check = (): void => {
    throw new Error('not whole')
  }
  const write = (target: string): Promise<void> => {
    writeFileSync(target, 'half')
    return Promise.resolve()
  }
  t.equal(await messageOf(writeBackupFile({ file, force: true, write, check })), 'not whole')
  t.strictSame(readdirSync(folder), [])
})

t.test('what killed processes have left is removed with the next backup', async (t) => {
  const folder = temporaryFolder(t)
  const old = [`.sealane-broker-2026-01-01T000000Z.backup.${'a1'.repeat(6)}.part`, `.mine.${'b2'.repeat(6)}.part`]
  const others = [`.other.${'c3'.repeat(6)}.part`, '.mine.part', 'mine.a1a1a1a1a1a1.part']
  const running = `.mine.${'d4'.repeat(6)}.part`
  for (const name of [...old, ...others, running]) writeFileSync(join(folder, name), 'a key')
  const before = new Date(new SystemClock().now() - 2 * 3_600_000)
  for (const name of [...old, ...others]) utimesSync(join(folder, name), before, before)
  const write = (target: string): Promise<void> => {
    writeFileSync(target, 'whole')
    return Promise.resolve()
  }
  await writeBackupFile({ file: join(folder, 'mine'), force: false, write, check: () => undefined })
  t.same(readdirSync(folder).sort(), [...others, running, 'mine'].sort())
})

t.test('a file system without hard links', async (t) => {
  for (const code of ['EPERM', 'ENOTSUP', 'ENOSYS']) {
    const folder = temporaryFolder(t)
    const file = join(folder, 'backup')
    const put = (text: string, force = false): Promise<void> => {
      const write = (target: string): Promise<void> => {
        writeFileSync(target, text)
        return Promise.resolve()
      }
      const hardLink = (): Promise<void> =>
        Promise.reject(Object.assign(new Error('no hard links'), { code, syscall: 'link' }))
      return writeBackupFile({ file, force, write, check: () => undefined, hardLink })
    }
    await put('first')
    t.equal(statSync(file).mode & 0o777, 0o600)
    t.match(await messageOf(put('second')), 'the file already exists')
    t.equal(readFileSync(file, 'utf8'), 'first')
    await put('third', true)
    t.equal(readFileSync(file, 'utf8'), 'third')
    // Another process makes the file after the first look.
    const late = writeBackupFile({
      ...{ file: join(folder, 'late'), force: false, check: () => undefined },
      write: (target) => {
        writeFileSync(target, 'late')
        writeFileSync(join(folder, 'late'), 'of another')
        return Promise.resolve()
      },
      hardLink: () => Promise.reject(Object.assign(new Error('no hard links'), { code, syscall: 'link' })),
    })
    t.match(await messageOf(late), 'the file already exists')
    t.equal(readFileSync(join(folder, 'late'), 'utf8'), 'of another')
    t.same(readdirSync(folder).sort(), ['backup', 'late'], 'nothing half is left')
  }
})
