/** Which API server, and who we are to it. */
import { readFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import type { Agent } from 'node:http'
import { isIPv6 } from 'node:net'
import { join } from 'node:path'
import type { Clock } from '../../reconcile/reconcile.ts'
import { UserError } from '../../runtime/runtime.ts'

export type RequestHeaders = Readonly<Record<string, string | string[]>>

/** Fresh for each connection and request: tokens turn, certificates are replaced. */
export interface Credentials {
  /** A list is sent as one header for each of its values. */
  readonly headers: RequestHeaders
  readonly ca?: string | Uint8Array | undefined
  readonly cert?: string | Uint8Array | undefined
  readonly key?: string | Uint8Array | undefined
  readonly servername?: string | undefined
  readonly rejectUnauthorized?: boolean | undefined
  /** Where there is a proxy between: the connections are its. */
  readonly agent?: Agent | undefined
}

export interface ServerAccess {
  /** With a path where the server is one of many behind a gateway. */
  readonly server: URL
  /** Namespace that the context or the pod names. */
  readonly namespace: string | undefined
  /** For messages: `context "c1" of /home/ana/.kube/config`, `this pod's service account`. */
  readonly title: string
  /** Name of the kubeconfig's context; absent in a pod. */
  readonly contextName?: string
  /** Throws Error when a credential plugin fails. */
  credentials(signal: AbortSignal): Promise<Credentials>
  /** The server refused what we showed it: nothing kept is shown again. */
  forget(): void
}

// Access of a pod: the environment and the mounted service account.

const SERVICE_ACCOUNT_FOLDER = '/var/run/secrets/kubernetes.io/serviceaccount'
/** The kubelet renews the file long before the token ends; client-go looks as often. */
const TOKEN_LIFE_MS = 60_000

interface PodAccessInit {
  readonly env: Readonly<Record<string, string | undefined>>
  /** Default: where the kubelet mounts it. */
  readonly folder?: string
}

/** Undefined when this process is in no pod. */
export function podAccess(clock: Clock, init: PodAccessInit): ServerAccess | undefined {
  const { env, folder = SERVICE_ACCOUNT_FOLDER } = init
  const host = env['KUBERNETES_SERVICE_HOST'] ?? ''
  const port = env['KUBERNETES_SERVICE_PORT'] ?? ''
  if (host === '' || port === '' || readable(join(folder, 'token')) === undefined) return undefined
  const token = new TokenFile(clock, join(folder, 'token'))
  const server = `https://${isIPv6(host) ? `[${host}]` : host}:${port}`
  if (!URL.canParse(server)) {
    throw new UserError(
      `KUBERNETES_SERVICE_HOST ${host} and KUBERNETES_SERVICE_PORT ${port}: expected an address and a port`,
    )
  }
  return {
    server: new URL(server),
    namespace: readable(join(folder, 'namespace'))?.trim(),
    title: "this pod's service account",
    credentials: async () => ({
      headers: { authorization: `Bearer ${await token.read()}` },
      ca: await readFile(join(folder, 'ca.crt')),
    }),
    forget: () => token.forget(),
  }
}

/** A token that is read again each minute, and at once after it was refused. */
export class TokenFile {
  readonly #clock: Clock
  readonly #path: string
  #last: { readonly token: string; readonly at: number } | undefined

  constructor(clock: Clock, path: string) {
    this.#clock = clock
    this.#path = path
  }

  async read(): Promise<string> {
    const now = this.#clock.monotonic()
    if (this.#last === undefined || now - this.#last.at >= TOKEN_LIFE_MS) {
      this.#last = { token: (await readFile(this.#path, 'utf8')).trim(), at: now }
    }
    return this.#last.token
  }

  forget(): void {
    this.#last = undefined
  }
}

function readable(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return undefined
  }
}
