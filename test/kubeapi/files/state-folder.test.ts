/** A state folder that is shared by processes, damaged, unwritable, or large. */
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  utimesSync,
  readFileSync,
  readdirSync,
  renameSync,
  statSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs'
import { open } from 'node:fs/promises'
import { dirname, join, relative } from 'node:path'
import t from 'tap'
import type { EndpointSlice, Kind } from '../../../model/objects.ts'
import { LaterSyncs, errorCode, writeFileUnsynced } from '../../../kubeapi/files/atomic-write.ts'
import { CLOSE_SYNC_MS } from '../../../kubeapi/files/file-api.ts'
import { REWRITE_MS, UNWANTED_MS } from '../../../kubeapi/files/kind-files.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { serviceImport } from '../../compliance/cluster-api.ts'
import { eventually } from '../../support/eventually.ts'
import { FileSite, names, serviceYaml, synced, wait } from './file-site.ts'

const IMPORT = 'objects/ServiceImport/shop/web.json'

t.test('a damaged state file is reported and ignored, and written anew by its writer', async (t) => {
  const site = new FileSite(t)
  const first = site.open()
  await first.apply(serviceImport('web'))
  await first.apply(serviceImport('api'))
  await first.close()
  writeFileSync(join(site.state, IMPORT), '{"apiVersion": "multi')
  writeFileSync(join(site.state, 'objects/ServiceImport/shop/api.json'), JSON.stringify(serviceImport('other')))
  // An earlier release wrote beside the file.
  const left = ['shop', '.new'].map((folder) =>
    join(site.state, `objects/ServiceImport/${folder}/.web.json.123.0123456789ab.tmp`),
  )
  for (const path of left) {
    writeFileSync(path, 'x')
    utimesSync(path, 1, 1)
  }
  const api = site.open()
  const cache = await synced(api, 'ServiceImport')
  t.equal(names(cache), '')
  t.same(left.filter(existsSync), [], 'what a killed process left is tidied away')
  t.match(site.warnings(), [
    /^a state file is damaged and ignored: state\/objects\/ServiceImport\/shop\/api\.json: metadata: expected the name and namespace of its path$/,
    /^a state file is damaged and ignored: state\/objects\/ServiceImport\/shop\/web\.json: .*JSON/,
  ])
  await api.apply(serviceImport('web'))
  t.equal(names(cache), 'web')
  t.match(JSON.parse(site.readState(IMPORT)), serviceImport('web'))
})

t.test('a state file damaged while we run is healed by whoever still knows it', async (t) => {
  const site = new FileSite(t)
  const api = site.open()
  await api.apply(serviceImport('web'))
  const cache = await synced(api, 'ServiceImport')
  const changes: string[] = []
  cache.onChange((change) => changes.push(change?.type ?? 'synced'))
  writeFileSync(join(site.state, IMPORT), 'rubbish')
  await eventually(() => site.readState(IMPORT).startsWith('{'))
  t.equal(names(cache), 'web')
  await wait(50)
  t.same(changes, [], 'nobody noticed')
})

t.test('the repair of a damaged file undoes no write that is under way', async (t) => {
  const site = new FileSite(t)
  const first = site.open()
  await first.apply(serviceImport('web', 1))
  await first.close()
  for (let port = 2; port <= 20; port += 1) {
    const api = site.open()
    await synced(api, 'ServiceImport')
    writeFileSync(join(site.state, IMPORT), '')
    const read = (): Promise<unknown> => api.read('ServiceImport', 'web', 'shop')
    await Promise.all([api.apply(serviceImport('web', port)), read(), read()])
    await api.close()
    t.match(JSON.parse(site.readState(IMPORT)), { spec: { ports: [{ port }] } })
  }
})

t.test('an empty file that nobody writes again is removed after a while, and reported no more', async (t) => {
  const site = new FileSite(t)
  const first = site.open()
  for (const name of ['empty', 'zeros', 'cut', 'good', 'wanted']) await first.apply(serviceImport(name))
  await first.close()
  const place = (name: string): string => join(site.state, `objects/ServiceImport/shop/${name}.json`)
  writeFileSync(place('empty'), '')
  writeFileSync(place('gone@status'), '')
  writeFileSync(place('gone@user'), '')
  writeFileSync(place('zeros'), Buffer.alloc(400))
  writeFileSync(place('cut'), '{"apiVersion": "multi')
  writeFileSync(place('wanted'), '')
  const clock = new FakeClock()
  const api = site.open({}, { clock })
  await synced(api, 'ServiceImport')
  t.equal(site.warnings().length, 6, 'each is reported')
  const left = (): string =>
    readdirSync(dirname(place('empty')))
      .sort()
      .join(' ')
  const all = left()
  await api.apply(serviceImport('wanted'))
  await clock.advance(UNWANTED_MS - 40_000)
  t.equal(left(), all, 'its writer has some time')
  await clock.advance(80_000)
  t.equal(left(), 'cut.json good.json wanted.json', 'what still holds something stays for the user to see')
  await api.close()
  await synced(site.open(), 'ServiceImport')
  t.equal(site.warnings().length, 7, 'the next start reports only what is left')
  writeFileSync(place('good'), '')
  const ofHubs = site.open({ severalHubs: true }, { clock })
  await synced(ofHubs, 'ServiceImport')
  await clock.advance(UNWANTED_MS + 60_000)
  t.match(left(), /good/, 'another hub may have it')
})

t.test('processes leave new and changed objects of the user to one of them, which notes them', async (t) => {
  const site = new FileSite(t)
  site.write('first.yaml', serviceYaml('first'))
  // Longer than this test takes.
  const others = [1, 2, 3].map(() => site.open({ notesAfterMs: 60_000 }))
  const caches = await Promise.all(others.map((api) => synced(api, 'Service')))
  t.same(caches.map(names), ['first', 'first', 'first'], 'what is there at the start is shown')
  site.write('web.yaml', serviceYaml('web'))
  site.write('first.yaml', serviceYaml('first', 81))
  await wait(50)
  const seen = (): unknown[] => caches.map((cache) => [names(cache), cache.get('first', 'shop')?.metadata.generation])
  t.same(seen(), Array(3).fill(['first', 1]), 'none of them notes a change')
  const cache = await synced(site.open(), 'Service')
  await eventually(() => caches.every((one) => one.get('web', 'shop') !== undefined), { say: 'all show it' })
  const uid = cache.get('web', 'shop')?.metadata.uid
  t.same(
    caches.map((one) => one.get('web', 'shop')?.metadata.uid),
    [uid, uid, uid],
  )
  await eventually(() => caches.every((one) => one.get('first', 'shop')?.metadata.generation === 2))
  t.equal(caches[0]?.get('first', 'shop')?.spec?.ports?.[0]?.port, 81)
})

t.test('one process stores good versions of files, and the others soon after if it does not', async (t) => {
  const stored = (site: FileSite): number =>
    existsSync(join(site.state, 'files')) ? readdirSync(join(site.state, 'files')).length : 0
  const site = new FileSite(t)
  const others = [1, 2, 3].map(() => site.open({ notesAfterMs: 60_000 }))
  for (const api of others) await synced(api, 'Service')
  site.write('web.yaml', serviceYaml('web'))
  await wait(50)
  t.equal(stored(site), 0, 'the others leave it to the agent')
  await synced(site.open(), 'Service')
  await eventually(() => stored(site) === 1, { say: 'the agent stores it at once' })
  const alone = new FileSite(t)
  await synced(alone.open({ notesAfterMs: 60_000 }), 'Service')
  alone.write('web.yaml', serviceYaml('web'))
  await eventually(() => stored(alone) === 1, { say: 'without an agent one of the others stores it' })
})

t.test('files reach the disk after they are shown, and a process that ends waits for it', async (t) => {
  const errors: string[] = []
  const syncs = new LaterSyncs()
  const folder = t.testdir({})
  await writeFileUnsynced(join(folder, 'new/one.json'), '1')
  await writeFileUnsynced(join(folder, 'new/one.json'), '2')
  for (const name of ['new/one.json', 'new/one.json', 'removed.json', `${'x'.repeat(300)}.json`]) {
    const path = join(folder, name)
    syncs.add(path, (error) => errors.push(`${path}: ${errorCode(error) ?? ''}`))
  }
  await syncs.settled()
  t.same(errors, [`${join(folder, `${'x'.repeat(300)}.json`)}: ENAMETOOLONG`], 'a removed file is no error')
  t.same(readdirSync(join(folder, 'new')), ['one.json'], 'no temporary file is left')
  t.equal(readFileSync(join(folder, 'new/one.json'), 'utf8'), '2')
})

t.test('a file that the disk did not take is reported, and written again until it does', async (t) => {
  const site = new FileSite(t)
  const clock = new FakeClock()
  let left = 2
  const synced: string[] = []
  const syncs = new LaterSyncs((path) => {
    synced.push(relative(site.state, path))
    return left-- > 0 ? Promise.reject(Object.assign(new Error('i/o error'), { code: 'EIO' })) : Promise.resolve()
  })
  const api = site.open({}, { clock, syncs })
  await api.apply(serviceImport('web'))
  await syncs.settled()
  const inode = (): number => statSync(join(site.state, IMPORT)).ino
  for (const count of [2, 3]) {
    const before = inode()
    await clock.advance(REWRITE_MS - 1)
    t.equal(synced.length, count - 1, 'not at once')
    await clock.advance(1)
    await eventually(() => synced.length === count, { say: `sync ${count}` })
    t.not(inode(), before, 'what the kernel no longer tries to write is written again')
  }
  await clock.advance(10 * REWRITE_MS)
  t.strictSame(synced, [IMPORT, IMPORT, IMPORT], 'and no more once the disk has it')
  t.match(JSON.parse(site.readState(IMPORT)), serviceImport('web'))
  t.strictSame(site.warnings(), [`cannot use the state folder: state/${IMPORT}: i/o error`])
})

t.test('a disk that hangs takes one thread, and does not keep a process from closing', async (t) => {
  const site = new FileSite(t)
  const clock = new FakeClock()
  const asked: string[] = []
  const syncs = new LaterSyncs((path) => {
    asked.push(path)
    return new Promise(() => undefined)
  })
  const api = site.open({}, { clock, syncs })
  const slice = {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: { name: 'web', namespace: 'shop' },
  }
  await api.apply(serviceImport('web'))
  await api.apply({ ...slice, addressType: 'IPv4', endpoints: [], ports: [] } as EndpointSlice)
  await api.apply(serviceImport('api'))
  t.equal(names(await synced(api, 'ServiceImport')), 'api web', 'no caller waits')
  t.equal(asked.length, 1, 'one for all kinds')
  let isClosed = false
  void api.close().then(() => (isClosed = true))
  await wait(50)
  t.notOk(isClosed, 'it waits for the disk')
  await eventually(async () => {
    await clock.advance(CLOSE_SYNC_MS / 2)
    return isClosed
  })
})

t.test('a write that hangs does not keep a process from closing', async (t) => {
  const site = new FileSite(t)
  const clock = new FakeClock()
  const api = site.open({}, { clock })
  await synced(api, 'ServiceImport')
  // Whoever opens a pipe waits for its writer: all threads that work with files do.
  const pipe = join(site.state, '..', 'pipe')
  execFileSync('mkfifo', [pipe])
  const threads = Number(process.env['UV_THREADPOOL_SIZE'] ?? 4)
  const opening = Array.from({ length: threads }, () => open(pipe, 'r'))
  let isWritten = false
  const writing = api.apply(serviceImport('web')).then(() => (isWritten = true))
  // The write begins.
  await new Promise((resolve) => setImmediate(resolve))
  let isClosed = false
  const closing = api.close().then(() => (isClosed = true))
  try {
    await eventually(async () => {
      await clock.advance(CLOSE_SYNC_MS / 2)
      return isClosed
    })
    t.notOk(isWritten, 'the write still hangs')
  } finally {
    const writer = openSync(pipe, 'r+')
    for (const one of opening) await (await one).close()
    closeSync(writer)
  }
  await Promise.all([writing, closing])
})

t.test('a process shows objects that no other one notes', async (t) => {
  const site = new FileSite(t)
  const cache = await synced(site.open({ notesAfterMs: 20 }), 'Service')
  site.write('web.yaml', serviceYaml('web'))
  await eventually(() => cache.get('web', 'shop')?.metadata.generation === 1)
  site.write('web.yaml', serviceYaml('web', 81))
  await eventually(() => cache.get('web', 'shop')?.metadata.generation === 2)
  t.equal(cache.get('web', 'shop')?.spec?.ports?.[0]?.port, 81)
})

t.test('a state file that is JSON but not what was written is damaged too, and ends no process', async (t) => {
  const slice = {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: { name: 'web', namespace: 'shop' },
    addressType: 'IPv4',
  }
  const self = { apiVersion: 'sealane.io/v1alpha1', kind: 'Membership', metadata: { name: 'self' } }
  const import_ = serviceImport('web')
  const spoilt: { file: string; value: unknown; reason: string }[] = [
    { file: IMPORT, value: 5, reason: 'expected a JSON object' },
    { file: IMPORT, value: [], reason: 'document: expected a map' },
    { file: IMPORT, value: { ...import_, kind: 'Service' }, reason: 'kind: expected ServiceImport' },
    { file: IMPORT, value: { ...import_, metadata: null }, reason: 'metadata: expected a map' },
    { file: IMPORT, value: { ...import_, spec: undefined }, reason: 'spec: expected a map' },
    {
      file: IMPORT,
      value: { ...import_, spec: { type: 'Headless', ports: [{ port: 'x', protocol: 'TCP' }] } },
      reason: 'spec.ports[0].port: expected 1 to 65535',
    },
    {
      file: IMPORT,
      value: { ...import_, spec: { type: 'Headless', ports: [{ port: 80 }] } },
      reason: 'spec.ports[0].protocol: expected one of TCP, UDP, SCTP',
    },
    {
      file: 'objects/EndpointSlice/shop/web.json',
      value: { ...slice, endpoints: [{ addresses: null }] },
      reason: 'endpoints[0].addresses: expected a list',
    },
    {
      file: 'objects/Membership/_/self.json',
      value: { ...self, spec: { clusterId: 'milano', phase: 'joined', clusterset: 'home', globalRange: '244/8' } },
      reason: 'spec.globalRange: expected a CIDR without host bits such as 10.42.0.0/16',
    },
    {
      file: 'objects/Gateway/_/gw@status.json',
      value: { uid: 'x', status: { version: '0.1.0', lanes: [], connections: 'none' } },
      reason: 'status.connections: expected a list',
    },
  ]
  for (const { file, value, reason } of spoilt) {
    const site = new FileSite(t)
    mkdirSync(dirname(join(site.state, file)), { recursive: true })
    writeFileSync(join(site.state, file), JSON.stringify(value))
    const cache = await synced(site.open(), (file.split('/')[1] ?? '') as Kind)
    t.equal(names(cache), '')
    t.same(site.warnings(), [`a state file is damaged and ignored: state/${file}: ${reason}`])
  }
})

t.test('a state that is gone as a whole, or cannot be read, says nothing about its objects', async (t) => {
  const site = new FileSite(t)
  const api = site.open({ rescanMs: 30 })
  await api.apply(serviceImport('web'))
  await api.applyStatus({ ...serviceImport('web'), status: { clusters: [{ cluster: 'milano' }] } })
  const cache = await synced(api, 'ServiceImport')
  const before = cache.get('web', 'shop')
  const away = join(site.folder, 'away')
  renameSync(site.state, away)
  const reported = (): boolean => site.warnings().some((line) => line.includes('objects/ServiceImport: no such folder'))
  await eventually(reported, { say: 'it is told' })
  await wait(100)
  t.equal(cache.get('web', 'shop'), before, 'what was mounted there may come back')
  renameSync(away, site.state)
  await api.remove('ServiceImport', 'web', 'shop')
  t.equal(names(cache), '')

  await api.apply(serviceImport('api'))
  renameSync(join(site.state, 'objects/ServiceImport/shop/api.json'), join(site.folder, 'api.json'))
  symlinkSync('api.json', join(site.state, 'objects/ServiceImport/shop/api.json'))
  await eventually(() => site.warnings().some((line) => line.includes('shop/api.json: ELOOP')), {
    say: 'ELOOP is told',
  })
  t.equal(names(cache), 'api')
})

t.test('a folder that cannot be read when it is first looked at is not taken for empty', async (t) => {
  const site = new FileSite(t)
  const folder = join(site.state, 'objects/ServiceImport')
  await site.open().apply(serviceImport('web'))
  const away = join(site.folder, 'away')
  renameSync(folder, away)
  writeFileSync(folder, 'in the way')
  const api = site.open({ rescanMs: 20 })
  const cache = api.cache('ServiceImport')
  const reported = 'cannot use the state folder: state/objects/ServiceImport: not a folder'
  await eventually(() => site.warnings().includes(reported), { say: reported })
  await wait(60)
  t.equal(cache.synced, false, 'also after it has looked again')
  const onceOnly = site.open({ once: true })
  t.equal(names(await synced(onceOnly, 'ServiceImport')), '', 'who looks only once gets what there is')
  t.same(onceOnly.troubledState(), [{ path: folder, reason: 'StateFolderUnusable' }])
  t.equal(site.warnings().filter((line) => line === reported).length, 2, 'each of the two says it once')

  unlinkSync(folder)
  renameSync(away, folder)
  await cache.whenSynced(AbortSignal.timeout(5000))
  t.equal(names(cache), 'web', 'read as soon as it can be')
})

t.test('an unwritable state is Unavailable and names the path', async (t) => {
  const site = new FileSite(t)
  mkdirSync(site.state)
  writeFileSync(join(site.state, 'objects'), 'in the way')
  site.write('a.yaml', serviceYaml('web'))
  const api = site.open({ once: true })
  await t.rejects(api.apply(serviceImport('web')), {
    code: 'Unavailable',
    message: `cannot write ${join(site.state, IMPORT)}: a part of the path is not a folder`,
  })
  const cache = await synced(api, 'Service')
  t.match(cache.list(), [{ metadata: { name: 'web', uid: /./ } }], "the user's objects are there all the same")
})

t.test('uids are the same in every process and after restarts, and new for what was deleted meanwhile', async (t) => {
  const site = new FileSite(t)
  site.write('a.yaml', `${serviceYaml('one')}---\n${serviceYaml('two')}`)
  const uids = async (count: number): Promise<(string | undefined)[]> => {
    const api = site.open()
    const cache = await synced(api, 'Service')
    await eventually(() => cache.list().length === count)
    const result = cache.list().map(({ metadata }) => metadata.uid)
    await api.close()
    return result
  }
  const [first, second] = await Promise.all([uids(2), uids(2)])
  t.same(first, second)
  t.same(await uids(2), first)
  site.write('a.yaml', serviceYaml('one'))
  t.same(await uids(1), first.slice(0, 1))
  site.write('a.yaml', `${serviceYaml('one')}---\n${serviceYaml('two')}`)
  const third = await uids(2)
  t.equal(third[0], first[0])
  t.not(third[1], first[1])
})

t.test('a lost note is made anew and all processes agree on it', async (t) => {
  const site = new FileSite(t)
  site.write('a.yaml', serviceYaml('web'))
  const [a, b] = [site.open(), site.open()]
  const caches = [await synced(a, 'Service'), await synced(b, 'Service')]
  const uid = caches[0]?.get('web', 'shop')?.metadata.uid
  unlinkSync(join(site.state, 'objects/Service/shop/web@user.json'))
  await eventually(() => caches.every((cache) => cache.get('web', 'shop')?.metadata.uid !== uid))
  await eventually(() => caches[0]?.get('web', 'shop')?.metadata.uid === caches[1]?.get('web', 'shop')?.metadata.uid)
})

t.test('two writers of one object: the last wins, no reader ever sees half a file', async (t) => {
  const site = new FileSite(t)
  const [a, b, reader] = [site.open(), site.open(), site.open()]
  const cache = await synced(reader, 'ServiceImport')
  await Promise.all([synced(a, 'ServiceImport'), synced(b, 'ServiceImport')])
  for (let port = 1; port <= 100; port += 1) {
    await Promise.all([a.apply(serviceImport('web', port)), b.apply(serviceImport('web', 1000 + port))])
    const stored = JSON.parse(site.readState(IMPORT)) as { spec: { ports: { port: number }[] } }
    t.ok([port, 1000 + port].includes(stored.spec.ports[0]?.port ?? 0))
  }
  await a.apply(serviceImport('web', 7))
  await eventually(() => cache.get('web', 'shop')?.spec.ports[0]?.port === 7)
  await eventually(async () => (await synced(b, 'ServiceImport')).get('web', 'shop')?.spec.ports[0]?.port === 7)
  t.same(site.warnings(), [])
  for (const [folder, want] of [
    ['shop', ['web.json']],
    ['.new', []],
  ] as const)
    t.same(
      readdirSync(join(site.state, 'objects/ServiceImport', folder)),
      want,
      `no temporary file is left in ${folder}`,
    )
})

t.test('a process killed while writing leaves only whole files, and its successor goes on', async (t) => {
  const site = new FileSite(t)
  const url = (path: string): string => JSON.stringify(new URL(`../../../${path}`, import.meta.url).href)
  const code = `
    import { FileApi } from ${url('kubeapi/files/file-api.ts')}
    import { SystemClock } from ${url('reconcile/clock.ts')}
    import { CapturingLogger } from ${url('runtime/logging/capturing-logger.ts')}
    const api = new FileApi({ clock: new SystemClock(), logger: new CapturingLogger() }, ${JSON.stringify({ objects: site.objects, state: site.state })})
    const base = ${JSON.stringify(serviceImport('web'))}
    console.log('ready')
    for (let port = 1; ; port = (port % 60000) + 1) {
      const names = ['a', 'b', 'c', 'd']
      await Promise.all(names.map((name) => api.apply({ ...base, metadata: { name, namespace: 'shop' }, spec: { ...base.spec, ports: [{ protocol: 'TCP', port }] } })))
    }`
  for (let round = 0; round < 3; round += 1) {
    const child = spawn(process.execPath, ['--input-type=module', '-e', code], { stdio: ['ignore', 'pipe', 'inherit'] })
    await once(child.stdout, 'data')
    await wait(60 + 13 * round)
    child.kill('SIGKILL')
    await once(child, 'exit')
    const api = site.open()
    await synced(api, 'ServiceImport')
    t.same(site.warnings(), [])
    await api.apply(serviceImport('a', 7))
    t.equal((await synced(api, 'ServiceImport')).get('a', 'shop')?.spec.ports[0]?.port, 7)
    await api.close()
  }
})

t.test('nothing happens after close', async (t) => {
  const site = new FileSite(t)
  const api = site.open({ rescanMs: 10 })
  const cache = await synced(api, 'Service')
  await api.close()
  site.write('a.yaml', serviceYaml('web'))
  await wait(100)
  t.equal(names(cache), '')
})
