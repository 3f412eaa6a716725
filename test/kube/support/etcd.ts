/** etcd for test clusters: one member, reached over a socket in its folder. */
import { mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { ETCD_SOCKET, GO_ENVIRONMENT, PEER_SOCKET, etcdArguments } from './control-plane-arguments.ts'
import { kubePrograms } from './kube-programs.ts'
import { type Program, makeProgram } from './program.ts'

export interface Etcd {
  /** For --etcd-servers. */
  readonly url: string
  readonly program: Program
  stop(): Promise<void>
}

/** Starts it without waiting: whoever uses it tries until it answers. The folder is made; its path must be short. */
export async function startEtcd(init: { readonly directory: string }): Promise<Etcd> {
  const { directory } = init
  const path = (await kubePrograms())['etcd'] ?? 'etcd'
  mkdirSync(directory, { recursive: true, mode: 0o700 })
  // A killed etcd leaves its sockets, and the next one does not start over them.
  const prepare = (): void =>
    [ETCD_SOCKET, PEER_SOCKET].forEach((name) => rmSync(join(directory, name), { force: true }))
  const env = { ...process.env, ...GO_ENVIRONMENT }
  const program = makeProgram({ name: 'etcd', path, args: etcdArguments(), directory, env, prepare })
  program.start()
  return { url: `unix://${join(directory, ETCD_SOCKET)}`, program, stop: () => program.kill() }
}
