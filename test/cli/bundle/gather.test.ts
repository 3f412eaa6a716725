/** `sealane gather` of a site: what the bundle contains, what it leaves out, and `sealane status` of the bundle. */
import { readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { gunzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { type BundleItem, collect } from '../../../cli/bundle/items.ts'
import { spellingsOf } from '../../../cli/bundle/redactor.ts'
import { unpackTar } from '../../../cli/bundle/tar.ts'
import { FileApi } from '../../../kubeapi/files/file-api.ts'
import type { KubeObject } from '../../../model/objects.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { HEALTHY_BROKER, healthyObjects } from '../../support/objects/member-facts.ts'
import { runCli } from '../run-cli.ts'
import { SiteFolder } from '../site-folder.ts'
import { CARRIERS, PASSWORD, PRIVATE_PEM, SECRETS } from './planted-secrets.ts'

const LINES = CARRIERS.join('\n')

/** Starts a healthy site with a secret in every text that a user may write. */
async function plantedSite(t: Test): Promise<SiteFolder> {
  const site = new SiteFolder(t)
  site.remove('objects/nodes.yaml')
  const init = { objects: site.path('objects'), state: site.path('state') }
  const api = new FileApi({ clock: new SystemClock(), logger: new CapturingLogger() }, init)
  const all = Object.entries(healthyObjects({ kubernetes: false })).filter(([kind]) => kind !== 'Lease')
  for (const item of all.flatMap(([, items]) => items as readonly KubeObject[])) {
    const object = planted(item)
    await api.apply(object)
    if ('status' in object) await api.applyStatus(object)
  }
  await api.close()
  return site
}

function planted(object: KubeObject): KubeObject {
  if (object.kind === 'Gateway' && object.status !== undefined) {
    const connections = object.status.connections.map((one, index) => ({
      ...one,
      message: CARRIERS[index % CARRIERS.length] ?? '',
    }))
    const heartbeatTime = new Date().toISOString()
    return { ...object, status: { ...object.status, heartbeatTime, connections } }
  }
  if (object.kind !== 'ServiceExport') return object
  const annotations = Object.fromEntries(CARRIERS.map((text, index) => [`example.org/note-${index}`, text]))
  return { ...object, metadata: { ...object.metadata, annotations } }
}

/** Serves a status page whose plans, metrics and reasons all contain secrets. */
async function plantedPage(t: Test): Promise<string> {
  const agent = { part: 'site', version: '0.1.0', ready: true, note: LINES }
  const broker = { ...HEALTHY_BROKER, certificateEnds: '2036-01-01T00:00:00Z' }
  const server = createServer((request, response) => {
    if (request.url === '/readyz') response.writeHead(503)
    response.end(request.url === '/status' ? JSON.stringify({ ...agent, broker }) : `# add rule comment "${LINES}"\n`)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => server.close())
  return `127.0.0.1:${(server.address() as AddressInfo).port}`
}

function filesOf(bundle: string): ReadonlyMap<string, Buffer> {
  return unpackTar(gunzipSync(readFileSync(bundle)), 5000)
}

function findSecrets(t: Test, where: string, text: string): void {
  const found = SECRETS.flatMap(spellingsOf).filter((spelling) => text.includes(spelling))
  t.same(found, [], where)
}

t.test('a bundle has objects, plans, kernel, metrics and logs, no secret, and status reads it', async (t) => {
  const site = await plantedSite(t)
  const at = await plantedPage(t)
  site.write('sealane.log', LINES)
  const file = site.path('bundle.tar.gz')
  const words = ['gather', '--site', site.file, '--ask', at, '--log', site.path('sealane.log'), '-o', file]
  const { code, stdout, stderr } = await runCli(words)
  t.equal(code, 0, stderr)
  t.equal(stdout, `${file}\n`)
  t.match(stderr, `not included: ready/${at}.txt: ${at} answers 503`)
  t.equal(statSync(file).mode & 0o777, 0o600)
  const files = filesOf(file)
  for (const name of ['bundle.json', 'facts.json', 'objects/Gateway.json', `plans/${at}.txt`, 'logs/file-1.txt']) {
    t.ok((files.get(`sealane-gather/${name}`)?.length ?? 0) > 100, name)
  }
  for (const [name, content] of files) findSecrets(t, name, content.toString())
  t.match(
    String(files.get('sealane-gather/logs/file-1.txt')),
    /etcd: https:\/\/root:<redacted>@10\.0\.0\.1:2379 refused/,
  )

  const looked = await runCli(['status', '--bundle', file])
  t.match(looked.stdout, /^milano in clusterset demo: healthy\n/)
  t.same([looked.code, looked.stderr], [0, ''])

  const again = await runCli(words)
  t.same([again.code, again.stdout], [1, ''])
  t.match(again.stderr, 'the file already exists')
  const forced = await runCli([...words, '--force'])
  t.equal(forced.code, 0)
  t.equal((await runCli(['status', '--bundle', file])).stdout.split('\n')[0], looked.stdout.split('\n')[0])
  t.same(
    readdirSync(site.folder).filter((name) => name.endsWith('.part')),
    [],
    'nothing is left behind',
  )
})

t.test('objects of Kubernetes: variables, commands, Secrets, settings', async (t) => {
  const pod = {
    kind: 'Pod',
    metadata: {
      name: 'agent',
      managedFields: [{ note: PASSWORD }],
      annotations: { 'kubectl.kubernetes.io/last-applied-configuration': JSON.stringify({ a: PRIVATE_PEM }) },
    },
    spec: {
      containers: [
        {
          name: 'agent',
          args: ['up', '--etcd-password', PASSWORD, '--node', 'n1', ...CARRIERS],
          env: [{ name: 'NOTE', value: PASSWORD }, { name: 'ETCD_PASSWORD', value: PASSWORD }, { name: 'FROM' }],
        },
      ],
      volumes: [{ name: 'v', secret: { secretName: 'sealane-identity' } }],
    },
  }
  const secret = { kind: 'Secret', data: { a: Buffer.from(PASSWORD).toString('base64') }, stringData: { b: PASSWORD } }
  const settings = { kind: 'ConfigMap', data: Object.fromEntries(CARRIERS.map((text, index) => [`k${index}`, text])) }
  const items = [pod, secret, settings].map((json): BundleItem => {
    return { name: `objects/${json.kind}.json`, ms: 1000, maxBytes: 1 << 20, ask: () => Promise.resolve({ json }) }
  })
  const failing: BundleItem = { name: 'bad.txt', ms: 1000, maxBytes: 9, ask: () => Promise.reject(new Error(LINES)) }
  const { files, missing } = await collect([...items, failing], new AbortController().signal)
  for (const { name, content } of files) findSecrets(t, name, content.toString())
  findSecrets(t, 'why an item is missing', JSON.stringify(missing))
  const text = files.map(({ content }) => content.toString()).join('')
  for (const kept of ['"--node"', '"n1"', '"ETCD_PASSWORD"', '"sealane-identity"', '"k3"']) t.match(text, kept)
})

t.test('an item that hangs, fails or is too large costs itself alone', async (t) => {
  const item = (name: string, rest: Partial<BundleItem>): BundleItem => {
    return { name, ms: 200, maxBytes: 100, ask: () => Promise.resolve({ text: 'ok' }), ...rest }
  }
  // The timer of the deadline alone would not keep this process alive.
  const held = setInterval(() => undefined, 1000)
  t.teardown(() => clearInterval(held))
  const hanging = new Promise<never>(() => undefined)
  const long = Array.from({ length: 100 }, (_one, index) => `line ${index}\n`).join('')
  const items = [
    item('good', {}),
    item('hangs', { ask: () => hanging }),
    item('fails', { ask: () => Promise.reject(new Error('no such device')) }),
    item('large', { ask: () => Promise.resolve({ text: long }) }),
    item('end', { keeps: 'end', ask: () => Promise.resolve({ text: long }) }),
    item('beginning', { keeps: 'beginning', ask: () => Promise.resolve({ text: long }) }),
    item('../climbs', {}),
  ]
  const { files, missing } = await collect(items, new AbortController().signal)
  t.same(
    files.map(({ name }) => name),
    ['good', 'end', 'beginning'],
  )
  t.match(String(files[1]?.content), /^# cut: 790 bytes were there\n[^]*line 99\n$/)
  t.match(String(files[2]?.content), /^# cut: 790 bytes were there\nline 0\n/)
  t.same(missing, [
    { item: 'hangs', why: 'no answer within 200ms' },
    { item: 'fails', why: 'no such device' },
    { item: '../climbs', why: 'its name cannot be the name of a file' },
    { item: 'large', why: 'larger than 100 bytes' },
  ])
})

t.test('a file that is no bundle is told, with the exit code of a command that could not look', async (t) => {
  const site = new SiteFolder(t)
  for (const [name, content] of [
    ['empty', ''],
    ['text', 'hello'],
    ['folder', undefined],
  ] as const) {
    if (content !== undefined) writeFileSync(site.path(name), content)
    const { code, stdout, stderr } = await runCli(['status', '--bundle', site.path(name)])
    t.same([code, stdout], [3, ''], name)
    t.match(stderr, `--bundle ${site.path(name)}: `)
    t.equal(stderr.trim().split('\n').length, 2, stderr)
  }
})
