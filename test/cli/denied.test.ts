/** `sealane show denied`: samples as the routeagent of this machine reports them. */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { runCli } from './run-cli.ts'

const ROW = {
  at: '2026-11-29T19:00:01.000Z',
  reason: 'access-not-exported',
  from: { address: '244.1.0.9', cluster: 'paris' },
  to: { address: '10.42.1.5', service: 'shop/web' },
  protocol: 'tcp',
  port: 8081,
}
const ECHO = {
  ...ROW,
  at: '2026-11-29T19:00:00.000Z',
  from: { address: '192.0.2.1' },
  protocol: 'icmp',
  port: undefined,
}

async function pageOf(t: Test, body: string): Promise<string> {
  const server = createServer(
    ({ url }, response) => void response.writeHead(url === '/debug/denied' ? 200 : 404).end(body),
  )
  t.teardown(() => server.close())
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return `127.0.0.1:${(server.address() as AddressInfo).port}`
}

t.test('rows and refusals', async (t) => {
  const rows: readonly [what: string, body: string, words: string[], code: number, said: RegExp][] = [
    [
      'a table, sorted',
      JSON.stringify([ROW, ECHO]),
      [],
      0,
      /\(no member\) 192\.0\.2\.1 .* icmp[^]*paris 244\.1\.0\.9 +10\.42\.1\.5 shop\/web +tcp 8081 +access-not-exported/,
    ],
    [
      'a call of a pod',
      JSON.stringify([{ ...ROW, reason: 'access-egress', from: ROW.to, to: ROW.from }]),
      [],
      0,
      / 10\.42\.1\.5 shop\/web +paris 244\.1\.0\.9 +tcp 8081 +access-egress/,
    ],
    ['JSON', JSON.stringify([ROW]), ['-o', 'json'], 0, /"cluster": "paris"/],
    ['none', '[]', ['-o', 'json'], 0, /"items": \[\]/],
    ['no JSON', 'hello', [], 1, /expected JSON/],
    ['no list', '{}', [], 1, /expected a list/],
    ['control characters', JSON.stringify([{ ...ROW, reason: 'a\u001b[2J' }]), [], 1, /expected at, reason/],
  ]
  for (const [what, body, words, code, said] of rows) {
    const page = await pageOf(t, body)
    const result = await runCli(['show', 'denied', '--ask', page, ...words])
    t.equal(result.code, code, what)
    t.match(`${result.stdout}${result.stderr}`, said, what)
  }
  const gone = await runCli(['show', 'denied', '--ask', '127.0.0.1:1'])
  t.equal(gone.code, 1)
  t.match(gone.stderr, /the routeagent at 127\.0\.0\.1:1/)
})
