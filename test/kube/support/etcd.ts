/** etcd for test clusters: one member, reached over a socket in its folder. */
import { mkdirSync, rmSync } from 'node:fs'
import { request } from 'node:http'
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

/** A call of its JSON gateway; `directory` is what it was started with. Throws for an answer that is no success. */
export function askEtcd(directory: string, path: string, body: object): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const asked = request({ socketPath: join(directory, ETCD_SOCKET), path, method: 'POST' }, (response) => {
      let text = ''
      response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk))
      response.on('error', reject).on('end', () => {
        if (response.statusCode === 200) resolve(JSON.parse(text))
        else reject(new Error(`etcd: ${path}: ${response.statusCode ?? 0} ${text}`))
      })
    })
    asked.on('error', reject).end(JSON.stringify(body))
  })
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
