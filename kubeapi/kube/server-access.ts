/** Identifies an API server and our credentials for it. */
import { readFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { isIPv6 } from 'node:net'
import { join } from 'node:path'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { Proxy } from '../../runtime/proxy/proxy.ts'
import { UserError } from '../../runtime/runtime.ts'

export type RequestHeaders = Readonly<Record<string, string | string[]>>

/** Requested for each connection and request: tokens expire, certificates are replaced. */
export interface Credentials {
  /** A list is sent as one header for each value. */
  readonly headers: RequestHeaders
  readonly ca?: string | Uint8Array | undefined
  readonly cert?: string | Uint8Array | undefined
  readonly key?: string | Uint8Array | undefined
  readonly servername?: string | undefined
  readonly rejectUnauthorized?: boolean | undefined
}

export interface ServerAccess {
  /** Has a path if the server is one of many behind a gateway. */
  readonly server: URL
  /**
   * All connections lead through it. Absent in a pod, whatever its environment says: the API server is in the same
   * cluster, and a proxy that is meant for other networks must not cut a node off from it.
   */
  readonly proxy?: Proxy
  /** The namespace of the context or the pod. */
  readonly namespace: string | undefined
  /** For messages: `context "c1" of /home/ana/.kube/config`, `this pod's service account`. */
  readonly title: string
  /** Name of the kubeconfig's context; absent in a pod. */
  readonly contextName?: string
  /** Throws Error if a credential plugin fails. */
  credentials(signal: AbortSignal): Promise<Credentials>
  /** Drops cached credentials after the server rejected them. */
  forget(): void
}

// Access from a pod: the environment and the mounted service account.

const SERVICE_ACCOUNT_FOLDER = '/var/run/secrets/kubernetes.io/serviceaccount'
/** The kubelet renews the file long before the token expires; client-go reads it as often. */
const TOKEN_LIFE_MS = 60_000

interface PodAccessInit {
  readonly env: Readonly<Record<string, string | undefined>>
  /** Default: the kubelet's mount path. */
  readonly folder?: string
}

/** Undefined if this process does not run in a pod. */
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

/** A token that is read again every minute, and at once after it was rejected. */
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
