/** What the port of a hub stands: strangers, false certificates, nodes that lie, sizes, and readers that take nothing. */
import { once } from 'node:events'
import { type ClientHttp2Session, connect as connectHttp2 } from 'node:http2'
import { connect as connectTcp } from 'node:net'
import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { type HubRequest, MAX_LINE, MAX_REQUEST, type PeerRequest } from '../../kubeapi/remote/wire.ts'
import { certificateToPem, createCsr, createKey, keyToPem } from '../../protocol/identity/identity.ts'
import { HubTree } from '../../compose/hub/hub-tree.ts'
import { HubMember } from '../../kubeapi/remote/hub-member.ts'
import { openHub } from '../../kubeapi/remote/hub-server.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { HUB_SERVER_NAME, createSiteCa, issueNodeCertificate } from '../../protocol/identity/site-certificates.ts'
import { service, serviceImport } from '../compliance/cluster-api.ts'
import { heldBy, newLease } from '../compliance/lease-store.ts'
import { eventually } from '../support/eventually.ts'
import { failure } from '../support/failure.ts'
import { gatewayObject } from '../support/objects/node-objects.ts'
import { attack } from './support/attack.ts'
import { type Caller, HubSite, SITE, SITE_TEXT } from '../kubeapi/remote/hub-site.ts'

const deadline = (): AbortSignal => AbortSignal.timeout(10_000)
const gateway = gatewayObject('gw2')

async function forged(node: string, site = SITE): Promise<Caller> {
  const key = createKey()
  const ca = await createSiteCa(site, Date.now())
  const certificate = await issueNodeCertificate(ca, { site, node, csr: await createCsr(key), nowMs: Date.now() })
  return { key: keyToPem(key), cert: certificateToPem(certificate) }
}

await attack('site-hub-stranger', async (t) => {
  const site = await HubSite.open(t)
  await site.put(service('web'))
  const requests: readonly HubRequest[] = [
    { verb: 'readSite' },
    { verb: 'read', kind: 'Service', name: 'web', namespace: 'shop' },
    { verb: 'apply', object: gateway },
    { verb: 'readLease', name: 'sealane-lane-0' },
    { verb: 'renew', csr: '' },
  ]
  for (const caller of [undefined, await forged('gw2')]) {
    const connection = site.connection(caller)
    for (const request of requests) {
      t.match(await failure(connection.ask(request)), { code: /Unauthorized|Unavailable/ }, request.verb)
    }
    t.match(await failure(connection.watch('Service', () => t.fail('it reads'))), { code: /Unauthorized|Unavailable/ })
  }
  t.equal(await site.files.read('Gateway', 'gw2'), undefined)
})

await attack('site-hub-invitation', async (t) => {
  const site = await HubSite.open(t)
  const csr = async (key = createKey()): Promise<string> => Buffer.from(await createCsr(key)).toString('base64')
  const connection = site.connection(undefined)
  const token = await site.store.invite('gw2', 60_000)
  const other = `${token.slice(0, -1)}${token.endsWith('A') ? 'B' : 'A'}`
  const one = createKey()
  const enrol = async (change: object = {}): Promise<unknown> =>
    (await connection.enrol({ token, node: 'gw2', csr: await csr(one), ...change })).value
  t.match(await failure(enrol({ token: other })), { code: 'Forbidden' }, 'a wrong secret')
  t.match(await failure(enrol({ token: '../../x' })), { code: 'Forbidden' })
  t.match(await failure(enrol({ node: 'gw1' })), { code: 'Forbidden' }, 'another node')
  t.match(await failure(enrol({ csr: 'AAAA' })), { code: 'Invalid' }, 'no request')
  t.match(await enrol(), /BEGIN CERTIFICATE/)
  t.match(await enrol(), /BEGIN CERTIFICATE/, 'an answer can be lost: the same key may ask again')
  t.match(await failure(enrol({ csr: await csr() })), { code: 'Forbidden' }, 'another key may not')
  const short = await site.store.invite('gw3', -1)
  t.match(
    await failure(connection.enrol({ token: short, node: 'gw3', csr: await csr() })),
    { code: 'Forbidden' },
    'late',
  )
  const first = await site.store.invite('gw4', 60_000)
  await site.store.invite('gw4', 60_000)
  t.match(await failure(connection.enrol({ token: first, node: 'gw4', csr: await csr() })), { code: 'Forbidden' })
})

await attack('site-hub-false-hub', async (t) => {
  const site = await HubSite.open(t)
  const other = await createSiteCa('paris', Date.now())
  const connection = site.connection(await site.enrolled('gw2'), { ca: certificateToPem(other.certificate) })
  t.match(await failure(connection.ask({ verb: 'readSite' })), { code: 'Unavailable', message: /certificate/ })
  const renamed = site.connection(await site.enrolled('gw3'), { serverName: 'gw3.example' })
  t.match(await failure(renamed.ask({ verb: 'readSite' })), { code: 'Unavailable' })
})

await attack('site-hub-revoked', async (t) => {
  const site = await HubSite.open(t)
  const connection = site.connection(await site.enrolled('gw2'))
  t.same(await connection.ask({ verb: 'readSite' }), { value: SITE_TEXT })
  await site.store.revoke('gw2')
  t.match(await failure(connection.ask({ verb: 'readSite' })), { code: 'Unauthorized', message: /invite it again/ })
  const again = site.connection(await site.enrolled('gw2'))
  t.same(await again.ask({ verb: 'readSite' }), { value: SITE_TEXT })
  t.match(await failure(connection.ask({ verb: 'readSite' })), { code: 'Unauthorized' }, 'the earlier key')
})

await attack('site-hub-foreign-writes', async (t) => {
  const site = await HubSite.open(t)
  await site.put(service('web'))
  const gw2 = await site.node('gw2')
  await gw2.apply(gateway)
  await gw2.applyStatus(gatewayObject('gw2', { version: '7' }))
  t.equal((await site.files.read('Gateway', 'gw2'))?.status?.version, '7')
  await site.files.apply(gatewayObject('gw1'))
  t.match(await failure(gw2.apply(gatewayObject('gw1'))), { code: 'Forbidden' })
  t.match(await failure(gw2.applyStatus(gatewayObject('gw1', { version: '6' }))), { code: 'Forbidden' })
  t.match(await failure(gw2.remove('Gateway', 'gw1')), { code: 'Forbidden' })
  t.match(await failure(gw2.apply(serviceImport('web'))), { code: 'Forbidden' })
  t.match(await failure(gw2.remove('Membership', 'self')), { code: 'Forbidden' })
  const damaged = gatewayObject('gw2', { connections: 'none' as never })
  t.match(await failure(gw2.applyStatus(damaged)), { code: 'Invalid', message: /status\.connections/ })
  t.equal((await site.files.read('Gateway', 'gw2'))?.status?.version, '7', 'what no component could read is not stored')
  await site.files.leases.write(newLease('gw1'), deadline())
  const lease = await gw2.leases.read('sealane-lane-0', deadline())
  t.match(await failure(gw2.leases.write(heldBy(lease, 'gw2'), deadline())), { code: 'Forbidden' }, 'gw1 has it')
  t.match(await failure(gw2.leases.write(newLease('gw2', 'sealane-agent'), deadline())), { code: 'Forbidden' })
  t.match(await failure(gw2.leases.write(newLease('gw2', '../x'), deadline())), { code: 'Invalid' })
})

/** One HTTP/2 session without any rule of our client. */
async function session(t: Test, site: HubSite, own: object = {}): Promise<ClientHttp2Session> {
  const one = connectHttp2(`https://127.0.0.1:${site.port}`, {
    ...own,
    servername: HUB_SERVER_NAME,
    rejectUnauthorized: false,
  })
  one.on('error', () => undefined)
  t.teardown(() => one.destroy())
  await once(one, 'connect')
  return one
}

async function sent(one: ClientHttp2Session, path: string, body: string | Buffer, method = 'POST'): Promise<string> {
  const stream = one.request({ ':method': method, ':path': path })
  stream.on('error', () => undefined)
  let status = 'none'
  stream.on('response', (headers) => (status = String(headers[':status'])))
  stream.end(method === 'GET' ? undefined : body)
  stream.resume()
  await once(stream, 'close').catch(() => undefined)
  return status
}

await attack('site-hub-malformed', async (t) => {
  const site = await HubSite.open(t)
  const one = await session(t, site, await site.enrolled('gw2'))
  const rows: readonly [string, string | Buffer, string][] = [
    ['/v1/ask', '', '400'],
    ['/v1/ask', '[]', '400'],
    ['/v1/ask', 'null', '400'],
    ['/v1/ask', '{"verb":"drop"}', '400'],
    ['/v1/ask', '{"verb":"read","kind":"Secret","name":"x"}', '400'],
    ['/v1/ask', '{"verb":"read","kind":"constructor","name":"x"}', '400'],
    ['/v1/ask', '{"verb":"read","kind":"Gateway","name":"../../etc/passwd"}', '400'],
    ['/v1/ask', '{"verb":"readLease","name":"../../etc"}', '400'],
    ['/v1/ask', '{"verb":"apply","object":{"kind":"Gateway","apiVersion":"x","metadata":{"name":7}}}', '400'],
    ['/v1/ask', Buffer.alloc(MAX_REQUEST + 1, 0x20), '400'],
    ['/v1/other', '{}', '404'],
    ['/', '{}', '404'],
  ]
  for (const [path, body, status] of rows)
    t.equal(await sent(one, path, body), status, `${path} ${String(body).slice(0, 60)}`)
  t.equal(await sent(one, '/v1/watch/Secret', '', 'GET'), '404')
  t.equal(await sent(one, '/v1/watch/../ask', '', 'GET'), '404')
  t.equal(await sent(one, '/v1/ask', '{"verb":"readSite"}'), '200', 'and the next one is answered')
})

await attack('site-hub-held-connections', async (t) => {
  const site = await HubSite.open(t)
  const sockets = Array.from({ length: 40 }, () => connectTcp(site.port, '127.0.0.1').on('error', () => undefined))
  t.teardown(() => sockets.forEach((socket) => socket.destroy()))
  const ended: string[] = []
  for (let i = 0; i < 40; i += 1) {
    const one = connectHttp2(`https://127.0.0.1:${site.port}`, {
      servername: HUB_SERVER_NAME,
      rejectUnauthorized: false,
    })
    one.on('error', () => undefined)
    one.on('close', () => void ended.push('closed'))
    t.teardown(() => one.destroy())
  }
  await eventually(() => ended.length >= 24, { say: 'more than 16 strangers are sent away at once' })
  t.same(await site.connection(await site.enrolled('gw2')).ask({ verb: 'readSite' }), { value: SITE_TEXT })
  await eventually(() => ended.length === 40, { deadlineMs: 30_000, say: 'the others after 10 s' })
})

await attack('site-hub-stuck-reader', async (t) => {
  const site = await HubSite.open(t)
  const one = await session(t, site, await site.enrolled('gw2'))
  const stuck = one.request({ ':method': 'GET', ':path': '/v1/watch/Service' })
  stuck.on('error', () => undefined)
  await once(stuck, 'response')
  stuck.pause()
  const gw3 = await site.node('gw3')
  const cache = gw3.cache('Service')
  await cache.whenSynced(deadline())
  for (let port = 1; port <= 60; port += 1) {
    const web = service('web', port)
    await site.files.apply({ ...web, metadata: { ...web.metadata, annotations: { filler: 'x'.repeat(20_000) } } })
  }
  await eventually(() => cache.get('web', 'shop')?.spec?.ports?.[0]?.port === 60)
  let text = ''
  stuck.setEncoding('utf8')
  stuck.on('data', (part: string) => (text += part))
  stuck.resume()
  await eventually(() => text.includes('"port":60'))
  t.ok(text.split('"set"').length < 30, 'changes that were overtaken are not sent')
})

await attack('site-hub-flood', async (t) => {
  const site = await HubSite.open(t)
  const one = await session(t, site, await site.enrolled('gw2'))
  const ends = await Promise.all(
    Array.from({ length: 6 }, async () => {
      const statuses: string[] = []
      for (let i = 0; i < 150; i += 1) statuses.push(await sent(one, '/v1/ask', '{"verb":"readSite"}'))
      return statuses
    }),
  )
  t.ok(ends.flat().includes('503'), 'refused beyond its rate')
  t.same(await site.connection(await site.enrolled('gw3')).ask({ verb: 'readSite' }), { value: SITE_TEXT })
})

/** A hub in term 3 that follows: its files are in `folder`. */
async function following(t: Test): Promise<{ readonly site: HubSite; readonly folder: string }> {
  const site = await HubSite.open(t)
  await site.stop()
  const folder = temporaryFolder(t)
  const clock = new SystemClock()
  const places = { file: join(folder, 'site.yaml'), objects: join(folder, 'objects'), state: join(folder, 'state') }
  const tree = new HubTree(places, clock)
  await tree.setMembers(['a:1', 'b:1', 'c:1'])
  const none = (): never => {
    throw new Error('it follows')
  }
  const member = new HubMember(
    {
      ...{ clock, logger: site.logger, tree, act: none, connect: none },
      save: () => Promise.resolve(),
      takePromotion: () => false,
    },
    { hubs: ['a:1'], own: 'a:1', stored: { term: 3, version: { term: 3, index: 5 }, acts: false } },
  )
  const identify = (certificate: Uint8Array) => site.store.identify(certificate)
  const peer = (request: PeerRequest) => member.answer(request)
  const base = { clock, logger: site.logger, identify, peer }
  const { hub, port } = await openHub(base, { host: '127.0.0.1', port: 0, tls: await site.store.serverTls() })
  t.teardown(() => hub.close())
  site.port = port
  return { site, folder }
}

const follow = (change: Partial<Extract<PeerRequest, { verb: 'follow' }>> = {}): PeerRequest => ({
  ...{ verb: 'follow', term: 4, hub: 'b:1', files: [['objects/evil.yaml', 'AAAA']] },
  ...change,
})

await attack('site-hub-false-peer', async (t) => {
  const { site, folder } = await following(t)
  const written = (): boolean => existsSync(join(folder, 'objects'))
  const vote: PeerRequest = { verb: 'vote', term: 9, hub: 'b:1', version: { term: 9, index: 9 }, isTrial: false }
  const node = await site.enrolled('gw2')
  for (const [caller, code] of [
    [node, /Forbidden/],
    [undefined, /Unauthorized/],
    [await forged('gw2'), /Unauthorized|Unavailable/],
  ] as const) {
    const connection = site.connection(caller)
    for (const request of [vote, follow()]) t.match(await failure(connection.askPeer(request)), { code }, request.verb)
  }
  const connection = site.connection(await site.enrolled('gw3', true))
  for (const path of [
    '../outside.yaml',
    'objects/../../outside.yaml',
    '/etc/passwd',
    'state/node/node.key',
    'state/term/term.json',
    'objects/.hidden.yaml',
    'objects//a.yaml',
    'objects/a\0.yaml',
    'state/hub',
  ]) {
    t.match(await failure(connection.askPeer(follow({ files: [[path, 'AAAA']] }))), { code: 'Invalid' }, path)
  }
  t.notOk(written())
  t.same(readdirSync(folder), ['state'])
  await site.store.revoke('gw3')
  t.match(await failure(connection.askPeer(follow())), { code: 'Unauthorized' })
  t.notOk(written())
})

await attack('site-hub-old-term', async (t) => {
  const { site, folder } = await following(t)
  const connection = site.connection(await site.enrolled('gw3', true))
  const version = { term: 3, index: 5 }
  t.match(await connection.askPeer(follow({ term: 2 })), { term: 3, version })
  const vote: PeerRequest = { verb: 'vote', term: 2, hub: 'b:1', version: { term: 9, index: 9 }, isTrial: false }
  t.match(await connection.askPeer(vote), { term: 3, granted: false })
  t.match(await connection.askPeer({ ...vote, term: 9 }), { granted: false }, 'the acting hub may be there')
  t.match(await connection.askPeer(follow({ base: { term: 3, index: 4 } })), { version }, 'changes for another version')
  const large = 'A'.repeat(MAX_LINE)
  t.match(await failure(connection.askPeer(follow({ files: [['objects/large.yaml', large]] }))), {
    code: /Invalid|Unavailable/,
  })
  t.notOk(existsSync(join(folder, 'objects')), 'no file was written')
})
