/**
 * Brokers run as processes on one etcd, which requires a client certificate and a password. Tests can kill and restart
 * them.
 */
import { once } from 'node:events'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import type { RawBroker } from '../../hostile/support/raw-channel.ts'
import { spawnServing } from '../../cli/run-cli.ts'
import { eventually } from '../../support/eventually.ts'
import { freePort } from '../../support/free-port.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import type { EtcdCluster } from './etcd-cluster.ts'

export interface ServedBroker extends RawBroker {
  readonly audit: string
  /** The address of the status page, as HOST:PORT. */
  readonly status: string
  /** Starts the broker and waits until it is ready. It ends with the test that threeBrokers() was called for. */
  start(): Promise<void>
  kill(): Promise<void>
}
export type ServedBrokers = readonly [ServedBroker, ServedBroker, ServedBroker]

/**
 * Prepares three brokers that know each other's addresses, each with its own state directory. The caller starts them.
 */
export async function threeBrokers(t: Test, cluster: EtcdCluster, prefix: string): Promise<ServedBrokers> {
  await cluster.enableLogin('broker', 'not-for-argv', prefix)
  const folder = temporaryFolder(t)
  writeFileSync(join(folder, 'password'), 'not-for-argv\n', { mode: 0o600 })
  const ports = await Promise.all([0, 1, 2].map(() => freePort()))
  const advertise = ports.flatMap((port) => ['--advertise', `127.0.0.1:${port}`])
  const flags = [...advertise, ...storeFlags(cluster, folder, prefix)]
  const made = await Promise.all(ports.map((port, i) => served(t, { state: join(folder, String(i)), port, flags })))
  return made as unknown as ServedBrokers
}

function storeFlags(cluster: EtcdCluster, folder: string, prefix: string): string[] {
  const endpoints = cluster.members.map(({ port }) => `127.0.0.1:${port}`).join(',')
  const at = (name: string): string => join(cluster.folder, name)
  return [
    ...['--store', `etcd://broker@${endpoints}${prefix}`, '--etcd-password-file', join(folder, 'password')],
    ...['--etcd-ca', at('ca.crt'), '--etcd-cert', at('client.crt'), '--etcd-key', at('client.key')],
  ]
}

interface ServedInit {
  readonly state: string
  readonly port: number
  readonly flags: readonly string[]
}

async function served(t: Test, { state, port, flags }: ServedInit): Promise<ServedBroker> {
  const status = `127.0.0.1:${await freePort()}`
  const address = `127.0.0.1:${port}`
  const audit = join(state, 'audit.log')
  mkdirSync(state, { mode: 0o700 })
  let child: ReturnType<typeof spawnServing> | undefined
  return {
    ...{ address, state, audit, status },
    async start() {
      const started = spawnServing(t, [
        ...['broker', 'serve', '--state', state, '--clusterset', 'demo', '--listen', address],
        ...['--status-listen', status, '--audit-log', audit, ...flags],
      ])
      child = started
      const isReady = async (): Promise<boolean> => (await fetch(`http://${status}/readyz`)).ok
      await eventually(isReady, { deadlineMs: 40_000, say: 'the broker is ready' }).catch((error: unknown) => {
        throw new Error(`${String(error)}\n${started.said()}`)
      })
    },
    async kill() {
      if (child === undefined) return
      const ended = once(child, 'close')
      child.kill('SIGKILL')
      await ended
      child = undefined
    },
  }
}
