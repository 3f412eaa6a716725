/** `sealane broker verify` and `migrate` on this machine, as users run them. */
import {
  copyFileSync,
  existsSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import t, { type Test } from 'tap'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { LoopbackBroker } from '../cli/loopback-broker.ts'
import { runCli, spawnCli } from '../cli/run-cli.ts'
import { SiteFolder } from '../cli/site-folder.ts'

t.setTimeout(120_000)

async function withMember(t: Test) {
  const broker = await LoopbackBroker.start(t)
  const site = new SiteFolder(t, 'milano')
  await runCli(['join', '--site', site.file, '--token', await broker.token()])
  const backup = join(temporaryFolder(t), 'broker.backup')
  await runCli(['broker', 'backup', '--state', broker.state, '--output', backup])
  return { broker, backup }
}

function edit(file: string, sql: string): void {
  const database = new DatabaseSync(file)
  database.exec(sql)
  database.close()
}

t.test('beside a running broker, of a backup, and what is wrong', async (t) => {
  const { broker, backup } = await withMember(t)
  const { state } = broker
  const verify = (...words: string[]) => runCli(['broker', 'verify', ...words])
  const good =
    /^no inconsistencies: clusterset demo, 1 members, 1 records, \d+ rows; revision \d+ of epoch [0-9a-f-]{36}\n$/
  t.match(await verify('--state', state), { code: 0, stdout: good, stderr: '' })
  const sum = createHash('sha256').update(readFileSync(backup)).digest('hex')
  t.match(await verify('--backup', backup), { code: 0, stdout: good })
  t.equal(createHash('sha256').update(readFileSync(backup)).digest('hex'), sum, 'not an octet of it has changed')
  t.match(JSON.parse((await verify('--backup', backup, '-o', 'json')).stdout), { found: 0, findings: [], members: 1 })
  await broker.stop()
  const entries = readdirSync(state).sort()
  const database = readFileSync(join(state, 'broker.db'))
  t.match(await spawnCli(['broker', 'verify', '--state', state]), { code: 0, stdout: good })
  t.strictSame(
    readdirSync(state)
      .sort()
      .filter((name) => !/-(wal|shm)$/.test(name)),
    entries,
  )
  t.ok(database.equals(readFileSync(join(state, 'broker.db'))), 'nor of the database')

  edit(
    join(state, 'broker.db'),
    "UPDATE entry SET value = replace(value, '\"index\":1', '\"index\":0') WHERE scope = 'member'",
  )
  rmSync(join(state, 'ca.key'))
  const bad = await verify('--state', state)
  t.equal(bad.code, 1)
  t.match(bad.stdout, /^REASON +WHERE +WHAT\n/)
  t.match(bad.stdout, /^StoreRowInvalid +member milano +index 0: expected 1 to 65535$/m)
  t.match(bad.stdout, /^StoreAuthorityInvalid +ca\.key +the file is missing$/m)
  t.match(
    bad.stderr,
    /^sealane: the state has 3 inconsistencies\n.*sealane broker verify --backup FILE\nreason: StateInconsistent\n$/,
  )
  t.match(await verify('--state', temporaryFolder(t)), {
    code: 1,
    stdout: '',
    stderr: /no broker state.*\n.*\nreason: StateAbsent/,
  })
})

t.test('files that are no whole backup of this release: one message, and nothing is written', async (t) => {
  const { backup } = await withMember(t)
  const folder = temporaryFolder(t)
  const file = join(folder, 'file')
  const state = join(folder, 'state')
  const cases: readonly (readonly [make: () => void, says: RegExp])[] = [
    [() => writeFileSync(file, ''), /expected a file that "sealane broker backup" has written/],
    [() => writeFileSync(file, 'nothing'), /file is not a database|is damaged|expected a file/],
    [() => writeFileSync(file, readFileSync(backup).subarray(0, 8192)), /is damaged/],
    [
      () => writeFileSync(file, Buffer.concat([readFileSync(backup), Buffer.alloc(4096)])),
      /is damaged \(it has \d+ bytes/,
    ],
    // The sparse file claims ten times the memory of this machine and takes no disk space.
    [() => truncateSync(file, 2 ** 40), /is damaged \(it has 1099511627776 bytes/],
    [() => edit(file, 'PRAGMA user_version = 99'), /is of a later release \(format 99, .*use the newer version/],
    [() => edit(file, 'PRAGMA application_id = 7'), /expected a file that "sealane broker backup" has written/],
    [() => edit(file, 'CREATE TRIGGER t AFTER UPDATE ON meta BEGIN DELETE FROM entry; END'), /it has a trigger "t"/],
    [() => edit(file, "UPDATE entry SET value = '{' WHERE scope = 'member'"), /member milano: the value is not JSON/],
    [
      () => edit(file, "UPDATE backup SET content = 'x' WHERE name = 'file:ca.key'"),
      /ca\.key: it contains no private key/,
    ],
    [() => flip(file), /is damaged|StoreHashDiffers|the value is not JSON|inconsistenc|database/],
  ]
  for (const [make, says] of cases) {
    copyFileSync(backup, file)
    make()
    const restored = await runCli(['broker', 'restore', file, '--state', state])
    t.equal(restored.code, 1)
    t.match(restored.stderr, says)
    t.equal(restored.stdout, '')
    const there = existsSync(state) ? readdirSync(state) : []
    t.strictSame(
      there.filter((name) => name !== 'broker.lock'),
      [],
      String(says),
    )
    t.equal((await runCli(['broker', 'verify', '--backup', file])).code, 1, `verify: ${String(says)}`)
  }
})

t.test('what is no file is refused at once', async (t) => {
  const folder = temporaryFolder(t)
  const pipe = join(folder, 'pipe')
  execFileSync('mkfifo', [pipe])
  writeFileSync(join(folder, 'noise'), Buffer.alloc(70_000, 0xa5))
  const rows = [
    [folder, /: expected a file that "sealane broker backup" has written, got a folder\nreason: StateForeign\n$/],
    [pipe, /: expected a file that "sealane broker backup" has written, got what is no file\nreason: StateForeign\n$/],
    ['/dev/zero', /got what is no file\n/],
    [join(folder, 'noise'), / is damaged \(file is not a database\): take another backup\nreason: StateDamaged\n$/],
  ] as const
  for (const [file, stderr] of rows) {
    // In a process of its own: one that waits for the other end of a pipe takes no signal, and would hold up the test.
    t.match(await spawnCli(['broker', 'verify', '--backup', file]), { code: 1, stdout: '', stderr })
    const state = join(folder, 'state')
    t.match(await spawnCli(['broker', 'restore', file, '--state', state]), { code: 1, stdout: '', stderr })
    t.notOk(existsSync(state), 'nothing was made')
  }
})

/** Overwrites some octets in the middle of each page. */
function flip(file: string): void {
  const bytes = readFileSync(file)
  for (let at = 4096 + 4000; at < bytes.length; at += 4096) bytes.fill(0xa5, at, at + 60)
  writeFileSync(file, bytes)
}

t.test('moved to another directory and back', async (t) => {
  const { broker } = await withMember(t)
  const { state } = broker
  const other = join(temporaryFolder(t), 'other')
  const migrate = (...words: string[]) => runCli(['broker', 'migrate', '--state', state, ...words])
  const there = ['--from', 'sqlite', '--to', `sqlite:${other}`]
  t.match(await migrate(...there), { code: 1, stderr: /is in use by another broker: stop it.*\nreason: StateLocked/ })
  await broker.stop()
  t.match(await migrate('--from', 'mysql', '--to', 'sqlite'), { code: 2, stderr: /--from "mysql": expected sqlite/ })
  t.match(await migrate('--from', 'sqlite'), { code: 2, stderr: /--to: expected the store/ })
  const moved = await migrate(...there)
  t.match(moved, { code: 0, stdout: /^moved: \d+ rows; 1 members are in sqlite:.*, epoch [0-9a-f-]{36}\n$/ })
  t.match(await migrate(...there), { code: 0, stdout: /^already moved; 1 members/ })
  t.equal(statSync(join(other, 'ca.key')).mode & 0o777, 0o600)
  t.notMatch(moved.stdout + moved.stderr, /PRIVATE KEY/)
  const refused = /broker\.db was moved to sqlite:.* at .*start the broker with that store; .*migrate/
  await t.rejects(broker.start(), { code: 'Moved', message: refused })
  t.match(await runCli(['token', 'create', '--state', state]), {
    code: 1,
    stderr: /was moved to .*\nreason: StateMoved/,
  })
  t.match(
    (await runCli(['broker', 'verify', '--state', other])).stdout,
    /^no inconsistencies: clusterset demo, 1 members/,
  )
  t.match(await migrate('--from', `sqlite:${other}`, '--to', 'sqlite'), { code: 0, stdout: /^moved: / })
  await broker.start()
  t.match(await broker.tokens((store) => store.members()), [{ id: 'milano' }])
  t.ok(
    readdirSync(state).some((name) => name.startsWith('before-migrate-')),
    'what made way is kept',
  )
  await broker.stop()
  await migrate(...there)
  t.match(await migrate('--from', 'sqlite', '--to', `sqlite:${other}`, '--cancel'), {
    code: 0,
    stdout: 'move canceled: start the broker with sqlite\n',
  })
  await broker.start()
})
