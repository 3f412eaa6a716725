/** Sends the same change to the same number of connections, by a bare TLS server and by etcd. */
import { fork, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, openSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { newIdentity } from './floor-identity.ts'
import { freePort } from '../../../test/support/free-port.ts'
import { eventually } from '../../../test/support/eventually.ts'
import type { Generators } from '../generators.ts'
import type { Histogram } from '../histogram.ts'

const ETCD = '/usr/bin/etcd'

export interface PeersInit {
  readonly generators: Generators
  readonly clusters: number
  readonly changes: number
  readonly everyMs: number
  readonly folder: string
}

export async function measureFloor(init: PeersInit): Promise<Histogram> {
  const server = fork(join(import.meta.dirname, 'floor-server.ts'), [JSON.stringify(await newIdentity())])
  try {
    const [port] = (await once(server, 'message')) as [number]
    return await fanOut(init, 'floor', port)
  } finally {
    server.kill('SIGKILL')
  }
}

/** Undefined if the machine has no etcd. */
export async function measureEtcd(init: PeersInit): Promise<Histogram | undefined> {
  if (!existsSync(ETCD)) return undefined
  const [port, peer] = [await freePort(), await freePort()]
  const [here, there] = [`https://127.0.0.1:${port}`, `http://127.0.0.1:${peer}`]
  const etcd = spawn(
    ETCD,
    [
      ...['--data-dir', join(init.folder, 'etcd'), '--auto-tls', '--logger', 'zap'],
      ...['--listen-client-urls', here, '--advertise-client-urls', here],
      ...['--listen-peer-urls', there, '--initial-advertise-peer-urls', there],
      ...['--initial-cluster', `default=${there}`],
    ],
    { stdio: ['ignore', 'ignore', openSync(join(init.folder, 'etcd.log'), 'w')], cwd: init.folder },
  )
  try {
    const up = (): Promise<boolean> => init.generators.call(0, 'etcd', 'open', { port, count: 1 }).then(() => true)
    await eventually(up, { deadlineMs: 30_000, say: 'etcd answers' })
    await init.generators.call(0, 'etcd', 'close')
    return await fanOut(init, 'etcd', port)
  } finally {
    etcd.kill('SIGKILL')
  }
}

async function fanOut({ generators, clusters, changes, everyMs }: PeersInit, on: 'floor' | 'etcd', port: number) {
  const shares = sharesOf(clusters, generators.count)
  await Promise.all(shares.map((count, i) => generators.call(i, on, 'open', { port, count })))
  await sleep(1000)
  for (let i = 0; i < changes; i += 1) {
    await generators.call(i % generators.count, on, 'change')
    await sleep(everyMs)
  }
  await sleep(1000)
  const ages = await generators.ages(on)
  await generators.all(on, 'close')
  return ages
}

export function sharesOf(total: number, parts: number): number[] {
  return Array.from({ length: parts }, (_, i) => Math.floor(total / parts) + (i < total % parts ? 1 : 0))
}
