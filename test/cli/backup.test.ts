/** `sealane broker backup` and `restore` on this machine, as processes, and what goes through a pod's pipe. */
import { existsSync, readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { framed, writeBackupFile, writeUnframed } from '../../cli/broker/backup-file.ts'
import { messageOf } from '../support/failure.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { LoopbackBroker } from './loopback-broker.ts'
import { runCli, spawnCli } from './run-cli.ts'
import { SiteFolder } from './site-folder.ts'

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
    stderr: 'keep it as you keep a key: who has it can let any cluster in\n',
  })
  t.equal(statSync(file).mode & 0o777, 0o600)
  t.match(await backup('--output', file), {
    code: 1,
    stderr: `sealane: --output ${file}: there is a file of that name already\nname another one, or say --force\n`,
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
      stderr: `sealane: ${mistyped}: no such file\nname a file that sealane broker backup has written\n`,
    })
  }
  t.notOk(existsSync(elsewhere), 'nothing was made')
  const there = await restore('--state', elsewhere)
  t.match(there, { code: 0, stdout: /^the state is as it was at \S+Z, with 1 members\n$/ })
  t.match(
    there.stderr,
    /^tokens of that time are revoked.* Who joined later comes back by itself.*\nWhat no backup can know: who left or/,
  )
  const listed = await runCli(['cluster', 'list', '--state', elsewhere])
  t.match(listed.stdout, /^milano +silent /m)
  t.match(await restore('--state', broker.state), {
    code: 1,
    stderr: /is in use by another broker: stop it, or choose/,
  })
  t.match(await restore('--state', broker.state, '--at-next-start', '--force'), {
    code: 0,
    stdout: 'the broker takes it when it starts anew\n',
  })
  await broker.stop()
  await broker.start()
  t.notOk(existsSync(join(broker.state, 'restore.db')))
  t.match(await restore('--state', elsewhere), {
    code: 1,
    stderr: /has members: milano: what it knows goes, with --force/,
  })
  t.match((await restore('--state', elsewhere, '--force')).stderr, /^what was there before is in .*before-restore-/)
  t.match(await runCli(['broker', 'backup', '--state', folder, '--output', `${file}.2`]), {
    code: 1,
    stderr: /no broker state in .*\nfor a broker on a cluster: --context NAME\nreason: StateAbsent\n$/,
  })
})

t.test('through a pipe that does not end', async (t) => {
  const folder = temporaryFolder(t)
  const [from, to] = [join(folder, 'from'), join(folder, 'to')]
  for (const bytes of [0, 1, 24 * 1024, 100_001]) {
    const content = Buffer.from(Array.from({ length: bytes }, (_, i) => (i * 7) % 256))
    writeFileSync(from, content)
    async function* pipe(): AsyncGenerator<Buffer> {
      for await (const part of framed(from))
        for (let i = 0; i < part.length; i += 1000) yield part.subarray(i, i + 1000)
      yield Buffer.from('what comes after is not read\n')
    }
    await writeUnframed(pipe(), `${to}-${bytes}`)
    t.ok(readFileSync(`${to}-${bytes}`).equals(content), `${bytes} bytes`)
    t.equal(statSync(`${to}-${bytes}`).mode & 0o777, 0o600)
  }
  async function* cut(): AsyncGenerator<Buffer> {
    for await (const part of framed(from)) yield part.subarray(0, 500)
  }
  t.match(await messageOf(writeUnframed(cut(), `${to}-cut`)), /was cut short on its way: nothing was restored/)
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
