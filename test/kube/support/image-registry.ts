/** A registry of images that keeps what is pushed, for whoever wants to know what came. */
import { createHash } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import type { Test } from 'tap'
import { makeClusterCa } from './cluster-certificates.ts'

export interface ImageRegistry {
  /** 127.0.0.1:PORT, with TLS. */
  readonly host: string
  /** PEM of who signed its certificate. */
  readonly ca: string
  /** Digests. */
  readonly blobs: ReadonlySet<string>
  /** By `name:tag` and by `name:digest`. */
  readonly manifests: ReadonlyMap<string, string>
}

/** As much of the OCI distribution specification (section "Push") as a push takes. Ends with the test. */
export async function startImageRegistry(t: Test): Promise<ImageRegistry> {
  const blobs = new Set<string>()
  const manifests = new Map<string, string>()
  const answer = (request: IncomingMessage, response: ServerResponse, body: Buffer): void => {
    const url = new URL(request.url ?? '', 'http://registry')
    const [, name = '', kind, rest = ''] = /^\/v2\/(.+)\/(blobs|manifests)\/(.*)$/.exec(url.pathname) ?? []
    const end = (status: number, headers: Record<string, string> = {}): void =>
      void response.writeHead(status, headers).end()
    if (kind === undefined) end(200)
    else if (kind === 'manifests' && request.method !== 'PUT') end(manifests.has(`${name}:${rest}`) ? 200 : 404)
    else if (kind === 'manifests') {
      for (const reference of [rest, digestOf(body)]) manifests.set(`${name}:${reference}`, body.toString())
      end(201, { 'docker-content-digest': digestOf(body) })
    } else if (request.method === 'POST') end(202, { location: `${url.pathname}${(uploads += 1)}` })
    else if (request.method === 'PATCH') {
      // Several layers come at the same time.
      const so = Buffer.concat([pending.get(rest) ?? Buffer.alloc(0), body])
      pending.set(rest, so)
      end(202, { location: url.pathname, range: `0-${so.length - 1}` })
    } else if (request.method === 'PUT') {
      const whole = Buffer.concat([pending.get(rest) ?? Buffer.alloc(0), body])
      pending.delete(rest)
      const digest = digestOf(whole)
      if (digest === url.searchParams.get('digest')) blobs.add(digest)
      end(blobs.has(digest) ? 201 : 400, { 'docker-content-digest': digest })
    } else end(blobs.has(rest) ? 200 : 404)
  }
  const pending = new Map<string, Buffer>()
  let uploads = 0
  const ca = await makeClusterCa('registry')
  const { certificate: cert, key } = await ca.issue({ name: 'registry', hosts: ['127.0.0.1'] })
  const server = createServer({ cert, key }, (request, response) => {
    const chunks: Buffer[] = []
    request
      .on('data', (chunk: Buffer) => chunks.push(chunk))
      .on('end', () => answer(request, response, Buffer.concat(chunks)))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => new Promise<void>((resolve) => void server.close(() => resolve())))
  return { ca: ca.certificate, host: `127.0.0.1:${(server.address() as AddressInfo).port}`, blobs, manifests }
}

const digestOf = (body: Buffer): string => `sha256:${createHash('sha256').update(body).digest('hex')}`
