/** Lease files that a disk, a person or an intruder has damaged: the damage is reported, and no process is blocked. */
import {
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import type { StoredLease } from '../../../../kubeapi/cluster-api.ts'
import { heldBy, newLease } from '../../../compliance/lease-store.ts'
import { eventually } from '../../../support/eventually.ts'
import { failure } from '../../../support/failure.ts'
import { FileSite, synced } from '../file-site.ts'

const { signal } = new AbortController()
const NAME = 'sealane-lane-0'
/** The field name is matched too, since a time may also contain `:15`. */
const LASTS = /(?<field>"leaseDurationSeconds":)15/

class Leases {
  readonly site: FileSite
  readonly store: ReturnType<FileSite['open']>['leases']
  readonly folder: string

  constructor(t: Test) {
    this.site = new FileSite(t)
    this.store = this.site.open().leases
    this.folder = join(this.site.state, 'leases', NAME)
  }

  async hold(...holders: readonly string[]): Promise<StoredLease> {
    let lease: StoredLease | undefined = await this.store.read(NAME, signal)
    for (const holder of holders) {
      lease = await this.store.write(lease === undefined ? newLease(holder) : heldBy(lease, holder), signal)
    }
    if (lease === undefined) throw new Error('nobody holds it')
    return lease
  }

  put(version: number | string, text: string): void {
    writeFileSync(join(this.folder, `${version}.json`), text)
  }

  textOf(version: number): string {
    return readFileSync(join(this.folder, `${version}.json`), 'utf8')
  }

  read(): Promise<StoredLease | undefined> {
    return this.store.read(NAME, signal)
  }
}

t.test('a newest version that is spoilt: the one before it counts, and the next write goes past it', async (t) => {
  const spoilt: readonly (readonly [why: string, text: (good: string) => string])[] = [
    ['no JSON: ', (good) => good.slice(0, good.length / 2)],
    ['no JSON: ', () => ''],
    ['no JSON: ', () => '\0'.repeat(500)],
    ['expected a JSON object', () => '42'],
    ['expected a JSON object', () => 'null'],
    ['kind: expected one of Lease', (good) => good.replace('"Lease"', '"Secret"')],
    ['metadata.name: expected sealane-lane-0', (good) => good.replace(NAME, 'sealane-lane-1')],
    ['metadata.uid: expected text', (good) => good.replace('"uid"', '"uuid"')],
    ['spec: expected a map', (good) => good.replace('"spec":{', '"spec":7,"other":{')],
    [
      'spec.holderIdentity: expected at most 320 printable characters',
      (good) => good.replace('"b"', `"${'b'.repeat(321)}"`),
    ],
    [
      'spec.holderIdentity: expected at most 320 printable characters',
      (good) => good.replace('"b"', '"b\\n\\u001b[2Jc"'),
    ],
    ['spec.leaseDurationSeconds: expected 1 to 3600', (good) => good.replace(LASTS, '$<field>1e9')],
    ['spec.leaseDurationSeconds: expected 1 to 3600', (good) => good.replace(LASTS, '$<field>-15')],
    ['spec.leaseDurationSeconds: expected 1 to 3600', (good) => good.replace(LASTS, '$<field>"15"')],
    ['spec.renewTime: expected an RFC 3339 time', (good) => good.replace(LASTS, '$<field>15,"renewTime":"tomorrow"')],
    ['more than 16384 octets', (good) => good + ' '.repeat(20_000)],
  ]
  for (const [why, text] of spoilt) {
    const leases = new Leases(t)
    await leases.hold('a', 'b')
    leases.put(2, text(leases.textOf(2)))
    t.match(await leases.read(), { spec: { holderIdentity: 'a' }, metadata: { resourceVersion: '2' } }, why)
    await leases.hold('c')
    t.match(await leases.read(), { spec: { holderIdentity: 'c' }, metadata: { resourceVersion: '3' } })
    const warnings = leases.site.warnings()
    t.equal(warnings.length, 1, 'told once')
    t.match(warnings[0], `a state file is damaged and ignored: state/leases/${NAME}/2.json: ${why}`)
  }
})

t.test('what is no file at all', async (t) => {
  const strangers: readonly (readonly [why: string, make: (path: string) => void])[] = [
    ['not a regular file', (path) => mkdirSync(path)],
    ['not a regular file', (path) => symlinkSync('/dev/zero', path)],
    ['not a regular file', (path) => execFileSync('mkfifo', [path])],
  ]
  for (const [why, make] of strangers) {
    const leases = new Leases(t)
    await leases.hold('a')
    make(join(leases.folder, '2.json'))
    await leases.hold('b')
    t.match(await leases.read(), { spec: { holderIdentity: 'b' }, metadata: { resourceVersion: '3' } })
    t.match(leases.site.warnings().join(), `2.json: ${why}`)
  }
})

t.test('names that are none of ours', async (t) => {
  const leases = new Leases(t)
  await leases.hold('a', 'b')
  const stolen = leases.textOf(2).replace('"b"', '"thief"')
  for (const name of ['999999999999', 'x', '0']) leases.put(name, stolen)
  t.match(await leases.hold('c'), { metadata: { resourceVersion: '3' } })
  t.equal((await leases.read())?.spec?.holderIdentity, 'c')
  t.match(leases.site.warnings().sort(), [
    /\/0\.json: its name is not a version number$/,
    /\/999999999999\.json: its number does not follow the others$/,
    /\/x\.json: its name is not a version number$/,
  ])
})

t.test('nothing usable at all: nobody holds it, and whoever takes it has the next version', async (t) => {
  const leases = new Leases(t)
  await leases.hold('a')
  leases.put(1, 'rubbish')
  const seen = await leases.read()
  t.match(seen, { spec: {}, metadata: { resourceVersion: '1' } })
  t.equal(seen?.spec?.holderIdentity, undefined)
  const other = leases.site.open().leases
  t.match(await leases.store.write(heldBy(seen, 'b'), signal), { metadata: { resourceVersion: '2' } })
  t.match(await failure(other.write(heldBy(seen, 'c'), signal)), { code: 'Conflict' })
  t.match(await failure(other.write(newLease('c'), signal)), { code: 'Conflict' }, 'it is not new either')
})

t.test('times are nobody’s measure: one far ahead counts, and is told once', async (t) => {
  const leases = new Leases(t)
  const lease = await leases.hold('a')
  const renewTime = '9999-01-01T00:00:00.000000Z'
  await leases.store.write({ ...lease, spec: { ...lease.spec, renewTime } }, signal)
  t.match(await leases.read(), { spec: { holderIdentity: 'a', renewTime } })
  await leases.read()
  t.same(leases.site.warnings(), [
    `Lease ${NAME}: spec.renewTime is more than a day ahead of the clock of this machine`,
  ])
})

t.test('a state folder that is not accessible: nobody knows, and nothing is made anew', async (t) => {
  const leases = new Leases(t)
  const lease = await leases.hold('a')
  const aside = `${leases.site.state}.aside`
  renameSync(leases.site.state, aside)
  mkdirSync(leases.site.state)
  t.match(await failure(leases.read()), { code: 'Unavailable', message: /the state folder is not accessible/ })
  t.match(await failure(leases.store.write(heldBy(lease, 'b'), signal)), { code: 'Unavailable' })
  t.match(await failure(leases.store.write(newLease('b'), signal)), { code: 'Unavailable' })
  t.same(readdirSync(leases.site.state), [])
  rmSync(leases.site.state, { recursive: true })
  renameSync(aside, leases.site.state)
  t.equal((await leases.read())?.spec?.holderIdentity, 'a', 'as it was')
})

t.test('a name that is none, and a folder that is a file', async (t) => {
  const leases = new Leases(t)
  for (const name of ['', '..', '../x', 'A', 'a/b']) {
    t.match(await failure(leases.store.read(name, signal)), { code: 'Invalid' }, JSON.stringify(name))
  }
  await leases.hold('a')
  writeFileSync(join(leases.site.state, 'leases', 'sealane-lane-1'), '')
  const refused = await failure(leases.store.write(newLease('a', 'sealane-lane-1'), signal))
  t.match(refused, { code: 'Unavailable' })
})

t.test('old versions go, the newest stay, and who slept over it is too late', async (t) => {
  const leases = new Leases(t)
  const sleeper = await leases.hold('a', 'b')
  const holders = Array.from({ length: 30 }, (_, i) => `h${i}`)
  await leases.hold(...holders)
  t.equal(readdirSync(leases.folder).length, 32, 'young ones stay')
  const [now] = [Date.now() / 1000]
  for (const name of readdirSync(leases.folder)) utimesSync(join(leases.folder, name), now - 300, now - 300)
  await leases.hold('last')
  t.same(readdirSync(leases.folder).sort(), ['30.json', '31.json', '32.json', '33.json'])
  t.match(await failure(leases.store.write(heldBy(sleeper, 'sleeper'), signal)), { code: 'Conflict' })
  t.same(readdirSync(leases.folder).length, 4, 'and nothing of it is left')
  t.equal((await leases.read())?.spec?.holderIdentity, 'last')
})

t.test('a Lease that is removed is made anew, and the one of before cannot be written any more', async (t) => {
  const leases = new Leases(t)
  const api = leases.site.open()
  const cache = await synced(api, 'Lease')
  const before = await leases.hold('a')
  await eventually(() => cache.get(NAME, 'sealane-system')?.spec?.holderIdentity === 'a', { say: 'it is shown' })
  await api.remove('Lease', NAME, 'sealane-system')
  t.equal(await leases.read(), undefined)
  t.same(cache.list(), [])
  await leases.hold('b')
  t.match(await failure(leases.store.write(heldBy(before, 'a'), signal)), { code: 'Conflict' }, 'another one')
  t.match(await api.read('Lease', NAME, 'sealane-system'), { spec: { holderIdentity: 'b' } })
})

t.test('whatever is in the files, a read tells it or gives a Lease that is one', async (t) => {
  const leases = new Leases(t)
  await leases.hold('a')
  const anyField = fc.oneof(fc.string(), fc.integer(), fc.double(), fc.constant(null), fc.array(fc.integer()))
  const content = fc.oneof(
    fc.string(),
    fc.json(),
    fc
      .record({ holderIdentity: anyField, leaseDurationSeconds: anyField, renewTime: anyField }, { requiredKeys: [] })
      .map((spec) => leases.textOf(1).replace(/"spec":.*/, `"spec":${JSON.stringify(spec)}}`)),
  )
  await fc.assert(
    fc.asyncProperty(content, async (text) => {
      leases.put(2, text)
      const { spec, metadata } = (await leases.read()) ?? newLease('')
      const { holderIdentity = '', leaseDurationSeconds = 1 } = spec ?? {}
      return (
        metadata.resourceVersion === '2' &&
        /^[\x21-\x7e]{0,320}$/.test(holderIdentity) &&
        leaseDurationSeconds >= 1 &&
        leaseDurationSeconds <= 3600
      )
    }),
  )
  t.pass('always')
})
