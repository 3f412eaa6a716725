/** Who tries the admin service of a broker without being its operator, or as one who mistakes something. */
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { type ClientHttp2Session, connect as connectHttp2 } from 'node:http2'
import { type Socket, connect } from 'node:net'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import type { Test } from 'tap'
import { withAdminClient } from '../../protocol/admin/admin-client.ts'
import type { BrokerAdmin } from '../../protocol/admin/admin-api.ts'
import { adminSocket } from '../../protocol/admin/admin-socket.ts'
import { readLines } from '../broker/audit/audit-lines.ts'
import { eventually } from '../support/eventually.ts'
import { failure, messageOf } from '../support/failure.ts'
import { freePort } from '../support/free-port.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { attack } from './support/attack.ts'
import { type BrokerHere, brokerHere } from './support/broker-here.ts'
import { rawJoin } from './support/raw-join.ts'

const UNIMPLEMENTED = '12'
const INVALID_ARGUMENT = '3'
const RESOURCE_EXHAUSTED = '8'

interface World extends BrokerHere {
  readonly port: number
  readonly audit: string
  readonly admin: <T>(work: (admin: BrokerAdmin) => Promise<T>) => Promise<T>
  /** All that an attack could change. */
  readonly seen: () => Promise<string>
}

async function world(t: Test, state = temporaryFolder(t)): Promise<World> {
  const [port, audit] = [await freePort(), join(temporaryFolder(t), 'audit.log')]
  const config = { adminListen: `127.0.0.1:${port}`, audit: { log: audit, maxBytes: 0, keep: 1 } }
  const broker = await brokerHere(t, { ...config, state })
  await rawJoin(broker, 'paris')
  const { signal } = new AbortController()
  const admin = <T>(work: (admin: BrokerAdmin) => Promise<T>): Promise<T> =>
    withAdminClient({ socket: adminSocket(state), operator: { user: 'ana' }, signal }, work)
  const seen = (): Promise<string> =>
    admin(async (one) => {
      const members = (await one.members()).map(({ id, state }) => `${id} ${state}`)
      const files = readdirSync(state).filter((name) => !/-(wal|shm)$|^state\.mark|\.tmp$/.test(name))
      return JSON.stringify([members, await one.tokens(), await one.clustersets(), files])
    })
  return { ...broker, port, audit, admin, seen }
}

function session(t: Test, at: number | string, options: object = {}): ClientHttp2Session {
  const socket = typeof at === 'number' ? connect(at, '127.0.0.1') : connect(at)
  const one = connectHttp2('http://localhost', { createConnection: () => socket, ...options })
  t.teardown(() => one.destroy())
  return one.setMaxListeners(0).on('error', () => undefined)
}

function frame(body: Buffer, { compressed = 0, length = body.length } = {}): Buffer {
  const head = Buffer.alloc(5)
  head.writeUInt8(compressed)
  head.writeUInt32BE(length, 1)
  return Buffer.concat([head, body])
}

/** The gRPC status of one call; `closed` where there is none. */
async function sent(
  one: ClientHttp2Session,
  method: string,
  body: Buffer,
  headers: Record<string, string | string[]> = {},
): Promise<string> {
  const path = method.startsWith('/') ? method : `/sealane.admin.v1alpha1.Admin/${method}`
  const all = { ':method': 'POST', ':path': path, 'content-type': 'application/grpc', te: 'trailers', ...headers }
  const stream = one.request(all)
  return new Promise((resolve) => {
    const take = ({ 'grpc-status': status }: Record<string, unknown>): void => {
      if (typeof status === 'string') resolve(status)
    }
    stream.on('response', take).on('trailers', take)
    stream.on('error', () => undefined).on('close', () => resolve('closed'))
    one.on('close', () => resolve('closed'))
    stream.resume().end(body)
  })
}

const json = (value: unknown): Buffer => frame(Buffer.from(JSON.stringify(value)))
const EVICT = { cluster: 'paris', force: true }

await attack('admin-other-user', async (t) => {
  const before = process.umask(0)
  const at = await world(t).finally(() => process.umask(before))
  chmodSync(at.state, 0o777)
  const socket = adminSocket(at.state)
  t.equal(lstatSync(socket).mode & 0o777, 0o600)
  const program = `require('net').connect(${JSON.stringify(socket)}).on('error', (e) => console.log(e.code)).on('connect', () => { console.log('open'); process.exit() })`
  const tried = spawnSync(process.execPath, ['-e', program], { uid: 65534, gid: 65534, encoding: 'utf8' })
  t.equal(tried.stdout, 'EACCES\n', tried.stderr)
  t.match(await at.seen(), /paris in contact|paris silent/)
})

await attack('admin-socket-taken', async (t) => {
  const foreign = join(temporaryFolder(t), 'foreign')
  writeFileSync(foreign, 'not yours', { mode: 0o644 })
  const put: Readonly<Record<string, (path: string) => unknown>> = {
    link: (path) => symlinkSync(foreign, path),
    file: (path) => writeFileSync(path, 'x'),
    socket: (path) =>
      spawnSync(process.execPath, [
        '-e',
        `require('net').createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, 'SIGKILL'))`,
      ]),
    'half-made': (path) => mkdirSync(`${path}.new`),
  }
  for (const [what, make] of Object.entries(put)) {
    const state = temporaryFolder(t)
    make(adminSocket(state))
    t.ok(existsSync(adminSocket(state)) || existsSync(`${adminSocket(state)}.new`), what)
    const at = await world(t, state)
    t.ok(lstatSync(adminSocket(state)).isSocket(), what)
    t.match(await at.seen(), /paris/)
    await at.stop()
    t.notOk(existsSync(adminSocket(state)), 'it goes with the broker')
  }
  t.equal(readFileSync(foreign, 'utf8'), 'not yours')
  t.equal(lstatSync(foreign).mode & 0o777, 0o644)
  const state = temporaryFolder(t)
  mkdirSync(adminSocket(state))
  t.match(await messageOf(brokerHere(t, { state })), /admin\.sock/)
})

await attack('admin-listen-elsewhere', async (t) => {
  for (const adminListen of ['0.0.0.0:7444', '[::]:7444', '192.0.2.1:7444', '[::ffff:192.0.2.1]:7444', 'x.test:7444']) {
    const state = temporaryFolder(t)
    t.match(await messageOf(brokerHere(t, { state, adminListen })), /adminListen/, adminListen)
    t.notOk(existsSync(adminSocket(state)))
  }
})

await attack('admin-port-from-network', async (t) => {
  const at = await world(t)
  const [space, near, far] = [`slad${process.pid}`, `sa${process.pid}`, `sb${process.pid}`]
  const ip = (...words: string[]): void => {
    const { status, stderr } = spawnSync('ip', words, { encoding: 'utf8' })
    if (status !== 0) throw new Error(`ip ${words.join(' ')}: ${stderr}`)
  }
  ip('netns', 'add', space)
  t.teardown(() => spawnSync('ip', ['netns', 'del', space]))
  ip('link', 'add', near, 'type', 'veth', 'peer', 'name', far, 'netns', space)
  t.teardown(() => spawnSync('ip', ['link', 'del', near]))
  ip('address', 'add', '198.18.77.1/30', 'dev', near)
  ip('link', 'set', near, 'up')
  ip('-n', space, 'address', 'add', '198.18.77.2/30', 'dev', far)
  ip('-n', space, 'link', 'set', far, 'up')
  ip('-n', space, 'route', 'add', '127.0.0.1/32', 'via', '198.18.77.1')
  const tryPort = async (host: string): Promise<string> => {
    const program = `const s = require('net').connect(${at.port}, '${host}').on('error', (e) => { console.log(e.code); process.exit() }).on('connect', () => { console.log('open'); process.exit() }); setTimeout(() => { console.log('silence'); process.exit() }, 2000)`
    const child = spawn('ip', ['netns', 'exec', space, process.execPath, '-e', program])
    const [out] = (await once(child.stdout, 'data')) as [Buffer]
    return out.toString().trim()
  }
  t.equal(await tryPort('198.18.77.1'), 'ECONNREFUSED')
  t.equal(await tryPort('127.0.0.1'), 'silence')
  t.match(await at.seen(), /paris/)
})

await attack('admin-http1', async (t) => {
  const at = await world(t)
  const before = await at.seen()
  for (const host of ['localhost', 'attacker.test', `127.0.0.1:${at.port}`]) {
    const socket = connect(at.port, '127.0.0.1').on('error', () => undefined)
    const body = frame(Buffer.from(JSON.stringify(EVICT)))
    const head =
      `POST /sealane.admin.v1alpha1.Admin/Evict HTTP/1.1\r\nHost: ${host}\r\nOrigin: http://${host}\r\n` +
      `Content-Type: application/grpc\r\nContent-Length: ${body.length}\r\n\r\n`
    let answer = ''
    socket.on('data', (data: Buffer) => (answer += data.toString('latin1')))
    socket.write(Buffer.concat([Buffer.from(head), body]))
    await once(socket, 'close')
    t.notMatch(answer, /HTTP\/1|grpc-status/, host)
  }
  t.equal(await at.seen(), before)
})

await attack('admin-rebinding', async (t) => {
  const at = await world(t)
  const before = await at.seen()
  const own = `127.0.0.1:${at.port}`
  for (const host of ['attacker.test', 'localhost.attacker.test', '127.0.0.1.attacker.test:7444', '[::2]'])
    t.equal(await sent(session(t, at.port), 'Evict', json(EVICT), { ':authority': host }), INVALID_ARGUMENT, host)
  for (const origin of ['http://attacker.test', 'null', `http://${own}`])
    t.equal(await sent(session(t, at.port), 'Evict', json(EVICT), { ':authority': own, origin }), INVALID_ARGUMENT)
  t.equal(await at.seen(), before)
  for (const host of ['localhost', 'localhost:7444', own, '[::1]:7444'])
    t.equal(await sent(session(t, at.port), 'Members', json({}), { ':authority': host }), '0', host)
})

await attack('admin-frames', async (t) => {
  const at = await world(t)
  const before = await at.seen()
  const whole = Buffer.from(JSON.stringify(EVICT))
  const bodies: Readonly<Record<string, readonly [Buffer, object?]>> = {
    nothing: [Buffer.alloc(0)],
    'half a head': [Buffer.alloc(3)],
    'longer than it says': [frame(whole, { length: 4 })],
    'shorter than it says': [frame(whole, { length: whole.length + 1 })],
    'four GiB': [frame(whole, { length: 0xffffffff })],
    'two requests': [Buffer.concat([frame(whole), frame(whole)])],
    'compressed garbage': [frame(whole, { compressed: 1 }), { 'grpc-encoding': 'gzip' }],
    'no JSON': [frame(Buffer.from('{"cluster":'))],
    'no UTF-8': [frame(Buffer.from([0xff, 0xfe, 0x00]))],
  }
  for (const [what, [body, headers]] of Object.entries(bodies)) {
    for (const one of [session(t, at.port), session(t, adminSocket(at.state))])
      t.not(await sent(one, 'Evict', body, { ...headers }), '0', what)
  }
  const noType = await sent(session(t, at.port), 'Evict', frame(whole), { 'content-type': 'text/plain' })
  t.not(noType, '0')
  for (const bytes of [
    Buffer.alloc(4096),
    Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'.padEnd(500, '\xff'), 'latin1'),
  ]) {
    const socket = connect(at.port, '127.0.0.1').on('error', () => undefined)
    socket.resume().write(bytes)
    await once(socket, 'close')
  }
  t.equal(await at.seen(), before)
})

await attack('admin-json', async (t) => {
  const at = await world(t)
  const before = await at.seen()
  const deep = '['.repeat(100_000) + ']'.repeat(100_000)
  const refused: readonly (readonly [string, string])[] = [
    ['Evict', deep],
    ['Evict', `{"cluster":${deep},"force":true}`],
    ['Evict', '{"__proto__":{"cluster":"paris","force":true}}'],
    ['Evict', '{"cluster":{"toString":"paris"},"force":true}'],
    ['Evict', '{"cluster":"paris","force":1}'],
    ['Evict', 'null'],
    ['Evict', '"paris"'],
    ['CreateToken', '{"uses":1e309}'],
    ['CreateToken', '{"uses":-1}'],
    ['CreateToken', '{"uses":1.5}'],
    ['CreateToken', '{"ttlMs":9007199254740993000}'],
    ['CreateToken', `{"allowedCIDRs":[${Array(2000).fill('"a"').join(',')}]}`],
    ['ChangeQuota', '{"cluster":"paris","change":{"records":-1e309}}'],
    ['ChangeQuota', '{"cluster":"paris","change":[]}'],
  ]
  const one = session(t, at.port)
  for (const [method, text] of refused)
    t.equal(await sent(one, method, frame(Buffer.from(text))), INVALID_ARGUMENT, `${method} ${text.slice(0, 60)}`)
  await sent(one, 'ChangeQuota', frame(Buffer.from('{"cluster":"paris","change":{"__proto__":{"records":1}}}')))
  t.equal(({} as Record<string, unknown>)['records'], undefined)
  t.equal(await at.seen(), before)
})

await attack('admin-oversize', async (t) => {
  const at = await world(t)
  const before = await at.seen()
  const large = Buffer.from(JSON.stringify({ id: 'x'.repeat(300 << 10) }))
  t.equal(await sent(session(t, at.port), 'RevokeToken', frame(large)), RESOURCE_EXHAUSTED)
  const bomb = frame(gzipSync(Buffer.alloc(40 << 20, ' ')), { compressed: 1 })
  t.equal(await sent(session(t, at.port), 'Members', bomb, { 'grpc-encoding': 'gzip' }), RESOURCE_EXHAUSTED)
  t.equal(await at.seen(), before)
})

const claim = (value: unknown): Record<string, string> => ({
  'sealane-operator-bin': Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64'),
})

await attack('admin-operator-header', async (t) => {
  const at = await world(t)
  const forged = '{"v":1,"result":"ok","who":{"kind":"broker"}}'
  const claims: readonly unknown[] = [
    { kind: 'broker', cluster: 'paris', fingerprint: 'aa', token: 'x', address: '203.0.113.9' },
    { user: `ana\n${forged}\r\n`, sudoUser: '\u2028\u202e\u001b]0;x\u0007' },
    { uid: -1, user: 7, sudoUser: ['a'] },
    { uid: 1e309, user: { toString: 'x' } },
    '{"__proto__":{"user":"root"},"constructor":"x"}',
    { user: '\ud800', sudoUser: '"},"who":{"kind":"broker"' },
    { user: 'x'.repeat(300) },
    [],
    'null',
    'no JSON',
  ]
  const one = session(t, adminSocket(at.state))
  for (const value of claims) t.equal(await sent(one, 'CreateToken', json({}), claim(value)), '0')
  const huge = await sent(
    session(t, adminSocket(at.state)),
    'CreateToken',
    json({}),
    claim({ user: 'x'.repeat(1 << 20) }),
  )
  t.not(huge, '0', 'a MiB is more than a header may have')
  // The helper that joins the member has made one too.
  const lines = await eventually(() => {
    const all = readLines(readFileSync(at.audit, 'utf8')).filter(({ what }) => what.act === 'token.create')
    return all.length >= claims.length + 1 && all
  })
  t.equal(lines.length, claims.length + 1)
  for (const { who } of lines) {
    t.equal(who.kind, 'operator')
    t.strictSame(
      Object.keys(who).filter((key) => !['kind', 'uid', 'user', 'sudoUser'].includes(key)),
      [],
    )
    t.ok(JSON.stringify(who).length < 1200)
  }
  t.match(readFileSync(at.audit, 'utf8'), /^[\x20-\x7e\n]*$/)
})

await attack('admin-port-claims-uid', async (t) => {
  const at = await world(t)
  const operator = claim({ uid: 0, user: 'ana', sudoUser: 'bea' })
  t.equal(await sent(session(t, at.port), 'CreateToken', json({ cluster: 'roma' }), operator), '0')
  const made = await eventually(() =>
    readLines(readFileSync(at.audit, 'utf8')).find(({ who }) => (who as { user?: string }).user === 'ana'),
  )
  t.strictSame(made.who, { kind: 'operator', user: 'ana', sudoUser: 'bea', address: '127.0.0.1' })
})

await attack('admin-unknown-method', async (t) => {
  const at = await world(t)
  const before = await at.seen()
  const one = session(t, at.port)
  for (const method of ['Constructor', 'constructor', '__proto__', 'ToString', 'evict', 'Evict/', '', '../Admin/Evict'])
    t.equal(await sent(one, method, json(EVICT)), UNIMPLEMENTED, method)
  for (const path of ['/sealane.v1.Broker/Join', '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo', '/'])
    t.equal(await sent(one, path, json(EVICT)), UNIMPLEMENTED, path)
  t.equal(await at.seen(), before)
})

await attack('admin-clusterset-path', async (t) => {
  const at = await world(t)
  const before = await at.seen()
  const one = session(t, at.port)
  for (const name of [
    '../x',
    '..',
    '.',
    '',
    '/etc',
    'a/b',
    'demo/../demo',
    'Demo',
    '.'.repeat(4000),
    '%2e%2e',
    'nowhere',
  ]) {
    for (const method of ['Members', 'CreateToken', 'Verify', 'Backup']) {
      const body = json(method === 'Backup' ? { knownAs: 'x' } : {})
      t.notMatch(await sent(one, method, body, { 'sealane-clusterset': name }), /^(0|closed)$/, `${method} ${name}`)
    }
    t.not(await sent(one, 'CreateClusterset', json({ name })), name === 'nowhere' ? '3' : '0', name)
  }
  await at.admin((admin) => admin.removeClusterset({ name: 'nowhere', force: true }))
  t.equal(before.includes('paris'), true)
  t.notOk(existsSync(join(at.state, '../x')))
})

await attack('admin-idle-connections', async (t) => {
  const at = await world(t)
  const sockets: Socket[] = []
  t.teardown(() => sockets.forEach((one) => one.destroy()))
  for (let i = 0; i < 1000; i += 1) {
    for (const one of [connect(at.port, '127.0.0.1'), connect(adminSocket(at.state))])
      sockets.push(one.on('error', () => one.destroy()).resume())
    if (i % 100 === 99) await new Promise((resolve) => setImmediate(resolve))
  }
  const open = (): number => sockets.filter((one) => !one.closed && !one.destroyed).length
  await eventually(() => open() <= 128, { say: 'the others are closed' })
  await rawJoin(at, 'roma')
  t.match(await at.seen(), /roma/)
  t.equal(await sent(session(t, at.port), 'Members', json({})), '0')
  t.ok(open() > 0 && open() <= 128, 'while they are open')
})

const leftovers = ({ state }: World): string[] => readdirSync(state).filter((name) => name.startsWith('.backup'))

await attack('admin-slow-backup', async (t) => {
  const at = await world(t)
  // Larger than what a part and the buffers on the way take.
  const allowedCIDRs = Array.from({ length: 32 }, (_, i) => `2001:db8:${i}:aaaa:bbbb:cccc:dddd:0/128`)
  await at.admin((admin) => Promise.all(Array.from({ length: 600 }, () => admin.createToken({ allowedCIDRs }))))
  const slow = Array.from({ length: 6 }, () =>
    session(t, adminSocket(at.state), { settings: { initialWindowSize: 0 } }),
  )
  const ends = slow.map((one) => sent(one, 'Backup', json({ knownAs: 'x' })))
  const refused = await Promise.race(ends)
  t.equal(refused, '2')
  await eventually(() => leftovers(at).length === 4, { say: 'four are begun' })
  t.match(await failure(at.admin((admin) => admin.backup({ knownAs: 'x' }, () => Promise.resolve()))), {
    message: /^4 backups are already being sent or received/,
  })
  t.match(await at.seen(), /paris/)
  slow.forEach((one) => one.destroy())
  await eventually(() => leftovers(at).length === 0, { say: 'no file stays' })
  await at.admin((admin) => admin.backup({ knownAs: 'x' }, () => Promise.resolve()))
})

await attack('admin-cut-restore', async (t) => {
  const at = await world(t)
  const parts: Uint8Array[] = []
  await at.admin((admin) =>
    admin.backup({ knownAs: 'x' }, (part) => {
      if ('bytes' in part) parts.push(part.bytes)
      return Promise.resolve()
    }),
  )
  const one = session(t, adminSocket(at.state))
  const stream = one.request({
    ...{ ':method': 'POST', ':path': '/sealane.admin.v1alpha1.Admin/StageRestore' },
    ...{ 'content-type': 'application/grpc', te: 'trailers' },
    'sealane-request-bin': Buffer.from('{"force":true}').toString('base64'),
  })
  stream.on('error', () => undefined)
  stream.write(frame(Buffer.concat(parts).subarray(0, 20_000)))
  await eventually(() => leftovers(at).length === 1, { say: 'it is being received' })
  one.destroy()
  await eventually(() => leftovers(at).length === 0, { say: 'no file stays' })
  t.notOk(existsSync(join(at.state, 'restore.db')))
  t.match(await at.seen(), /paris/)
})

await attack('admin-token-as-id', async (t) => {
  const at = await world(t)
  const { id, text } = await at.admin((admin) => admin.createToken({}))
  const inside = Buffer.from(text.split('.').at(-1) ?? '', 'base64url').toString('latin1')
  const secret = /"s":"([^"]+)"/.exec(inside)?.[1] ?? /[A-Za-z0-9_-]{43}/.exec(inside)?.[0] ?? text
  for (const given of [text, secret, `${id} `, `${id}\n${text}`]) {
    const { message } = await failure(at.admin((admin) => admin.revokeToken({ id: given })))
    t.notOk(message.includes(given.slice(0, 30)), message)
  }
  await eventually(() => readFileSync(at.audit, 'utf8').includes('token.revoke'))
  const logs = JSON.stringify(at.logger.lines) + readFileSync(at.audit, 'utf8')
  for (const one of [text.slice(0, 60), secret]) t.notOk(logs.includes(one))
  t.match(await at.admin((admin) => admin.tokens()), [{ id, state: 'valid' }])
})

await attack('admin-endless-certificate', async (t) => {
  const at = await world(t)
  const pipe = join(temporaryFolder(t), 'pipe')
  spawnSync('mkfifo', [pipe])
  for (const certificate of ['/dev/zero', pipe, at.state])
    t.match(
      await messageOf(at.admin((admin) => admin.rotateAuthority({ certificate, force: false }))),
      /expected a file/,
    )
  t.equal((await at.admin((admin) => admin.authority())).phase, 'steady')
})
