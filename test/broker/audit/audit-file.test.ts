/** The audit log as a file: its name, its mode, and the broker's reaction when another process moves or locks it. */
import {
  appendFileSync,
  chmodSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { AuditFile } from '../../../broker/audit/audit-file.ts'
import { messageOf } from '../../support/failure.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

function opened(t: Test, change: { readonly maxBytes?: number; readonly keep?: number } = {}) {
  const folder = temporaryFolder(t)
  const file = join(folder, 'audit.log')
  const log = new AuditFile({ file, maxBytes: 0, keep: 3, ...change })
  t.teardown(() => log.close())
  const text = (name = 'audit.log'): string => readFileSync(join(folder, name), 'utf8')
  return { folder, file, log, text }
}
const mode = (file: string): number => statSync(file).mode & 0o777

t.test('it is appended to, and its owner alone reads it', async (t) => {
  const { file, log, text } = opened(t)
  const before = process.umask(0)
  t.teardown(() => process.umask(before))
  await log.write(['a\n', 'b\n'])
  t.equal(mode(file), 0o600)
  await log.close()
  chmodSync(file, 0o644)
  await log.write(['c\n'])
  t.equal(mode(file), 0o600, 'also when somebody let others in')
  t.equal(text(), 'a\nb\nc\n')
})

t.test('a file that would grow too large makes way, and the oldest goes', async (t) => {
  const { folder, log, text } = opened(t, { maxBytes: 10, keep: 2 })
  for (const line of ['1111\n', '2222\n', '3333\n', '4444\n', '5555\n', '6666\n', '7777\n']) await log.write([line])
  t.equal(text(), '7777\n')
  t.equal(text('audit.log.1'), '5555\n6666\n')
  t.equal(text('audit.log.2'), '3333\n4444\n')
  t.notOk(existsSync(join(folder, 'audit.log.3')))
  t.equal(mode(join(folder, 'audit.log.1')), 0o600)
  await log.write(['a line that is longer than a file may be\n', 'x\n', 'y\n'])
  t.equal(text('audit.log.1'), 'a line that is longer than a file may be\n', 'and is whole all the same')
  t.equal(text(), 'x\ny\n', 'one batch may go into several files')
})

const moves: readonly (readonly [
  say: string,
  move: (file: string, log: AuditFile) => Promise<void> | void,
  old: string,
])[] = [
  ['moved', (file) => renameSync(file, `${file}.old`), 'a\n'],
  [
    'moved, and made anew by somebody else',
    (file) => {
      renameSync(file, `${file}.old`)
      writeFileSync(file, '')
    },
    'a\n',
  ],
  [
    'moved, with a signal',
    async (file, log) => {
      renameSync(file, `${file}.old`)
      await log.reopen()
      if (!existsSync(file)) throw new Error('it is not there at once')
    },
    'a\n',
  ],
  [
    'copied, and cut to nothing',
    (file) => {
      writeFileSync(`${file}.old`, readFileSync(file))
      writeFileSync(file, '')
    },
    'a\n',
  ],
]
for (const [say, move, old] of moves) {
  t.test(`a file that was ${say}`, async (t) => {
    const { file, log, text } = opened(t)
    await log.write(['a\n'])
    await move(file, log)
    await log.write(['b\n'])
    t.equal(text('audit.log.old'), old)
    t.equal(text(), 'b\n')
    t.equal(mode(file), 0o600)
  })
}

t.test('a line that a killed broker left half is ended before the next', async (t) => {
  const { file, log, text } = opened(t)
  appendFileSync(file, 'whole\n{"half')
  await log.write(['next\n'])
  t.equal(text(), 'whole\n{"half\nnext\n')
})

const unusable: readonly (readonly [say: string, make: (file: string) => void, want: RegExp])[] = [
  ['a folder that is not there', (file) => rmSync(join(file, '..'), { recursive: true }), /ENOENT/],
  ['a folder', (file) => mkdirSync(file), /EISDIR/],
  ['a symbolic link', (file) => symlinkSync('/etc/hostname', file), /ELOOP/],
  ['a device', (file) => symlinkSync('/dev/full', file), /ELOOP/],
  ['a FIFO', (file) => void spawnSync('mkfifo', [file]), /expected a regular file, or - for standard output/],
]
for (const [say, make, want] of unusable) {
  t.test(`${say} is no audit log`, async (t) => {
    const { file, log } = opened(t)
    make(file)
    const said = await messageOf(log.write(['a\n']))
    t.match(said, want)
    t.ok(said.startsWith(`${file}: `), 'it is named')
    t.match(said, /check the folder, its permissions and the disk$/)
  })
}

t.test('it is written again once it can be', async (t) => {
  const { folder, log, text } = opened(t)
  await log.write(['a\n'])
  rmSync(folder, { recursive: true })
  await t.rejects(log.write(['b\n']))
  mkdirSync(folder)
  await log.write(['b\n'])
  t.equal(text(), 'b\n')
})
