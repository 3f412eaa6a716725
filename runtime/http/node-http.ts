/**
 * Node's HTTP/1.1. An import of node:http evaluates every export of the module, including those that load Node's fetch
 * and WebSocket: 16 MiB and a tenth of a second for each process. Type imports from it are free.
 */
import type { ClientRequest, RequestListener, Server } from 'node:http'
import type { RequestOptions, ServerOptions } from 'node:https'

export const { Agent, createServer, request } = process.getBuiltinModule('node:http')

/** Like request(), over TLS. Loaded with the first call, since few processes need it. */
export function requestOverTls(options: RequestOptions): ClientRequest {
  return process.getBuiltinModule('node:https').request(options)
}

/** Like createServer(), over TLS. */
export function createServerOverTls(options: ServerOptions, listener: RequestListener): Server {
  return process.getBuiltinModule('node:https').createServer(options, listener)
}
