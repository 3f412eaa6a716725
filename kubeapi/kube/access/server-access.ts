/** Which API server, and who we are to it. */
import type { Agent } from 'node:http'

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
