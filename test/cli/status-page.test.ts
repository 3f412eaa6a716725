/** The messages about a status page with an unexpected answer. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { once } from 'node:events'
import t from 'tap'
import { textOfPage } from '../../cli/status/ask.ts'
import { messageOf } from '../support/failure.ts'

const SAID: readonly (readonly [status: number, said: RegExp])[] = [
  [404, /answers 404: its release may not report its state$/],
  [408, /answers 408: it is too busy to answer now, try again$/],
  [503, /answers 503: it is too busy to answer now, try again$/],
  [500, /answers 500$/],
]

for (const [status, said] of SAID) {
  t.test(`a page that answers ${status}`, async (t) => {
    const server = createServer((_, response) => void response.writeHead(status).end())
    t.teardown(() => server.close())
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { port } = server.address() as AddressInfo
    const asked = textOfPage(`127.0.0.1:${port}`, '/status', 1000, new AbortController().signal)
    t.match(await messageOf(asked), said)
  })
}
