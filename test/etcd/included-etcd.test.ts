/**
 * The etcd that is installed beside the replicas runs here as processes. It has the arguments and certificates of the
 * installation, apart from addresses and folders. A broker's log opens on it. It refuses a client without a
 * certificate, and a client with a broker's certificate where a member's is required.
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { get as getPlain } from 'node:http'
import { get as getTls } from 'node:https'
import { connect } from 'node:net'
import { join } from 'node:path'
import t from 'tap'
import { openLog } from '../../broker/store/open-store.ts'
import { etcdSecrets } from '../../cli/broker/deploy/etcd-secrets.ts'
import { ETCD_CLIENT_SECRET, ETCD_PORTS, ETCD_SERVER_SECRET } from '../../install/values/names.ts'
import { planEtcd } from '../../install/plan-etcd.ts'
import { REPLICAS_VALUES } from '../../scripts/manifest-files.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { makeProgram } from '../kube/support/program.ts'
import { silent } from '../protocol/site.ts'
import { eventually } from '../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import { MemoryAdmin } from '../support/memory-admin.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const clock = new SystemClock()
const { signal } = new AbortController()
const NAMES = ['ca.crt', 'tls.crt', 'tls.key'] as const

interface Container {
  readonly args: readonly string[]
}

function plannedArgs(): readonly string[] {
  const statefulSet = planEtcd(REPLICAS_VALUES).objects.find(({ kind }) => kind === 'StatefulSet')
  const spec = statefulSet?.['spec'] as { template: { spec: { containers: readonly [Container] } } }
  return spec.template.spec.containers[0].args
}

/** Returns the HTTP status of the server's answer, or the reason why there is no answer. */
function asked(port: number, options: object, path = '/version'): Promise<string> {
  const get = 'ca' in options ? getTls : getPlain
  const { promise, resolve } = Promise.withResolvers<string>()
  const call = get({ host: 'localhost', port, path, agent: false, timeout: 5000, ...options }, (answer) => {
    answer.resume().on('end', () => resolve(String(answer.statusCode)))
  })
  call.on('timeout', () => call.destroy(new Error('no answer')))
  call.on('error', (error) => resolve(`refused: ${error.message}`))
  return promise
}

/** What becomes of a TCP connection. */
function connected(host: string, port: number): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>()
  const socket = connect({ host, port })
  socket.on('connect', () => resolve('connected')).on('error', (error) => resolve(error.message))
  return promise.finally(() => socket.destroy())
}

t.test('the etcd that comes along', { timeout: 120_000 }, async (t) => {
  const folder = temporaryFolder(t)
  const made = await etcdSecrets(new MemoryAdmin(), { namespace: 'sealane-broker', nowMs: clock.now() }, signal)
  const parts = (name: string): Record<(typeof NAMES)[number], Buffer> => {
    const secret = made.find(({ metadata }) => metadata.name === name)
    const data = secret?.['data'] as Readonly<Record<string, string>>
    mkdirSync(join(folder, name))
    const read = NAMES.map((key) => [key, Buffer.from(data[key] ?? '', 'base64')] as const)
    for (const [key, bytes] of read) writeFileSync(join(folder, name, key), bytes, { mode: 0o600 })
    return Object.fromEntries(read) as Record<(typeof NAMES)[number], Buffer>
  }
  const [server, client] = [parts(ETCD_SERVER_SECRET), parts(ETCD_CLIENT_SECRET)]
  const ports = await Promise.all(
    [0, 1, 2].map(
      async () =>
        new Map([
          [ETCD_PORTS.client as number, await freePort()],
          [ETCD_PORTS.peer as number, await freePort()],
          [ETCD_PORTS.health as number, await freePort()],
        ]),
    ),
  )
  const portOf = (i: number, port: string | number): number => ports[i]?.get(Number(port)) ?? 0
  const members = ports.map((_, i) => {
    const directory = join(folder, `m${i}`)
    mkdirSync(directory, { mode: 0o700 })
    const args = plannedArgs().map((one) =>
      one
        .replaceAll('$(POD_NAME)', `sealane-etcd-${i}`)
        .replaceAll('/etc/etcd/tls', join(folder, ETCD_SERVER_SECRET))
        .replaceAll('/var/lib/etcd', directory)
        .replace(
          /sealane-etcd-(\d)\.[a-z.-]+:(\d+)/g,
          (_, n: string, port: string) => `localhost:${portOf(Number(n), port)}`,
        )
        .replace(/0\.0\.0\.0:(\d+)/g, (_, port: string) => `0.0.0.0:${portOf(i, port)}`),
    )
    return makeProgram({ name: `m${i}`, path: 'etcd', args, directory })
  })
  t.teardown(() => Promise.all(members.map((program) => program.kill())))
  for (const program of members) program.start()
  const health = (i: number, path = '/health'): Promise<string> => asked(portOf(i, ETCD_PORTS.health), {}, path)
  const isReady = async (): Promise<boolean> =>
    (await Promise.all([0, 1, 2].map((i) => health(i)))).join() === '200,200,200'
  await eventually(isReady, { deadlineMs: 40_000, say: 'all members are ready, as their probes ask' })
  t.equal(await health(0, '/health?serializable=true'), '200', 'as the liveness probe asks')
  for (const host of ['127.0.0.1', '::1']) {
    for (const port of Object.values(ETCD_PORTS)) {
      t.equal(await connected(host, portOf(0, port)), 'connected', `port ${port} of a pod with the address ${host}`)
    }
  }

  const [clients, peers] = [portOf(0, ETCD_PORTS.client), portOf(0, ETCD_PORTS.peer)]
  const shown = (pair: typeof server): object => ({ ca: server['ca.crt'], cert: pair['tls.crt'], key: pair['tls.key'] })
  t.equal(await asked(clients, shown(client)), '200', 'a broker')
  t.match(await asked(clients, { ca: server['ca.crt'] }), /^refused/, 'who has no certificate')
  t.equal(await asked(peers, shown(server), '/members'), '200', 'a member')
  t.match(await asked(peers, shown(client), '/members'), /^refused/, 'a broker that takes itself for a member')

  const url = `etcd://${[0, 1, 2].map((i) => `localhost:${portOf(i, ETCD_PORTS.client)}`).join(',')}/sealane`
  const file = (name: string): string => join(folder, ETCD_CLIENT_SECRET, name)
  const store = { url, caFile: file('ca.crt'), certificateFile: file('tls.crt'), keyFile: file('tls.key') }
  const init = { stateDir: temporaryFolder(t), store, clusterset: 'demo', create: true }
  const opened = await openLog({ clock, logger: silent }, init, AbortSignal.timeout(30_000))
  await members[0]?.kill()
  await opened.log.transact((tx) => tx.put('address', 'shop/web', { service: 'shop/web' }))
  t.equal(opened.log.count('address'), 1, 'a write with one member away')
  await opened.close()
})
