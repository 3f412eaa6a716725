/** `sealane top` and `sealane flows`: what the routeagent of this machine says. */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { readFlows } from '../../cli/status/flows/read-flows.ts'
import { flowLines, linesToKnow, newLines, topRows } from '../../cli/status/flows/plan-flows.ts'
import { type FlowPage, type FlowRow, NO_FLOWS } from '../../model/flow-counts.ts'
import { UserError } from '../../runtime/errors.ts'
import { parseDocuments } from '../../kubeapi/yaml.ts'
import { runCli, startCli } from './run-cli.ts'

function row(change: Partial<FlowRow>, opened: number, others: Partial<FlowRow['recent']> = {}): FlowRow {
  const counted = { ...NO_FLOWS, opened, ...others }
  return { way: 'out', total: counted, recent: counted, times: [0, 0, 0, opened], ...change }
}

const PARIS = { namespace: 'shop', service: 'shop/web', cluster: 'paris' }
const PAGE: FlowPage = {
  since: '2026-11-30T00:00:00.000Z',
  recentSeconds: 60,
  rows: [
    row(PARIS, 120, { refused: 6, ended: 100, timedOut: 3, sentBytes: 6000, receivedBytes: 6000 }),
    row({ ...PARIS, cluster: 'oslo' }, 60, { unanswered: 1 }),
    row({ service: 'shop/db', cluster: 'oslo' }, 6, { unanswered: 2 }),
    row({ way: 'in', cluster: 'paris', service: 'shop/log' }, 30),
  ],
  rest: row({}, 0),
  sampled: 20,
  lines: [
    {
      ...{ number: 1, at: '2026-11-30T00:00:01.000Z', outcome: 'answered', protocol: 'tcp', port: 8080, ms: 2.5 },
      from: { address: '10.42.1.5', namespace: 'shop', pod: 'web-1' },
      to: { address: '244.1.0.5', service: 'shop/web', cluster: 'paris' },
    },
    {
      ...{ number: 2, at: '2026-11-30T00:00:03.000Z', outcome: 'refused', protocol: 'tcp', port: 8080 },
      ...{ reason: 'CallRefused', from: { address: '10.42.1.6', namespace: 'bank' } },
      to: { address: '244.3.0.5', service: 'shop/db', cluster: 'oslo' },
    },
  ],
}
const DENIED = {
  ...{ at: '2026-11-30T00:00:02.000Z', reason: 'access-not-exported', protocol: 'tcp', port: 22 },
  ...{ from: { address: '244.1.0.9', cluster: 'paris' }, to: { address: '10.42.1.5' } },
}
const CLOSED = {
  ...{ at: '2026-11-30T00:00:02.500Z', reason: 'access-egress', protocol: 'tcp', port: 23 },
  from: { address: '10.42.1.7', namespace: 'bank', pod: 'job-1' },
  to: { address: '244.1.0.9', cluster: 'paris' },
}
const TEXT = JSON.stringify({ ...PAGE, denied: [DENIED, CLOSED] })

async function pageOf(t: Test, body: string): Promise<string> {
  const server = createServer(
    ({ url }, response) => void response.writeHead(url === '/debug/flows' ? 200 : 404).end(body),
  )
  t.teardown(() => server.close())
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return `127.0.0.1:${(server.address() as AddressInfo).port}`
}

t.test('what the commands print', async (t) => {
  const rows: readonly [what: string, words: string[], code: number, said: RegExp][] = [
    ['services', ['top', 'services'], 0, /SERVICE[^]*shop\/web +3 +6 +1 +3 of 100 +200 [^]*shop\/db +0\.1 +0 +2 +- /],
    ['clusters', ['top', 'clusters'], 0, /CLUSTER[^]*paris +2 +6 [^]*oslo +1\.1 +0 +3 /],
    ['callers', ['top', 'callers'], 0, /CALLER[^]*shop +3 [^]*cluster paris +0\.5 [^]*- +0\.1 /],
    ['another order', ['top', 'services', '--sort', 'unanswered'], 0, /shop\/db[^]*shop\/web/],
    ['time-outs', ['top', 'services', '-o', 'json'], 0, /"ended": 100,\s+"timedOut": 3/],
    ['ordered by them', ['top', 'clusters', '--sort', 'timed-out'], 0, /paris[^]*oslo/],
    ['connect times', ['top', 'services', '-o', 'json'], 0, /"p50Ms": 0\.75,[^]*"p99Ms": 0\.995/],
    ['an unknown group', ['top', 'pods'], 2, /"pods": expected services, clusters, callers/],
    ['an unknown order', ['top', 'services', '--sort', 'x'], 2, /--sort "x": expected calls, refused/],
    [
      'lines, the latest last',
      ['flows'],
      0,
      /shop\/web-1 10\.42\.1\.5 +paris 244\.1\.0\.5 shop\/web +tcp 8080 +answered +2\.5 +-\n[^]*denied +- +access-not-exported\n[^]*refused +- +CallRefused\n/,
    ],
    ['said to be samples', ['flows'], 0, /samples: at most 20 calls a second of each node/],
    ['of a namespace', ['flows', '--from', 'bank', '-o', 'json'], 0, /"items": \[[^]*"at": "2026-11-30T00:00:03/],
    ['to a service', ['flows', '--to', 'web', '-o', 'json'], 0, /"ms": 2\.5\s+\}\s+\]/],
    ['denied', ['flows', '--denied', '-o', 'json'], 0, /"items": \[\s+\{\s+"at": "2026-11-30T00:00:02[^]*\}\s+\]/],
    [
      'denied to a namespace',
      ['flows', '--denied', '--from', 'bank'],
      0,
      /bank\/job-1 10\.42\.1\.7 +paris[^\n]*denied/,
    ],
    ['of a cluster', ['flows', '--cluster', 'rome', '-o', 'json'], 0, /"items": \[\]/],
    ['a service that is none', ['flows', '--to', 'a/b/c'], 2, /--to "a\/b\/c": expected NAMESPACE\/NAME or NAME/],
  ]
  const page = await pageOf(t, TEXT)
  for (const [what, words, code, said] of rows) {
    const result = await runCli([...words, '--ask', page])
    t.equal(result.code, code, what)
    t.match(`${result.stderr}${result.stdout}`, said, what)
  }
  const raw = await runCli(['top', 'services', '--page', '--ask', page])
  t.same(
    topRows([readFlows(raw.stdout)], 'services'),
    topRows([readFlows(TEXT)], 'services'),
    'as another node reads it',
  )
  t.same(flowLines([readFlows(raw.stdout)]), flowLines([readFlows(TEXT)]))
  const gone = await runCli(['top', 'services', '--ask', '127.0.0.1:1'])
  t.match(gone.stderr, /the routeagent at 127\.0\.0\.1:1/)
})

t.test('pages that are none', async (t) => {
  const rows: readonly [what: string, page: object | string, said: RegExp][] = [
    ['text', 'hello', /expected JSON/],
    ['a routeagent that counts nothing', { denied: [] }, /does not have/],
    ['no rest', { ...PAGE, rest: undefined }, /expected since, recentSeconds, sampled and rest/],
    ['too many rows', { ...PAGE, rows: Array.from({ length: 1001 }, () => PAGE.rest) }, /at most 1000 rows/],
    ['a negative count', { ...PAGE, rows: [row({}, -1)] }, /expected way, total, recent and times/],
    ['a way that is none', { ...PAGE, rows: [{ ...PAGE.rest, way: 'up' }] }, /expected way/],
    ['too many times', { ...PAGE, rows: [row({ times: new Array<number>(100).fill(1) }, 1)] }, /expected way/],
    ['an outcome that is none', { ...PAGE, lines: [{ ...PAGE.lines[0], outcome: 7 }] }, /expected at, outcome/],
    ['control characters', { ...PAGE, lines: [{ ...PAGE.lines[0], protocol: 'a\u001b[2J' }] }, /expected at, outcome/],
  ]
  for (const [what, page, said] of rows)
    t.throws(() => readFlows(typeof page === 'string' ? page : JSON.stringify(page)), { message: said }, what)
  const early = Object.fromEntries(
    Object.entries(row({}, 7).total).filter(([name]) => name !== 'ended' && name !== 'timedOut'),
  )
  const { rows: earlier } = readFlows(
    JSON.stringify({ ...PAGE, rows: [{ ...row({}, 7), total: early, recent: early }] }),
  )
  t.same(earlier[0]?.total, { ...NO_FLOWS, opened: 7 }, 'an earlier release')
  const later = { ...PAGE.lines[0], outcome: 'migrated', ms: 'long' }
  t.same(
    readFlows(JSON.stringify({ ...PAGE, lines: [later, ...PAGE.lines] })),
    readFlows(JSON.stringify(PAGE)),
    'a later one',
  )
  const named = readFlows(JSON.stringify({ ...PAGE, rows: [row({ service: '\u202eevil' }, 1)] }))
  t.equal(named.rows[0]?.service, undefined)
  fc.assert(
    fc.property(fc.json(), (text) => {
      try {
        readFlows(text)
        return true
      } catch (error) {
        return error instanceof UserError
      }
    }),
  )
})

t.test('several nodes', async (t) => {
  const [one, other] = [
    { ...PAGE, node: 'n1' },
    { ...PAGE, node: 'n2', rest: row({}, 5) },
  ]
  t.match(topRows([one, other], 'services', 'name'), [
    { name: '(others)', callsPerSecond: 0.083 },
    { name: 'shop/db', callsPerSecond: 0.2 },
    { name: 'shop/web', callsPerSecond: 6, total: { opened: 360 } },
  ])
  const lines = flowLines([one, other])
  t.same(
    lines.map(({ node, number }) => [node, number]),
    [
      ['n1', 1],
      ['n2', 1],
      ['n1', 2],
      ['n2', 2],
    ],
  )
  t.same(newLines(lines, flowLines([one])), flowLines([other]), 'what was printed is not printed again')
})

t.test('a node that gives no answer once says its lines again, which are not printed again', async (t) => {
  const nodes = ['n1', 'n2', 'n3'].map((node) => ({ ...PAGE, node }))
  const looks = [nodes, nodes.slice(0, 2), nodes.slice(1), nodes, [], nodes]
  const printed: string[] = []
  let known: ReturnType<typeof flowLines> = []
  for (const pages of looks) {
    const lines = flowLines(pages)
    printed.push(...newLines(lines, known).map(({ node, number }) => `${node ?? ''} ${number ?? ''}`))
    known = linesToKnow(pages, lines, known)
  }
  t.same(printed.sort(), ['n1 1', 'n1 2', 'n2 1', 'n2 2', 'n3 1', 'n3 2'])
  t.equal(known.length, 6, 'and each is known once')
})

t.test('repeated as YAML, each look is a document of its own', async (t) => {
  const looks = [PAGE.lines.slice(0, 1), PAGE.lines]
  let count = 0
  const server = createServer((_, response) => {
    response.end(JSON.stringify({ ...PAGE, lines: looks[Math.min(count++, 1)], denied: [] }))
  })
  t.teardown(() => server.close())
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const page = `127.0.0.1:${(server.address() as AddressInfo).port}`
  const started = startCli(['flows', '--watch', '-o', 'yaml', '--ask', page])
  while (!started.answers().includes('CallRefused')) await setTimeout(50)
  started.stop()
  await started.result
  const documents = parseDocuments(started.answers(), {})
  t.same(
    documents.flatMap(({ errors }) => errors),
    [],
  )
  t.equal(documents.length, 2)
})
