/** Three members of etcd run as real processes, each on a machine with its own disk. */
import { mkdirSync, writeFileSync } from 'node:fs'
import { request } from 'node:https'
import { join } from 'node:path'
import { type Program, makeProgram } from '../../../kube/support/program.ts'
import { eventually } from '../../../support/eventually.ts'
import { type PemPair, testAuthority } from '../../support/certificates.ts'
import { memberArguments } from '../../support/etcd-cluster.ts'
import { ETCD_MACHINES, type Machine, mountDisk } from './arena.ts'

const PORT = 2379
const PEER = 2380
/** etcd allocates two files of 64 MiB for its log; the rest is for data. */
const DISK_MIB = 400

export interface Node {
  readonly machine: Machine
  readonly program: Program
  /** The mount point of the disk. */
  readonly disk: string
}

export interface EtcdNodes {
  readonly nodes: readonly Node[]
  /** The flags of the broker command that name the store, its addresses and its files. */
  readonly storeFlags: readonly string[]
  /** Waits until each member answers a linearizable read. */
  healthy(deadlineMs?: number): Promise<void>
  /** The number of the leader; undefined when no member reports one. */
  leader(): Promise<number | undefined>
}

export async function startEtcdNodes(folder: string): Promise<EtcdNodes> {
  const authority = await testAuthority()
  const [server, client] = await Promise.all([
    authority.issue(
      'O=etcd members',
      ETCD_MACHINES.map(({ address }) => address),
    ),
    authority.issue('O=brokers'),
  ])
  const file = (name: string, text: string): string => {
    writeFileSync(join(folder, name), text, { mode: 0o600 })
    return join(folder, name)
  }
  const ca = file('etcd-ca.crt', authority.ca)
  const files = { ca, certificate: file('etcd.crt', server.certificate), key: file('etcd.key', server.key) }
  const own = [file('client.crt', client.certificate), file('client.key', client.key)] as const
  const initial = ETCD_MACHINES.map(({ name, address }) => `${name}=https://${address}:${PEER}`).join(',')
  const nodes: Node[] = []
  for (const machine of ETCD_MACHINES) {
    const { name, address: host } = machine
    const disk = join(folder, name)
    mkdirSync(disk, { mode: 0o700 })
    await mountDisk(disk, DISK_MIB)
    const args = memberArguments({ name, host, port: PORT, peer: PEER, initial, files })
    nodes.push({ machine, disk, program: makeProgram({ name, path: 'etcd', args, directory: disk, netns: name }) })
  }
  for (const { program } of nodes) program.start()
  const ask = new Asker(authority.ca, client)
  const endpoints = ETCD_MACHINES.map(({ address }) => `${address}:${PORT}`).join(',')
  const all = {
    nodes,
    storeFlags: [
      ...['--store', `etcd://${endpoints}/rounds`],
      ...['--etcd-ca', ca, '--etcd-cert', own[0], '--etcd-key', own[1]],
    ],
    healthy: async (deadlineMs = 60_000) => {
      await eventually(
        async () => {
          await Promise.all(nodes.map(({ machine }) => ask.post(machine, 'kv/range', { key: 'aGVhbHRo' })))
          return true
        },
        { say: 'all members of etcd answer', deadlineMs, intervalMs: 100 },
      )
    },
    leader: async () => {
      for (const { machine } of nodes) {
        const status = await ask.post(machine, 'maintenance/status', {}).catch(() => undefined)
        const { header, leader } = (status ?? {}) as { header?: { member_id?: string }; leader?: string }
        if (leader !== undefined && leader === header?.member_id)
          return nodes.findIndex((one) => one.machine === machine)
      }
      return undefined
    },
  }
  await all.healthy()
  return all
}

class Asker {
  readonly #ca: string
  readonly #own: PemPair
  constructor(ca: string, own: PemPair) {
    this.#ca = ca
    this.#own = own
  }

  post({ address }: Machine, path: string, body: object): Promise<unknown> {
    const { promise, resolve, reject } = Promise.withResolvers<unknown>()
    const { certificate: cert, key } = this.#own
    const options = { host: address, port: PORT, path: `/v3/${path}`, method: 'POST', agent: false, timeout: 2000 }
    const call = request({ ...options, ca: this.#ca, cert, key }, (answer) => {
      let text = ''
      answer.on('data', (part: Buffer) => (text += part.toString()))
      answer.on('end', () => {
        if (answer.statusCode === 200) resolve(JSON.parse(text))
        else reject(new Error(`etcd: ${path}: ${answer.statusCode}: ${text}`))
      })
    })
    call.on('timeout', () => call.destroy(new Error(`etcd: ${path}: no answer`)))
    call.on('error', reject)
    call.end(JSON.stringify(body))
    return promise
  }
}
