/** Requests over HTTP/1.1, and the shape of requests and answers for both ways. */
import type { Agent, IncomingMessage } from 'node:http'
import { request as requestHttps } from 'node:https'
import type { Readable } from 'node:stream'
import { request as requestHttp } from '../../../runtime/http/node-http.ts'
import type { RequestHeaders } from '../access/server-access.ts'

export interface Exchange {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  /** With the query. */
  readonly path: string
  readonly headers?: RequestHeaders
  readonly body?: string | undefined
}

export interface Answer {
  readonly status: number
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  /** Destroying it ends the exchange. */
  readonly body: Readable
}

export interface PlainRequestsInit {
  readonly server: URL
  readonly agent: Agent
}

export class PlainRequests {
  readonly #init: PlainRequestsInit

  constructor(init: PlainRequestsInit) {
    this.#init = init
  }

  send(exchange: Exchange, signal: AbortSignal): Promise<Answer> {
    const { server, agent } = this.#init
    const { method, path, headers, body } = exchange
    return new Promise((resolve, reject) => {
      const options = {
        method,
        agent,
        signal,
        headers: { ...headers, ...(body === undefined ? {} : { 'content-length': Buffer.byteLength(body) }) },
      }
      const onResponse = (response: IncomingMessage): void => {
        resolve({ status: response.statusCode ?? 0, headers: response.headers, body: response })
      }
      const send = server.protocol === 'http:' ? requestHttp : requestHttps
      const request = send(new URL(path, server.origin), options, onResponse)
      request.once('error', reject)
      request.end(body)
    })
  }

  close(): void {
    this.#init.agent.destroy()
  }
}
