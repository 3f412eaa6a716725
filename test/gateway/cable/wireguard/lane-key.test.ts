/** The key file of a lane: how it is made, and the error for each kind of unusable file. */
import { chmodSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import {
  LaneKeyError,
  ensureLaneKey,
  ensureNextKey,
  nextKeyPath,
  promoteNextKey,
  readKey,
  removeOtherLaneKeys,
} from '../../../../gateway/cable/wireguard/lane-keys.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'

const KEY = Buffer.alloc(32, 7).toString('base64')

t.test('made on first start, kept afterwards', async (t) => {
  const dir = join(temporaryFolder(t), 'nodes', 'gw')
  const path = await ensureLaneKey(dir, 0, () => KEY)
  t.equal(path, join(dir, 'lane0.key'))
  t.equal(readFileSync(path, 'utf8'), `${KEY}\n`)
  t.equal(statSync(path).mode & 0o777, 0o600)
  t.equal(statSync(dir).mode & 0o777, 0o700)
  await ensureLaneKey(dir, 0, () => {
    throw new Error('not again')
  })
  t.strictSame(readdirSync(dir), ['lane0.key'], 'nothing is left of the writing')
  await removeOtherLaneKeys(dir, [])
  t.notOk(existsSync(path))
})

t.test('keys of other lanes are taken away, and nothing else', async (t) => {
  const dir = join(temporaryFolder(t), 'gw')
  await removeOtherLaneKeys(dir, [0])
  t.notOk(existsSync(dir), 'no folder is fine')
  for (const lane of [0, 1, 12]) await ensureLaneKey(dir, lane, () => KEY)
  for (const name of ['lane1.key.old', 'xlane1.key', 'gateway-switched-on-forwarding'])
    writeFileSync(join(dir, name), '')
  const [killed, own] = [process.pid + 1, process.pid].map((pid) => `.lane1.next.key.${pid}.0123456789ab.tmp`)
  for (const name of [killed, own]) writeFileSync(join(dir, name!), '')
  await removeOtherLaneKeys(dir, [1])
  t.notOk(existsSync(join(dir, killed!)), 'nor what a killed process has left of one')
  rmSync(join(dir, own!))
  t.strictSame(readdirSync(dir).sort(), ['gateway-switched-on-forwarding', 'lane1.key', 'lane1.key.old', 'xlane1.key'])
})

t.test('the next key is beside the present one until it takes its place', async (t) => {
  const dir = join(temporaryFolder(t), 'gw')
  const [next, other] = [Buffer.alloc(32, 8).toString('base64'), Buffer.alloc(32, 9).toString('base64')]
  const path = await ensureLaneKey(dir, 0, () => KEY)
  await t.rejects(promoteNextKey(dir, 0), LaneKeyError, 'there is none')
  t.equal(readFileSync(path, 'utf8'), `${KEY}\n`)
  t.equal(await readKey(nextKeyPath(dir, 0)), undefined)
  const nextPath = await ensureNextKey(dir, 0, () => next)
  t.equal(statSync(nextPath).mode & 0o777, 0o600)
  t.equal(await ensureNextKey(dir, 0, () => other), nextPath)
  t.equal(await readKey(nextPath), `${next}\n`, 'it is kept: others may know it')
  await removeOtherLaneKeys(dir, [0])
  t.strictSame(readdirSync(dir).sort(), ['lane0.key', 'lane0.next.key'])
  await promoteNextKey(dir, 0)
  t.equal(readFileSync(path, 'utf8'), `${next}\n`)
  t.equal(statSync(path).mode & 0o777, 0o600)
  t.strictSame(readdirSync(dir), ['lane0.key'])
  for (const [say, spoil] of [
    ['half', (file: string) => writeFileSync(file, 'AAAA', { mode: 0o600 })],
    ['open to others', (file: string) => chmodSync(file, 0o644)],
  ] as const) {
    spoil(await ensureNextKey(dir, 0, () => other))
    t.equal(await readKey(nextPath), undefined, say)
    await ensureNextKey(dir, 0, () => KEY)
    t.equal(await readKey(nextPath), `${KEY}\n`, `${say}: made anew`)
  }
  await removeOtherLaneKeys(dir, [])
  t.strictSame(readdirSync(dir), [])
})

t.test('two starts at once agree on one key', async (t) => {
  const dir = join(temporaryFolder(t), 'gw')
  mkdirSync(dir, { mode: 0o700 })
  const others = [1, 2, 3].map((n) => Buffer.alloc(32, n).toString('base64'))
  const paths = await Promise.allSettled(others.map((key) => ensureLaneKey(dir, 0, () => key)))
  const key = readFileSync(join(dir, 'lane0.key'), 'utf8').trim()
  t.ok(others.includes(key), 'a whole key')
  t.ok(paths.every((one) => one.status === 'fulfilled'))
  t.strictSame(readdirSync(dir), ['lane0.key'])
})

const ROWS: [say: string, prepare: (dir: string) => void, want: string][] = [
  [
    'readable by others',
    (dir) => {
      writeFileSync(join(dir, 'lane0.key'), KEY, { mode: 0o644 })
    },
    'lane key DIR/lane0.key: mode 0644, expected 0600 (chmod 600 DIR/lane0.key)',
  ],
  [
    'corrupt',
    (dir) => {
      writeFileSync(join(dir, 'lane0.key'), 'garbage', { mode: 0o600 })
    },
    'lane key DIR/lane0.key: not a WireGuard private key (expected 44 characters of base64); restore the file, or remove it to get a new key',
  ],
  [
    'empty',
    (dir) => {
      writeFileSync(join(dir, 'lane0.key'), '', { mode: 0o600 })
    },
    'lane key DIR/lane0.key: not a WireGuard private key (expected 44 characters of base64); restore the file, or remove it to get a new key',
  ],
  [
    'a directory',
    (dir) => {
      mkdirSync(join(dir, 'lane0.key'), { mode: 0o700 })
    },
    'lane key DIR/lane0.key: a directory exists where a file is expected',
  ],
  [
    'open directory',
    (dir) => {
      chmodSync(dir, 0o755)
    },
    'state directory DIR: mode 0755, expected 0700 (chmod 700 DIR)',
  ],
]

t.test('unusable files', async (t) => {
  for (const [say, prepare, want] of ROWS) {
    const dir = join(temporaryFolder(t), 'gw')
    mkdirSync(dir, { mode: 0o700 })
    prepare(dir)
    const error: unknown = await ensureLaneKey(dir, 0, () => KEY).catch((error: unknown) => error)
    t.ok(error instanceof LaneKeyError, say)
    t.equal((error as Error).message.replaceAll(dir, 'DIR'), want, say)
    t.notMatch((error as Error).message, KEY, 'and the key is not told')
  }
})

t.test('a file where the state directory should be', async (t) => {
  const dir = join(temporaryFolder(t), 'gw')
  writeFileSync(dir, '')
  await t.rejects(
    ensureLaneKey(dir, 0, () => KEY),
    { message: `state directory ${dir}: a file exists where a directory is expected` },
  )
})
