/** Access of a pod: the environment and the mounted service account. */
import { readFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { isIPv6 } from 'node:net'
import { join } from 'node:path'
import type { Clock } from '../../../reconcile/clock.ts'
import { UserError } from '../../../runtime/user-error.ts'
import type { ServerAccess } from '../access/server-access.ts'

export const SERVICE_ACCOUNT_FOLDER = '/var/run/secrets/kubernetes.io/serviceaccount'
/** The kubelet renews the file long before the token ends; client-go looks as often. */
const TOKEN_LIFE_MS = 60_000

export interface PodAccessInit {
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
