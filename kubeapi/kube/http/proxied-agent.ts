/** HTTP/1.1 connections to the API server through a proxy: for requests, and for the sockets of pods. */
import type { Agent, AgentOptions } from 'node:http'
import { Agent as HttpsAgent } from 'node:https'
import { isIP } from 'node:net'
import { connect as connectTls } from 'node:tls'
import type { Clock } from '../../../reconcile/reconcile.ts'
import { Agent as HttpAgent } from '../../../runtime/http/http.ts'
import { type Proxy, type ProxyTarget, openTunnel } from '../../../runtime/proxy/proxy.ts'
import { errorOf } from '../../../runtime/runtime.ts'
import type { Credentials } from '../server-access.ts'

export interface ProxiedAgentInit {
  readonly clock: Clock
  readonly proxy: Proxy
  readonly server: URL
  readonly credentials: Credentials
  readonly options?: AgentOptions
}

/** The time until the proxy has connected to the server. */
export const CONNECT_MS = 10_000

/** An agent whose connections lead through the proxy. TLS runs inside of them. */
export function proxiedAgent({ clock, proxy, server, credentials, options = {} }: ProxiedAgentInit): Agent {
  const isPlain = server.protocol === 'http:'
  const agent: Agent = isPlain ? new HttpAgent(options) : new HttpsAgent(options)
  const to = targetOf(server)
  const endless = new AbortController().signal
  agent.createConnection = (_options, callback) => {
    openTunnel({ clock, proxy, to, timeoutMs: CONNECT_MS }, endless).then(
      (socket) => {
        const secured = isPlain ? socket : connectTls({ socket, host: to.host, ...tlsOptions(server, credentials) })
        callback?.(null, secured)
      },
      (error: unknown) => {
        // Node's types ask for a stream beside the error, and Node ignores it.
        ;(callback as ((error: Error) => void) | undefined)?.(errorOf(error))
      },
    )
    return undefined
  }
  return agent
}

/** The host without the brackets of a URL. */
export function targetOf(server: URL): ProxyTarget {
  const usual = server.protocol === 'http:' ? 80 : 443
  return {
    host: server.hostname.replace(/^\[|\]$/g, ''),
    port: server.port === '' ? usual : Number(server.port),
  }
}

/** Omits fields that are undefined, since Node treats them as set. */
export function tlsOptions(server: URL, credentials: Credentials): Record<string, unknown> {
  const { ca, cert, key, rejectUnauthorized } = credentials
  const { host } = targetOf(server)
  // RFC 6066 section 3 does not allow addresses there.
  const servername = credentials.servername ?? (isIP(host) === 0 ? host : undefined)
  const options = { ca, cert, key, rejectUnauthorized, servername }
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined))
}
