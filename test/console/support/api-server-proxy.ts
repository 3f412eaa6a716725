/**
 * What stands between a reader and a console in a cluster: an API server that makes and reviews tokens and passes on
 * requests to the Service, as k8s.io/apimachinery/pkg/util/proxy does: the path is cut, the Host stays, Authorization
 * and the headers of the hop go, X-Forwarded-* come.
 */
import { once } from 'node:events'
import { type IncomingMessage, type ServerResponse, createServer } from 'node:http'
import { request as requestTls } from 'node:https'
import { randomBytes } from 'node:crypto'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import type { Test } from 'tap'
import { TOKEN_HEADER } from '../../../console/console.ts'
import { writeKubeconfig } from '../../kube/support/kubeconfig-file.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const SERVICE = '/api/v1/namespaces/sealane-system/services/https:sealane-console:console/proxy'
const TOKENS = /^\/api\/v1\/namespaces\/sealane-system\/serviceaccounts\/([\w-]+)\/token$/
const REVIEWS = '/apis/authentication.k8s.io/v1'
const OF_THE_HOP = ['connection', 'keep-alive', 'te', 'trailer', 'transfer-encoding', 'upgrade', 'authorization']
const MAX_BODY = 1 << 16

interface Issued {
  readonly account: string
  readonly audience: string
}

export class ApiServerProxy {
  kubeconfig = ''
  url = ''
  /** Of the console in the pod: `https://127.0.0.1:9480`. Undefined: no pod is ready. */
  pod: string | undefined
  /** The Service and the account exist. */
  installed = true
  /** The lines of the requests, as an audit log has them. */
  readonly lines: string[] = []
  /** The tokens that were given in requests to the Service. */
  readonly given: string[] = []
  readonly #issued = new Map<string, Issued>()

  issue(account = 'sealane-console-reader', audience = 'sealane-console', seconds = 600): string {
    const iat = Math.floor(Date.now() / 1000)
    const sub = userOf(account)
    const claims = JSON.stringify({
      aud: [audience],
      sub,
      iat,
      exp: iat + seconds,
      jti: randomBytes(8).toString('hex'),
    })
    const token = ['{}', claims, randomBytes(30)].map((part) => Buffer.from(part).toString('base64url')).join('.')
    this.#issued.set(token, { account, audience })
    return token
  }

  /** All tokens become invalid. */
  forget(): void {
    this.#issued.clear()
  }

  async start(t: Pick<Test, 'teardown'>): Promise<void> {
    const server = createServer((request, response) => void this.#answer(request, response))
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    t.teardown(() => {
      server.closeAllConnections()
      server.close()
    })
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    const path = join(temporaryFolder(t), 'kubeconfig')
    const user = { url: this.url, ca: '', credentials: { token: 'user' } }
    this.kubeconfig = writeKubeconfig(path, { ...user, cluster: 'c1', user: 'ana' })
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = '', url = '', headers } = request
    const path = url.split('?', 1)[0] ?? ''
    this.lines.push(`${method} ${url}`)
    if (headers.authorization !== 'Bearer user') {
      status(response, 401, 'Unauthorized')
      return
    }
    if (path.startsWith(`${SERVICE}/`)) {
      if (!this.installed) {
        status(response, 404, 'NotFound')
        return
      }
      if (this.pod === undefined) {
        status(response, 503, 'ServiceUnavailable')
        return
      }
      this.#pass(request, response, url.slice(SERVICE.length))
      return
    }
    const account = TOKENS.exec(path)?.[1]
    if (account !== undefined) {
      if (!this.installed) {
        status(response, 404, 'NotFound')
        return
      }
      const { spec } = (await bodyOf(request)) as { spec: { audiences: readonly [string] } }
      const token = this.issue(account, spec.audiences[0])
      json(response, 201, {
        status: { token, expirationTimestamp: new Date(Date.now() + 600_000).toISOString() },
      })
      return
    }
    if (path === REVIEWS) {
      const resources = [{ name: 'tokenreviews', kind: 'TokenReview', namespaced: false }]
      json(response, 200, { kind: 'APIResourceList', resources })
      return
    }
    if (path === `${REVIEWS}/tokenreviews`) {
      const { spec } = (await bodyOf(request)) as { spec: { token: string; audiences: readonly string[] } }
      const known = this.#issued.get(spec.token)
      const isValid = known !== undefined && spec.audiences.includes(known.audience)
      const username = userOf(known?.account ?? '')
      const found = isValid ? { authenticated: true, user: { username }, audiences: [known.audience] } : {}
      json(response, 201, { kind: 'TokenReview', status: found })
      return
    }
    status(response, 404, 'NotFound')
  }

  #pass(request: IncomingMessage, response: ServerResponse, path: string): void {
    const passedOn = Object.entries(request.headers).filter(([name]) => !OF_THE_HOP.includes(name))
    const headers: IncomingMessage['headers'] = Object.fromEntries(passedOn)
    headers['x-forwarded-host'] = request.headers.host
    headers['x-forwarded-proto'] = 'https'
    headers['x-forwarded-uri'] = `${SERVICE}${path}`
    const token = headers[TOKEN_HEADER]
    if (typeof token === 'string') this.given.push(token)
    const options = { method: request.method ?? '', headers, rejectUnauthorized: false, agent: false as const }
    const passed = requestTls(new URL(path, this.pod), options, (answer) => {
      response.writeHead(answer.statusCode ?? 0, answer.headers)
      response.flushHeaders()
      answer.on('error', () => response.destroy())
      answer.pipe(response)
    })
    passed.on('error', () => (response.headersSent ? response.destroy() : status(response, 503, 'ServiceUnavailable')))
    response.once('close', () => passed.destroy())
    passed.end()
  }
}

function userOf(account: string): string {
  return `system:serviceaccount:sealane-system:${account}`
}

async function bodyOf(request: IncomingMessage): Promise<unknown> {
  const chunks = (await request.toArray()) as Buffer[]
  return JSON.parse(Buffer.concat(chunks).subarray(0, MAX_BODY).toString())
}

function json(response: ServerResponse, code: number, body: object): void {
  response.writeHead(code, { 'content-type': 'application/json' })
  response.end(JSON.stringify(body))
}

function status(response: ServerResponse, code: number, reason: string): void {
  json(response, code, {
    kind: 'Status',
    apiVersion: 'v1',
    status: 'Failure',
    code,
    reason,
    message: `it is ${reason}`,
  })
}
