/**
 * A real etcd of three members on loopback, with TLS and client certificates, in a folder of the test:
 *
 *   client ──TLS──► m0 ─┐
 *          ──TLS──► m1 ─┼─ raft
 *          ──TLS──► m2 ─┘
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { request } from 'node:https'
import { join } from 'node:path'
import type { Test } from 'tap'
import { type Program, makeProgram } from '../../kube/support/program.ts'
import { eventually } from '../../support/eventually.ts'
import { freePort } from '../../support/free-port.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { type PemPair, testAuthority } from './certificates.ts'

export const ROOT_PASSWORD = 'root-secret'

export interface EtcdMember {
  readonly program: Program
  readonly port: number
}

export interface EtcdCluster {
  readonly members: readonly EtcdMember[]
  readonly ca: string
  readonly client: PemPair
  readonly folder: string
  /** Calls the JSON gateway of a running member and returns the answer. Throws the error that etcd reports. */
  call(path: string, body: object, at?: EtcdMember): Promise<Record<string, unknown>>
  leader(): Promise<EtcdMember>
  /** Enables password login for two users: root, and one with access to a prefix. */
  enableLogin(user: string, password: string, prefix: string): Promise<void>
  /** Waits until every running member answers a linearizable read. */
  healthy(): Promise<void>
}

export interface EtcdClusterInit {
  readonly quotaBytes?: number
}

export async function startEtcdCluster(t: Pick<Test, 'teardown'>, init: EtcdClusterInit = {}): Promise<EtcdCluster> {
  const folder = temporaryFolder(t)
  const authority = await testAuthority()
  // etcd takes a common name as a user name, and its JSON gateway refuses certificates with one.
  const subjects = ['O=etcd members', 'O=admin', 'CN=broker'] as const
  const [server, admin, client] = (await Promise.all(subjects.map((one) => authority.issue(one)))) as [
    PemPair,
    PemPair,
    PemPair,
  ]
  const file = (name: string, text: string): string => {
    writeFileSync(join(folder, name), text, { mode: 0o600 })
    return join(folder, name)
  }
  const files = {
    ca: file('ca.crt', authority.ca),
    certificate: file('server.crt', server.certificate),
    key: file('server.key', server.key),
  }
  file('client.crt', client.certificate)
  file('client.key', client.key)
  const ports = await Promise.all([0, 1, 2].map(async () => ({ client: await freePort(), peer: await freePort() })))
  const initial = ports.map(({ peer }, i) => `m${i}=https://127.0.0.1:${peer}`).join(',')
  const members = ports.map(({ client: port, peer }, i): EtcdMember => {
    const directory = join(folder, `m${i}`)
    mkdirSync(directory, { mode: 0o700 })
    const args = memberArguments({ name: `m${i}`, port, peer, initial, files, quotaBytes: init.quotaBytes })
    return { port, program: makeProgram({ name: `m${i}`, path: 'etcd', args, directory }) }
  })
  const cluster = new Cluster({ members, ca: authority.ca, client, admin, folder })
  t.teardown(() => Promise.all(members.map(({ program }) => program.kill())))
  for (const { program } of members) program.start()
  await cluster.healthy()
  return cluster
}

export interface ArgumentsInit {
  readonly name: string
  /** The address to listen on; 127.0.0.1 by default. */
  readonly host?: string
  readonly port: number
  readonly peer: number
  readonly initial: string
  readonly files: { readonly ca: string; readonly certificate: string; readonly key: string }
  readonly quotaBytes?: number | undefined
}

export function memberArguments(init: ArgumentsInit): string[] {
  const { name, host = '127.0.0.1', port, peer, initial, files, quotaBytes } = init
  const { ca, certificate, key } = files
  const client = `https://${host}:${port}`
  const own = `https://${host}:${peer}`
  return [
    ...['--name', name, '--data-dir', 'data', '--logger', 'zap', '--log-outputs', 'stderr'],
    ...['--listen-client-urls', client, '--advertise-client-urls', client],
    ...['--listen-peer-urls', own, '--initial-advertise-peer-urls', own],
    ...['--initial-cluster', initial, '--initial-cluster-state', 'new', '--initial-cluster-token', 'sealane-test'],
    ...['--cert-file', certificate, '--key-file', key, '--trusted-ca-file', ca, '--client-cert-auth'],
    ...['--peer-cert-file', certificate, '--peer-key-file', key, '--peer-trusted-ca-file', ca],
    '--peer-client-cert-auth',
    ...['--heartbeat-interval', '50', '--election-timeout', '500'],
    ...(quotaBytes === undefined ? [] : ['--quota-backend-bytes', String(quotaBytes)]),
  ]
}

type ClusterInit = Pick<EtcdCluster, 'members' | 'ca' | 'client' | 'folder'> & { readonly admin: PemPair }

class Cluster implements EtcdCluster {
  readonly members: readonly EtcdMember[]
  readonly ca: string
  readonly client: PemPair
  readonly folder: string
  readonly #admin: PemPair
  #token: string | undefined

  constructor({ members, ca, client, folder, admin }: ClusterInit) {
    this.#admin = admin
    this.members = members
    this.ca = ca
    this.client = client
    this.folder = folder
  }

  async call(path: string, body: object, at?: EtcdMember): Promise<Record<string, unknown>> {
    const running = at === undefined ? this.members.filter(({ program }) => program.pid !== undefined) : [at]
    let failure: unknown
    for (const member of running) {
      try {
        return await this.#post(member, path, body)
      } catch (error) {
        failure = error
      }
    }
    throw failure
  }

  async leader(): Promise<EtcdMember> {
    return eventually(
      async () => {
        for (const member of this.members.filter(({ program }) => program.pid !== undefined)) {
          const { header, leader } = (await this.#post(member, 'maintenance/status', {})) as {
            readonly header: { readonly member_id: string }
            readonly leader?: string
          }
          if (leader === header.member_id) return member
        }
        return undefined
      },
      { say: 'a leader', deadlineMs: 20_000, intervalMs: 50 },
    )
  }

  async enableLogin(user: string, password: string, prefix: string): Promise<void> {
    await this.call('auth/user/add', { name: 'root', password: ROOT_PASSWORD })
    await this.call('auth/role/add', { name: 'root' })
    await this.call('auth/user/grant', { user: 'root', role: 'root' })
    await this.call('auth/user/add', { name: user, password })
    await this.call('auth/role/add', { name: user })
    const perm = { permType: 'READWRITE', key: base64(`${prefix}/`), range_end: base64(`${prefix}0`) }
    await this.call('auth/role/grant', { name: user, perm })
    await this.call('auth/user/grant', { user, role: user })
    await this.call('auth/enable', {})
    const { token } = await this.call('auth/authenticate', { name: 'root', password: ROOT_PASSWORD })
    this.#token = String(token)
  }

  async healthy(): Promise<void> {
    await eventually(
      async () => {
        for (const member of this.members.filter(({ program }) => program.pid !== undefined))
          await this.#post(member, 'kv/range', { key: base64('health') })
        return true
      },
      { say: 'etcd', deadlineMs: 40_000, intervalMs: 100 },
    )
  }

  #post(member: EtcdMember, path: string, body: object): Promise<Record<string, unknown>> {
    const { ca } = this
    const { promise, resolve, reject } = Promise.withResolvers<Record<string, unknown>>()
    const options = {
      ...{ host: '127.0.0.1', port: member.port, path: `/v3/${path}`, method: 'POST', timeout: 5000, agent: false },
      ...{ ca, cert: this.#admin.certificate, key: this.#admin.key },
      headers: this.#token === undefined ? {} : { authorization: this.#token },
    } as const
    const call = request(options, (answer) => {
      let text = ''
      answer.on('data', (part: Buffer) => (text += part.toString()))
      answer.on('end', () => {
        if (answer.statusCode === 200) resolve(JSON.parse(text) as Record<string, unknown>)
        else reject(new Error(`etcd: ${path}: ${answer.statusCode}: ${text}`))
      })
    })
    call.on('timeout', () => call.destroy(new Error(`etcd: ${path}: no answer`)))
    call.on('error', reject)
    call.end(JSON.stringify(body))
    return promise
  }
}

export function base64(text: string): string {
  return Buffer.from(text).toString('base64')
}
