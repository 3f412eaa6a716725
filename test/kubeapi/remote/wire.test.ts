/** Lines and requests between nodes and their hub, whatever arrives. */
import fc from 'fast-check'
import t from 'tap'
import { ClusterApiError } from '../../../kubeapi/cluster-api.ts'
import {
  LineSplitter,
  MAX_LINE,
  parseEnrolRequest,
  parseHubRequest,
  parseRefusal,
  parseWatchLine,
} from '../../../kubeapi/remote/wire.ts'

t.test('lines are the same however they are cut', async () => {
  const texts = fc.array(
    fc.string({ unit: 'binary' }).map((text) => text.replaceAll('\n', '')),
    { maxLength: 8 },
  )
  fc.assert(
    fc.property(texts, fc.array(fc.nat({ max: 40 }), { maxLength: 12 }), (lines, cuts) => {
      const all = Buffer.from(lines.map((line) => `${line}\n`).join(''))
      const splitter = new LineSplitter()
      const found: string[] = []
      let from = 0
      for (const cut of [...cuts, all.length]) {
        found.push(...splitter.add(all.subarray(from, from + cut)))
        from += cut
      }
      return JSON.stringify(found) === JSON.stringify(lines.map((line) => Buffer.from(line).toString()))
    }),
  )
})

t.test('a line without end is not gathered for ever', async (t) => {
  const splitter = new LineSplitter()
  const part = Buffer.alloc(1_048_576, 0x61)
  t.throws(() => {
    for (let octets = 0; octets <= MAX_LINE; octets += part.length) splitter.add(part)
  }, /more than 8388608 octets/)
})

t.test('any body is a request or Invalid', async () => {
  const bodies = fc.oneof(
    fc.json(),
    fc.string(),
    fc.json().map((json) => `{"verb":"apply","object":${json}}`),
  )
  fc.assert(
    fc.property(bodies, (body) => {
      for (const parse of [parseHubRequest, parseEnrolRequest]) {
        try {
          parse(body)
        } catch (error) {
          if (!(error instanceof ClusterApiError) || error.code !== 'Invalid') return false
        }
      }
      parseRefusal(body)
      return true
    }),
  )
})

t.test('a line of a watch is of its kind', async (t) => {
  const node = { apiVersion: 'v1', kind: 'Node', metadata: { name: 'gw1' } }
  t.same(parseWatchLine('Node', JSON.stringify({ set: node })), { set: node })
  t.same(parseWatchLine('Node', '{"removed":{"name":"gw1"}}'), { removed: { name: 'gw1' } })
  t.same(parseWatchLine('Node', '{"epoch":"e","rev":3}'), { epoch: 'e', rev: 3 })
  for (const line of [
    ...['', '7', 'null', '[]', '{}', '{"removed":{}}', '{"set":null}', '{"rev":"3"}'],
    ...[
      '{"set":{"kind":"Node"}}',
      '{"removed":{"name":"a","namespace":7}}',
      JSON.stringify({ set: { ...node, kind: 'Pod' } }),
    ],
  ]) {
    t.throws(() => parseWatchLine('Node', line), line)
  }
})
