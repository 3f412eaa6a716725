/** A broker refuses a store that it cannot use with one clear message, and writes nothing to it. */
import { Server, ServerCredentials } from '@grpc/grpc-js'
import t, { type Test } from 'tap'
import { MaintenanceService, type StatusResponse } from '../../broker/store/etcd/client/gen/etcd.ts'
import { row } from '../compliance/record-log.ts'
import { failure } from '../support/failure.ts'
import { freePort } from '../support/free-port.ts'
import { testAuthority } from './support/certificates.ts'
import { type EtcdCluster, base64, startEtcdCluster } from './support/etcd-cluster.ts'
import { type ReplicaInit, openReplica } from './support/open-replica.ts'

let cluster: EtcdCluster
const login = { user: 'broker', password: 'not-for-argv' }
const WHERE = /^etcd:\/\/[^ ]+/

t.before(async () => {
  cluster = await startEtcdCluster(t)
  await cluster.enableLogin(login.user, login.password, '/own')
  await cluster.call('auth/user/add', { name: 'reader', password: 'reads' })
  await cluster.call('auth/role/add', { name: 'reader' })
  const perm = { permType: 'READ', key: base64('/own/'), range_end: base64('/own0') }
  await cluster.call('auth/role/grant', { name: 'reader', perm })
  await cluster.call('auth/user/grant', { user: 'reader', role: 'reader' })
})

/**
 * Returns the error message without the parts that change from run to run, and checks that the keys below the prefix
 * are unchanged.
 */
async function refusal(t: Test, code: string, init: ReplicaInit): Promise<string> {
  const before = await dump()
  const error = await failure(openReplica(t, cluster, init))
  t.match(error, { code }, error.message)
  t.equal(await dump(), before, 'nothing is written')
  return error.message.replace(WHERE, 'STORE').replaceAll(/127\.0\.0\.1:\d+/g, 'ENDPOINT')
}

async function dump(): Promise<string> {
  const { kvs } = await cluster.call('kv/range', { key: base64('/'), range_end: base64('0') })
  return JSON.stringify(kvs)
}

t.test('credentials', async (t) => {
  const prefix = '/own/credentials'
  t.equal(
    await refusal(t, 'Denied', { prefix, login: { ...login, password: 'wrong' } }),
    'etcd at ENDPOINT: login as "broker": etcdserver: authentication failed, invalid user ID or password: ' +
      'check the user, the password file and the client certificate',
  )
  t.equal(
    await refusal(t, 'Denied', { prefix: '/others', login }),
    'etcd at ENDPOINT: look at prefix /others: etcdserver: permission denied: ' +
      'grant the user to read and write all keys below /others/',
  )
  const none = { ...cluster, client: await otherClient() }
  const before = await dump()
  const error = await failure(openReplica(t, none, { prefix, login, limits: { connectTimeoutMs: 2000 } }))
  t.match(error, { code: 'Denied' })
  t.equal(
    error.message.replace(/127\.0\.0\.1:\d+/, 'ENDPOINT'),
    'etcd at ENDPOINT: no connection: ssl/tls alert bad certificate: ' +
      'check the user, the password file and the client certificate',
  )
  const untrusted = await failure(openReplica(t, { ...cluster, ca: (await testAuthority()).ca }, { prefix, login }))
  t.match(untrusted, { code: 'Unreachable' })
  t.match(untrusted.message, /certificate/, 'the certificate of etcd is not that of the given authority')
  t.equal(await dump(), before)
})

t.test('a user that may only read', async (t) => {
  const prefix = '/own/reader'
  const reader = { user: 'reader', password: 'reads' }
  t.equal(
    await refusal(t, 'Denied', { prefix, login: reader }),
    'etcd at ENDPOINT: first write below /own/reader: etcdserver: permission denied: ' +
      'grant the user to read and write all keys below /own/reader/',
  )
  const { log: writer } = await openReplica(t, cluster, { prefix, login })
  await writer.transact((tx) => tx.put('record', 'a/K/n/x', row('1')))
  const { log } = await openReplica(t, cluster, { prefix, login: reader })
  t.equal(log.count('record'), 1)
  const before = await dump()
  const error = await failure(log.transact((tx) => tx.put('record', 'a/K/n/y', row('2'))))
  t.match(error, { code: 'Denied' })
  t.match(
    error.message,
    /write of 1 rows: etcdserver: permission denied: grant the user to read and write all keys below/,
  )
  t.equal(await dump(), before)
  t.equal(log.count('record'), 1)
})

t.test('a prefix with other data, of another clusterset, of a later release, or with nothing', async (t) => {
  await cluster.call('kv/put', { key: base64('/own/foreign/some/key'), value: base64('x') })
  t.equal(
    await refusal(t, 'Foreign', { prefix: '/own/foreign', login }),
    'STORE holds other data (key /own/foreign/some/key): choose another prefix',
  )
  const prefix = '/own/clustersets'
  const { log } = await openReplica(t, cluster, { prefix, login, clusterset: 'one' })
  await log.close()
  t.equal(
    await refusal(t, 'Foreign', { prefix, login, clusterset: 'two' }),
    'STORE holds clusterset "one", and this broker serves "two": choose another prefix',
  )
  // A store needs its prefix for itself: no other store may begin above or below it.
  t.match(await refusal(t, 'Foreign', { prefix: `${prefix}/log`, login }), /holds other data/)
  t.match(await refusal(t, 'Foreign', { prefix: '/own', login }), /holds other data/)
  const format = { sealane: 'broker', format: 2, epoch: 'e', clusterset: 'one' }
  await cluster.call('kv/put', { key: base64('/own/later/log/format'), value: base64(JSON.stringify(format)) })
  t.equal(
    await refusal(t, 'TooNew', { prefix: '/own/later', login }),
    'STORE has format 2, this broker knows up to 1: use the newer version of Sealane',
  )
  await cluster.call('kv/put', { key: base64('/own/damaged/log/format'), value: base64('{}') })
  t.match(await refusal(t, 'Damaged', { prefix: '/own/damaged', login }), /key \/own\/damaged\/log\/format is damaged/)
  t.equal(
    await refusal(t, 'Absent', { prefix: '/own/none', login, create: false }),
    'no broker state in STORE: start the broker once first'.replace('STORE', storeText('/own/none')),
  )
})

t.test('two brokers of different clustersets at the same moment on an empty prefix: one of them', async (t) => {
  const open = (clusterset: string): Promise<unknown> =>
    openReplica(t, cluster, { prefix: '/own/race', login, clusterset })
  const results = await Promise.allSettled([open('one'), open('two'), open('three')])
  t.equal(results.filter(({ status }) => status === 'fulfilled').length, 1)
  for (const result of results) if (result.status === 'rejected') t.match(result.reason, { code: 'Foreign' })
})

t.test('an etcd that is too old, and nobody', async (t) => {
  const server = new Server()
  const authority = await testAuthority()
  const { certificate, key } = await authority.issue('O=old')
  const pair = { cert_chain: Buffer.from(certificate), private_key: Buffer.from(key) }
  server.addService(
    { status: MaintenanceService.status },
    {
      status: (_call: unknown, reply: (error: null, answer: StatusResponse) => void) =>
        reply(null, { version: '3.3.25', dbSize: 0, leader: true, errors: [] }),
    },
  )
  const credentials = ServerCredentials.createSsl(null, [pair])
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync('127.0.0.1:0', credentials, (error, bound) => (error === null ? resolve(bound) : reject(error)))
  })
  t.teardown(() => server.forceShutdown())
  const old = await failure(openReplica(t, { ...cluster, ca: authority.ca }, { prefix: '/own/old', ports: [port] }))
  t.match(old, { code: 'TooOld' })
  t.equal(
    old.message,
    `etcd://127.0.0.1:${port}/own/old: etcd at 127.0.0.1:${port} is version 3.3.25: expected 3.4 or later`,
  )
  const closed = [await freePort(), await freePort()]
  const error = await failure(openReplica(t, cluster, { prefix: '/own/x', ports: closed }))
  t.match(error, { code: 'Unreachable' })
  for (const one of closed) t.match(error.message, `etcd at 127.0.0.1:${one}: no connection: connect ECONNREFUSED`)
})

function storeText(prefix: string): string {
  return `etcd://${cluster.members.map(() => 'ENDPOINT').join(',')}${prefix}`
}

async function otherClient(): Promise<EtcdCluster['client']> {
  return (await testAuthority()).issue('CN=stranger')
}
