/**
 * The admin service between a client and a server on a real socket: every operation, errors, bad requests, and the
 * socket itself.
 */
import { once } from 'node:events'
import { mkdirSync, statSync, writeFileSync } from 'node:fs'
import { type Server, type Socket, connect, createServer } from 'node:net'
import { join } from 'node:path'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import type { BackupPart, BrokerAdmin, Operator } from '../../../protocol/admin/admin-api.ts'
import { AdminUnreachableError, withAdminClient } from '../../../protocol/admin/admin-client.ts'
import { checkAdminRequest } from '../../../protocol/admin/admin-requests.ts'
import { type AdminCaller, type AdminServer, serveAdmin } from '../../../protocol/admin/admin-server.ts'
import { isAdminServed } from '../../../protocol/admin/admin-socket.ts'
import { UNARY_METHODS, type UnaryMethod, readOperator } from '../../../protocol/admin/admin-wire.ts'
import { RefusedError } from '../../../protocol/broker-api.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { UserError } from '../../../runtime/errors.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { failure, messageOf } from '../../support/failure.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

interface Call {
  readonly method: string
  readonly request: unknown
  readonly caller: AdminCaller
}

interface World {
  readonly socket: string
  readonly calls: Call[]
  /** The result of the next operation. */
  answer: () => Promise<unknown>
  readonly server: AdminServer
}

const OPERATOR: Operator = { uid: 7, user: 'ana', sudoUser: 'björn' }
const { signal } = new AbortController()

async function world(t: Test, socket = join(temporaryFolder(t), 'admin.sock')): Promise<World> {
  const calls: Call[] = []
  const made: { answer: World['answer'] } = { answer: () => Promise.resolve({ well: true }) }
  const adminFor = (caller: AdminCaller): BrokerAdmin =>
    new Proxy({} as BrokerAdmin, {
      get: (_target, method) => (request: unknown) => {
        calls.push({ method: String(method), request, caller })
        return made.answer()
      },
    })
  const server = await serveAdmin({ adminFor, socket, clock: new SystemClock(), logger: new CapturingLogger() })
  t.teardown(() => server.close())
  return Object.assign(made, { socket, calls, server })
}

function client<T>(
  { socket }: Pick<World, 'socket'>,
  work: (admin: BrokerAdmin) => Promise<T>,
  init: { readonly clusterset?: string; readonly signal?: AbortSignal } = {},
): Promise<T> {
  return withAdminClient({ socket, operator: OPERATOR, signal, ...init }, work)
}

/** A request of each method with all its fields. */
const REQUESTS: { readonly [M in UnaryMethod]?: object } = {
  createToken: { ttlMs: 1000, uses: 2, cluster: 'paris', allowedCIDRs: ['192.0.2.0/24'], approve: true },
  revokeToken: { id: 'ab' },
  evict: { cluster: 'paris', force: true },
  drain: { cluster: 'paris', drained: true },
  rekey: { cluster: 'paris', ttlMs: 1000 },
  changeQuota: { cluster: 'paris', change: { records: 7, bytes: 'default' } },
  setAccessDefault: { accessDefault: 'deny' },
  planTopology: { topology: { mode: 'full' } },
  setTopology: { topology: { mode: 'full' }, basedOn: 2 },
  addRelay: { address: 'wss://one.example/' },
  removeRelay: { relay: 'one.example' },
  accept: { cluster: 'paris', fingerprint: 'SHA256:x' },
  refuse: { cluster: 'paris' },
  rotateAuthority: { certificate: '/x', force: false },
  finishRotation: { force: true },
  createClusterset: { name: 'staging', globalRange: '244.0.0.0/8', clustersetIpRange: '245.0.0.0/16' },
  removeClusterset: { name: 'staging', force: false },
}

t.test('every operation arrives as it was called, with who calls and for which clusterset', async (t) => {
  const at = await world(t)
  for (const method of UNARY_METHODS) {
    const request = REQUESTS[method] ?? {}
    const answer = await client(at, (admin) => (admin[method] as (request: object) => Promise<unknown>)(request), {
      clusterset: 'staging',
    })
    t.same(answer, { well: true }, method)
    t.same(at.calls.pop(), { method, request, caller: { clusterset: 'staging', operator: OPERATOR } })
  }
})

t.test('errors arrive as the broker threw them', async (t) => {
  const at = await world(t)
  for (const [error, expected] of [
    [
      new RefusedError('MemberUnknown', 'cluster', 'cluster "ö" is not a member'),
      { name: 'RefusedError', reason: 'MemberUnknown', field: 'cluster', message: 'cluster "ö" is not a member' },
    ],
    [
      new UserError('no such file', { reason: 'StateAbsent', hint: 'name another one' }),
      { name: 'UserError', reason: 'StateAbsent', hint: 'name another one', message: 'no such file' },
    ],
    [new Error('the disk is full'), { name: 'UserError', message: 'the disk is full', reason: undefined }],
  ] as const) {
    at.answer = () => Promise.reject(error)
    t.match(await failure(client(at, (admin) => admin.members())), expected)
  }
  at.answer = () => Promise.reject(new Error('x'.repeat(100_000)))
  t.equal((await messageOf(client(at, (admin) => admin.members()))).length, 4000, 'a long text is cut')
})

t.test('a request of another form is refused with the name of the field', async (t) => {
  const at = await world(t)
  for (const [method, request, field] of [
    ['evict', {}, 'cluster'],
    ['evict', { cluster: 'paris', force: 'yes' }, 'force'],
    ['createToken', { allowedCIDRs: ['a', 7] }, 'allowedCIDRs.1'],
    ['changeQuota', { cluster: 'paris', change: { records: 'all' } }, 'change.records'],
    ['revokeToken', { id: 'x'.repeat(5000) }, 'id'],
    ['accept', [], 'request'],
  ] as const) {
    const refused = await failure(
      client(at, (admin) => (admin[method] as (request: object) => Promise<unknown>)(request)),
    )
    t.match(refused, { reason: 'InvalidValue', field }, `${method} ${field}`)
  }
  t.same(at.calls, [], 'none of them reached the broker')
})

t.test('no request makes the check throw anything but a refusal', async (t) => {
  const methods = fc.constantFrom(...UNARY_METHODS, 'backup' as const, 'stageRestore' as const)
  fc.assert(
    fc.property(methods, fc.jsonValue(), (method, request) => {
      try {
        checkAdminRequest(method, request)
      } catch (error) {
        if (!(error instanceof RefusedError)) throw error
      }
    }),
  )
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
      const { uid, user } = readOperator(Buffer.from(bytes))
      return (uid === undefined || Number.isSafeInteger(uid)) && (user === undefined || user.length <= 256)
    }),
  )
  t.pass('and no header of a caller does')
})

t.test('a backup comes in parts, as fast as they are taken; the reader and the broker may fail', async (t) => {
  const at = await world(t)
  const parts = Array.from({ length: 40 }, (_, i) => Buffer.alloc(100_000, i))
  let given = 0
  const backup: BrokerAdmin['backup'] = async (_init, take) => {
    for (const bytes of parts) {
      await take({ bytes })
      given += 1
    }
    await take({ warning: 'it is done, but' })
  }
  const { socket } = at
  await at.server.close()
  const server = await serveAdmin({
    clock: new SystemClock(),
    adminFor: () => ({ backup }) as BrokerAdmin,
    socket,
    logger: new CapturingLogger(),
  })
  t.teardown(() => server.close())
  const got: BackupPart[] = []
  const take = (part: BackupPart): Promise<void> => {
    got.push(part)
    return Promise.resolve()
  }
  await client(at, (admin) => admin.backup({ knownAs: 'x' }, take))
  const bytes = Buffer.concat(got.flatMap((part) => ('bytes' in part ? [part.bytes] : [])))
  t.ok(bytes.equals(Buffer.concat(parts)), 'all of it')
  t.match(got.at(-1), { warning: 'it is done, but' })
  given = 0
  const full = (): Promise<void> => Promise.reject(new Error('no room'))
  t.equal(await messageOf(client(at, (admin) => admin.backup({ knownAs: 'x' }, full))), 'no room')
  t.ok(given < parts.length, 'the broker does not go on')
})

t.test('a restore goes in parts; one that is cut short is not taken', async (t) => {
  const at = await world(t)
  await at.server.close()
  const taken: string[] = []
  const stageRestore: BrokerAdmin['stageRestore'] = async ({ force }, parts) => {
    let bytes = 0
    for await (const part of parts) bytes += part.length
    taken.push(`${bytes} ${force}`)
    return { warnings: ['w'] }
  }
  const server = await serveAdmin({
    clock: new SystemClock(),
    adminFor: () => ({ stageRestore }) as BrokerAdmin,
    socket: at.socket,
    logger: new CapturingLogger(),
  })
  t.teardown(() => server.close())
  async function* whole(): AsyncGenerator<Uint8Array> {
    for (let i = 0; i < 10; i += 1) yield await Promise.resolve(Buffer.alloc(300_000))
  }
  async function* cut(): AsyncGenerator<Uint8Array> {
    yield await Promise.resolve(Buffer.alloc(300_000))
    throw new Error('the file cannot be read')
  }
  t.same(await client(at, (admin) => admin.stageRestore({ force: true }, whole())), { warnings: ['w'] })
  await failure(client(at, (admin) => admin.stageRestore({ force: false }, cut())))
  t.same(taken, ['3000000 true'], 'the second one never was whole')
})

t.test('its socket', async (t) => {
  const folder = temporaryFolder(t)
  const socket = join(folder, 'admin.sock')
  t.equal(await isAdminServed(socket), false, 'there is none')
  const first = await world(t, socket)
  t.equal(statSync(socket).mode & 0o777, 0o600, 'of its user alone')
  t.equal(await isAdminServed(socket), true)
  await first.server.close()
  t.equal(await isAdminServed(socket), false)
  writeFileSync(socket, 'what a killed process left')
  const second = await world(t, socket)
  t.equal(await isAdminServed(socket), true, 'it is replaced')
  await second.server.close()
  const deep = join(folder, 'd'.repeat(120))
  mkdirSync(deep)
  const third = await world(t, join(deep, 'admin.sock'))
  t.equal(await isAdminServed(third.socket), true, 'a path that is longer than a socket address')
  t.same(await client(third, (admin) => admin.members()), { well: true })
})

t.test('no broker, one that hangs, and a caller that gives up', async (t) => {
  const socket = join(temporaryFolder(t), 'admin.sock')
  t.ok((await failure(client({ socket }, (admin) => admin.members()))) instanceof AdminUnreachableError)
  const accepted: Socket[] = []
  const silent: Server = createServer((one) => void accepted.push(one)).listen(socket)
  await once(silent, 'listening')
  t.teardown(() => {
    silent.close()
    // The client leaves a connection to one that never spoke, which would keep this process.
    for (const one of accepted) one.destroy()
  })
  const late = new AbortController()
  const asked = client({ socket }, (admin) => admin.members(), { signal: late.signal })
  late.abort(new Error('too late'))
  t.equal(await messageOf(asked), 'too late')
  const at = await world(t)
  let reached = (): void => undefined
  const arrived = new Promise<void>((resolve) => (reached = resolve))
  at.answer = () => {
    reached()
    return new Promise(() => undefined)
  }
  const given = new AbortController()
  const asking = client(at, (admin) => admin.members(), { signal: given.signal })
  await arrived
  given.abort(new Error('enough'))
  t.equal(await messageOf(asking), 'enough')
})

t.test('what is not gRPC gets no answer from it', async (t) => {
  const at = await world(t)
  const socket = connect(at.socket)
  const body = '{"cluster":"paris","force":true}'
  socket.on('error', () => undefined)
  const request =
    'POST /sealane.admin.v1alpha1.Admin/Evict HTTP/1.1\r\nHost: x\r\nContent-Type: application/grpc\r\n' +
    `Content-Length: ${body.length}\r\n\r\n${body}`
  await new Promise<void>((resolve) => socket.write(request, () => resolve()))
  await client(at, (admin) => admin.members())
  t.same(
    at.calls.map(({ method }) => method),
    ['members'],
    'a page in a browser, which speaks HTTP/1.1, changes nothing',
  )
  socket.destroy()
})
