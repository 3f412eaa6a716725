/** A port on this host's loopback that leads to an address inside a network namespace. */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { eventually } from '../../support/eventually.ts'
import { freePort } from '../../support/free-port.ts'
import { makeProgram } from './program.ts'

export interface HostPortForward {
  /** https://127.0.0.1:port */
  readonly url: string
  stop(): Promise<void>
}

export interface HostPortForwardInit {
  /** For a socket and the logs. */
  readonly directory: string
  readonly netns: string
  readonly address: string
  readonly port: number
}

/** Two socat processes with a socket between them: files are the same on both sides of a network namespace. */
export async function forwardFromHost(init: HostPortForwardInit): Promise<HostPortForward> {
  const { directory, netns, address, port } = init
  const hostPort = await freePort()
  const socket = join(directory, 'forward.sock')
  const target = address.includes(':') ? `TCP6:[${address}]:${port}` : `TCP4:${address}:${port}`
  const inside = makeProgram({
    name: 'forward-inside',
    path: 'socat',
    args: [`UNIX-LISTEN:${socket},fork,backlog=128`, target],
    directory,
    netns,
  })
  const outside = makeProgram({
    name: 'forward-outside',
    path: 'socat',
    args: [`TCP4-LISTEN:${hostPort},bind=127.0.0.1,reuseaddr,fork,backlog=128`, `UNIX-CONNECT:${socket}`],
    directory,
  })
  inside.start()
  outside.start()
  await eventually(() => existsSync(socket) || inside.failure !== undefined, { say: 'the forwarded port' })
  return {
    url: `https://127.0.0.1:${hostPort}`,
    stop: async () => {
      await Promise.all([inside.kill('SIGTERM'), outside.kill('SIGTERM')])
    },
  }
}
