/** How the file driver follows a user's files: broken, half-written, saved by editors, moved, removed. */
import { execFileSync } from 'node:child_process'
import {
  closeSync,
  mkdirSync,
  openSync,
  renameSync,
  rmSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { eventually } from '../../../support/eventually.ts'
import { FileSite, names, serviceYaml, synced, wait } from '../file-site.ts'

const BROKEN = 'apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n spec: {}\n'

t.test('a broken file is reported with its place, keeps its last good state and touches no other', async (t) => {
  const site = new FileSite(t)
  site.write('a.yaml', serviceYaml('web'))
  site.write('b.yaml', serviceYaml('api'))
  const api = site.open()
  const cache = await synced(api, 'Service')
  t.equal(names(cache), 'api web')
  const before = cache.get('web', 'shop')

  site.write('a.yaml', BROKEN)
  site.write('b.yaml', serviceYaml('api', 81))
  await eventually(() => api.problems().length > 0)
  t.match(api.problems(), [
    { file: site.path('a.yaml'), line: 5, column: 1, reason: 'All mapping items must start at the same column' },
  ])
  t.same(site.warnings(), [
    'the file is not valid: objects/a.yaml:5:1: All mapping items must start at the same column',
  ])
  await eventually(() => cache.get('api', 'shop')?.spec?.ports?.[0]?.port === 81)
  t.equal(cache.get('web', 'shop'), before)

  site.write('a.yaml', serviceYaml('web', 82))
  await eventually(() => cache.get('web', 'shop')?.spec?.ports?.[0]?.port === 82)
  t.same(api.problems(), [])
  t.equal(cache.get('web', 'shop')?.metadata.uid, before?.metadata.uid)
  t.ok(site.logger.messages('info').includes('the file is valid again'))
})

t.test('the last good state of a broken file outlives restarts', async (t) => {
  const site = new FileSite(t)
  site.write('a.yaml', serviceYaml('web'))
  const first = site.open()
  const uid = (await synced(first, 'Service')).get('web', 'shop')?.metadata.uid
  await first.close()
  site.write('a.yaml', serviceYaml('web', 'abc'))
  for (const round of [1, 2]) {
    const api = site.open()
    const cache = await synced(api, 'Service')
    t.match(cache.list(), [{ metadata: { name: 'web', uid }, spec: { ports: [{ port: 80 }] } }], `start ${round}`)
    const [problem] = api.problems()
    t.match(problem, { line: 8, column: 13, reason: 'spec.ports[0].port: expected 1 to 65535, got "abc"' })
    await api.close()
  }
  unlinkSync(site.path('a.yaml'))
  t.equal(names(await synced(site.open(), 'Service')), '', 'a file deleted meanwhile is gone')
})

t.test('one wrong object keeps the whole file back', async (t) => {
  const site = new FileSite(t)
  const api = site.open()
  const cache = await synced(api, 'Service')
  site.write('a.yaml', `${serviceYaml('one')}---\n${serviceYaml('two', 0)}`)
  await eventually(() => api.problems().length === 1)
  t.equal(names(cache), '')
  site.write('a.yaml', `${serviceYaml('one')}---\n${serviceYaml('two', 2)}`)
  await eventually(() => names(cache) === 'one two')
})

t.test('a file somebody is still writing is never taken half', async (t) => {
  const site = new FileSite(t)
  const cache = await synced(site.open(), 'Service')
  const seen = new Set<string>()
  cache.onChange(() => queueMicrotask(() => seen.add(names(cache))))
  const file = openSync(site.path('a.yaml'), 'w')
  writeSync(file, serviceYaml('one'))
  await wait(400)
  writeSync(file, `---\n${serviceYaml('two').slice(0, 60)}`)
  await wait(100)
  writeSync(file, serviceYaml('two').slice(60))
  closeSync(file)
  await eventually(() => names(cache) === 'one two')

  const again = openSync(site.path('a.yaml'), 'w')
  await wait(400)
  t.equal(names(cache), 'one two', 'truncated, not yet written')
  writeSync(again, `${serviceYaml('one', 81)}---\n${serviceYaml('two')}`)
  closeSync(again)
  await eventually(() => cache.get('one', 'shop')?.spec?.ports?.[0]?.port === 81)
  t.same([...seen], ['one two'])
})

t.test('files removed and written anew: the one that is being written is not taken half', async (t) => {
  const site = new FileSite(t)
  site.write('a.yaml', `${serviceYaml('one')}---\n${serviceYaml('two')}`)
  site.write('b.yaml', serviceYaml('three'))
  const cache = await synced(site.open(), 'Service')
  const seen = new Set<string>()
  cache.onChange(() => queueMicrotask(() => seen.add(names(cache))))
  unlinkSync(site.path('a.yaml'))
  unlinkSync(site.path('b.yaml'))
  // inotify reports this like a rename of b.yaml to a.yaml.
  const file = openSync(site.path('a.yaml'), 'w')
  writeSync(file, serviceYaml('one'))
  await eventually(() => seen.size > 0, { say: 'b.yaml is gone' })
  await wait(300)
  writeSync(file, `---\n${serviceYaml('two', 81)}`)
  closeSync(file)
  await eventually(() => cache.get('two', 'shop')?.spec?.ports?.[0]?.port === 81)
  t.same([...seen], ['one two'])
})

t.test('a link to a folder is not followed, whenever it is made', async (t) => {
  const site = new FileSite(t)
  mkdirSync(join(site.folder, 'elsewhere'))
  writeFileSync(join(site.folder, 'elsewhere', 'a.yaml'), serviceYaml('linked'))
  symlinkSync('../elsewhere', site.path('before'))
  const cache = await synced(site.open(), 'Service')
  symlinkSync('../elsewhere', site.path('after'))
  symlinkSync('.', site.path('circle'))
  site.write('b.yaml', serviceYaml('web'))
  await eventually(() => names(cache) !== '')
  t.equal(names(cache), 'web')
})

t.test('an object taken out of a file in place goes, after a pause', async (t) => {
  const site = new FileSite(t)
  site.write('a.yaml', `${serviceYaml('one')}---\n${serviceYaml('two')}`)
  const cache = await synced(site.open(), 'Service')
  site.write('a.yaml', serviceYaml('one'))
  await eventually(() => names(cache) === 'one')
  site.write('a.yaml', '')
  await eventually(() => names(cache) === '')
})

t.test('saves of editors are changes, not removals', async (t) => {
  const saves: Record<string, (path: string, text: string) => void> = {
    'vim: rename to backup, write anew, remove backup': (path, text) => {
      renameSync(path, `${path}~`)
      writeFileSync(path, text)
      unlinkSync(`${path}~`)
    },
    'atomic: temporary file renamed over': (path, text) => {
      writeFileSync(`${path}.new`, text)
      renameSync(`${path}.new`, path)
    },
    'sed -i': (path, text) => {
      execFileSync('sed', ['-i', `s/port: .*/port: ${/port: (\d+)/.exec(text)?.[1] ?? ''}/`, path])
    },
    'remove and write': (path, text) => {
      unlinkSync(path)
      writeFileSync(path, text)
    },
    'in place': (path, text) => writeFileSync(path, text),
  }
  const site = new FileSite(t)
  site.write('a.yaml', serviceYaml('web'))
  const cache = await synced(site.open(), 'Service')
  const uid = cache.get('web', 'shop')?.metadata.uid
  const changes: string[] = []
  cache.onChange((change) => changes.push(change?.type ?? 'synced'))
  let port = 1000
  for (const [title, save] of Object.entries(saves)) {
    port += 1
    save(site.path('a.yaml'), serviceYaml('web', port))
    await eventually(() => cache.get('web', 'shop')?.spec?.ports?.[0]?.port === port, { say: title })
    t.equal(cache.get('web', 'shop')?.metadata.uid, uid, title)
  }
  t.notOk(changes.includes('removed'))
  t.same(site.warnings(), [])
})

t.test('a file renamed to another name keeps its objects; a duplicate names both places', async (t) => {
  const site = new FileSite(t)
  site.write('b.yaml', serviceYaml('web', 1))
  const api = site.open()
  const cache = await synced(api, 'Service')
  const uid = cache.get('web', 'shop')?.metadata.uid
  const changes: string[] = []
  cache.onChange((change) => changes.push(change?.type ?? 'synced'))
  renameSync(site.path('b.yaml'), site.path('c.yaml'))
  await wait(250)
  t.same(changes, [])
  t.same(site.warnings(), [])

  site.write('a.yaml', `# first in order\n${serviceYaml('web', 2)}`)
  await eventually(() => cache.get('web', 'shop')?.spec?.ports?.[0]?.port === 2)
  await eventually(() => api.problems().length === 1)
  t.same(site.warnings(), [
    'the file is not valid: objects/c.yaml:1:1: Service shop/web is also in objects/a.yaml:2, which counts; remove one of the two',
  ])
  unlinkSync(site.path('a.yaml'))
  await eventually(() => cache.get('web', 'shop')?.spec?.ports?.[0]?.port === 1)
  await eventually(() => api.problems().length === 0)
  t.equal(cache.get('web', 'shop')?.metadata.uid, uid, 'never gone in between')
})

t.test('folders, lists, JSON and kinds we do not know', async (t) => {
  const site = new FileSite(t, 'objects/state')
  site.write('shop/web.yml', serviceYaml('web'))
  site.write('README.md', 'not ours')
  site.write('.hidden.yaml', serviceYaml('hidden'))
  site.write('a.yaml~', serviceYaml('backup'))
  site.write(
    'apps.yaml',
    'apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n---\napiVersion: serving.knative.dev/v1\nkind: Service\n',
  )
  const item = {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: 'listed', namespace: 'shop', creationTimestamp: null },
  }
  site.write('list.json', JSON.stringify({ apiVersion: 'v1', kind: 'List', items: [item] }))
  const api = site.open()
  const cache = await synced(api, 'Service')
  t.equal(names(cache), 'listed web')
  t.equal(api.ignoredObjects(), 2)
  await api.apply({ ...item, kind: 'Service', apiVersion: 'v1', metadata: { name: 'ours', namespace: 'shop' } })

  site.write('new/deep/er.yaml', serviceYaml('deep'))
  await eventually(() => names(cache) === 'deep listed ours web')
  mkdirSync(site.path('moved'))
  renameSync(site.path('new'), site.path('moved/new'))
  await wait(200)
  t.equal(names(cache), 'deep listed ours web')
  rmSync(site.path('moved'), { recursive: true })
  await eventually(() => names(cache) === 'listed ours web')
  t.same(site.warnings(), [])
})

t.test('a folder that is gone as a whole says nothing about its objects', async (t) => {
  const site = new FileSite(t)
  site.write('a.yaml', serviceYaml('web'))
  const api = site.open()
  const cache = await synced(api, 'Service')
  renameSync(site.objects, join(site.folder, 'away'))
  await eventually(() => api.problems().length === 1)
  t.match(api.problems(), [{ file: site.objects, reason: 'no such folder' }])
  await wait(200)
  t.equal(names(cache), 'web')
  const second = site.open()
  t.equal(names(await synced(second, 'Service')), 'web', 'also for a process that starts now')
  mkdirSync(site.objects)
  site.write('b.yaml', serviceYaml('other'))
  await eventually(() => names(cache) === 'other')
  await eventually(() => api.problems().length === 0)
})

t.test('what the watches miss is found by the next full look', async (t) => {
  const site = new FileSite(t)
  const outside = join(site.folder, 'outside.yaml')
  writeFileSync(outside, serviceYaml('linked', 1))
  execFileSync('ln', ['-s', outside, site.path('link.yaml')])
  const cache = await synced(site.open({ rescanMs: 50 }), 'Service')
  t.equal(cache.get('linked', 'shop')?.spec?.ports?.[0]?.port, 1)
  // The file is behind a symbolic link, so the folder gets no event.
  writeFileSync(outside, serviceYaml('linked', 2))
  await eventually(() => cache.get('linked', 'shop')?.spec?.ports?.[0]?.port === 2)
})

t.test('an unreadable entry is reported by name', async (t) => {
  const site = new FileSite(t)
  mkdirSync(join(site.folder, 'x'))
  execFileSync('ln', ['-s', join(site.folder, 'x'), site.path('folder.yaml')])
  const api = site.open()
  await synced(api, 'Service')
  t.match(api.problems(), [{ file: site.path('folder.yaml'), reason: 'not a regular file' }])
})

t.test('a file that is too large is not read', async (t) => {
  const site = new FileSite(t)
  const fits = 8 * 1024 * 1024
  const filled = (size: number): string => serviceYaml('web').padEnd(size, '#')
  site.write('fits.yaml', filled(fits))
  site.write('large.yaml', filled(fits + 1).replaceAll('web', 'api'))
  const api = site.open()
  const cache = await synced(api, 'Service')
  t.equal(names(cache), 'web')
  t.same(
    api.problems().map(({ file, reason }) => `${file}: ${reason}`),
    [`${site.path('large.yaml')}: 8.1 MiB: expected at most 8 MiB; split the file`],
  )
})

t.test('a policy that cannot be read closes what it may be about, until it is valid', async (t) => {
  const site = new FileSite(t)
  const exported = (namespace: string): string =>
    `apiVersion: multicluster.x-k8s.io/v1alpha1\nkind: ServiceExport\nmetadata: { name: web, namespace: ${namespace} }\n`
  const policy = (from: string, namespace = 'shop'): string =>
    `apiVersion: sealane.io/v1alpha1\nkind: AccessPolicy\nmetadata: { name: own, namespace: ${namespace} }\nspec: { from: ${from} }\n`
  site.write('shop.yaml', exported('shop'))
  site.write('till.yaml', exported('till'))
  site.write('own.yaml', policy('all'))
  site.write('service.yaml', serviceYaml('db', 'x'))
  const read = async () => {
    const api = site.open()
    const policies = await synced(api, 'AccessPolicy')
    const namespaces = await synced(api, 'Namespace')
    const shown = (): string =>
      policies
        .list()
        .map(({ metadata: { namespace, name } }) => `${namespace}/${name}`)
        .join(' ')
    return { api, shown, namespaces }
  }
  const { api, shown, namespaces } = await read()
  t.equal(shown(), 'shop/unread-policy-file', 'from the start, and for no other reason')
  const file = api.cache('AccessPolicy').get('unread-policy-file', 'shop')
  t.equal(file?.metadata.annotations?.['sealane.io/unread-file'], site.path('own.yaml'))
  t.match(site.warnings().join('\n'), /a policy cannot be read: .*own\.yaml/)
  site.write('own.yaml', 'kind: AccessPolicy\nspec: [\n')
  await eventually(() => shown() === 'shop/unread-policy-file till/unread-policy-file', { say: 'all exports' })
  site.write('bank.yaml', exported('bank'))
  await eventually(() => shown().startsWith('bank/unread-policy-file '), { say: 'later ones too' })
  t.equal((await read()).shown(), shown(), 'another process sees the same')
  site.write('own.yaml', policy('[]'))
  await eventually(() => shown() === 'shop/own', { say: 'mended' })
  site.write('own.yaml', policy('all'))
  await eventually(() => api.problems().some(({ file: at }) => at.endsWith('own.yaml')), { say: 'invalid again' })
  t.equal(shown(), 'shop/own', 'what was valid before stays in force')
  site.write('else.yaml', policy('all', 'nowhere'))
  await eventually(() => api.problems().some(({ file: at }) => at.endsWith('else.yaml')), { say: 'one more' })
  t.equal(shown(), 'shop/own', 'a namespace without exports')
  t.notOk(namespaces.get('nowhere'), 'which does not come to be')
  site.write('calls.yaml', 'apiVersion: sealane.io/v1alpha1\nkind: ClusterAccessPolicy\nspec: { egress: 1 }\n')
  const ofCluster = await synced(api, 'ClusterAccessPolicy')
  await eventually(() => ofCluster.get('default')?.spec.egress?.length === 0, { say: 'calls of this cluster' })
  t.equal(ofCluster.get('default')?.spec.default, 'deny')
  rmSync(site.path('calls.yaml'))
  await eventually(() => ofCluster.list().length === 0 && shown() === 'shop/own', { say: 'removed' })
})

t.test('a file whose text cannot be read closes all exports, unless it was valid before', async (t) => {
  const site = new FileSite(t)
  const policy =
    'apiVersion: sealane.io/v1alpha1\nkind: AccessPolicy\nmetadata: { name: own, namespace: shop }\nspec: { from: [] }\n'
  const folder = join(site.folder, 'x')
  const large = '#'.padEnd(8 * 1024 * 1024 + 1, '#')
  mkdirSync(folder)
  site.write(
    'shop.yaml',
    'apiVersion: multicluster.x-k8s.io/v1alpha1\nkind: ServiceExport\nmetadata: { name: web, namespace: shop }\n',
  )
  const file = site.path('own.yaml')
  symlinkSync(folder, file)
  symlinkSync(folder, site.path('notes.txt'))
  const api = site.open()
  const policies = await synced(api, 'AccessPolicy')
  const shown = (): string | undefined =>
    policies
      .list()
      .map(({ metadata: { name } }) => name)
      .join(' ')
  t.equal(shown(), 'unread-policy-file', 'from the start')
  t.match(site.warnings().join('\n'), /a policy cannot be read: .*own\.yaml/)
  rmSync(file)
  await eventually(() => shown() === '', { say: 'gone, and a file of another sort does not count' })
  writeFileSync(file, large)
  await eventually(() => shown() === 'unread-policy-file', { say: 'too large' })
  site.write('own.yaml', policy)
  await eventually(() => shown() === 'own' && api.problems().length === 0, { say: 'mended' })
  site.write('own.yaml', large)
  await eventually(() => api.problems().length === 1, { say: 'unreadable again' })
  await api.close()
  const again = await synced(site.open(), 'AccessPolicy')
  for (const cache of [policies, again])
    t.same(
      cache.list().map(({ metadata: { name } }) => name),
      ['own'],
      'what was valid before stays in force',
    )
})
