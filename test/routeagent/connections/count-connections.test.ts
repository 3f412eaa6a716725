import t from 'tap'
import { FakeConnections } from '../../../kernel/fake/fake-connections.ts'
import { parsePrefix } from '../../../model/values/ip.ts'
import { MAX_ENTRIES_READ, countConnections } from '../../../routeagent/count-connections.ts'

const PODS = ['10.42.1.0/24', 'fd00:42:1::/64'].map((text) => parsePrefix(text))
const OTHERS = ['244.1.0.0/16', '10.60.0.0/16', 'fd00:60::/48'].map((text) => parsePrefix(text))
const signal = new AbortController().signal

t.test('which connections count', async (t) => {
  const rows: [name: string, client: string, server: string, counts: boolean][] = [
    ['a pod calls one that has its own address', '10.42.1.5', '10.60.0.7', true],
    ['a pod calls one that has a global address', '10.42.1.5', '244.1.0.7', true],
    ['a pod is called', '10.60.0.7', '10.42.1.5', true],
    ['between pods of this node', '10.42.1.5', '10.42.1.6', false],
    ['to a pod of another node of this cluster', '10.42.1.5', '10.42.2.5', false],
    ['of a pod of another node, passing through', '10.42.2.5', '10.60.0.7', false],
    ['between other clusters, passing through', '244.1.0.7', '10.60.0.7', false],
    ['to the Internet', '10.42.1.5', '192.0.2.1', false],
    ['of the node', '192.168.7.11', '192.168.7.1', false],
  ]
  const all = new FakeConnections()
  for (const [name, client, server, counts] of rows) {
    const table = new FakeConnections()
    table.open(client, server)
    all.open(client, server)
    const want = { count: counts ? 1 : 0, atLeast: false }
    t.strictSame(await countConnections(table, { pods: PODS, podsCut: false, others: OTHERS }, signal), want, name)
  }
  t.strictSame(
    await countConnections(all, { pods: PODS, podsCut: true, others: OTHERS }, signal),
    { count: 3, atLeast: true },
    'not all pods are known',
  )
  const nobody = await countConnections(all, { pods: PODS, podsCut: false, others: [] }, signal)
  t.strictSame(nobody, { count: 0, atLeast: false }, 'there is no other cluster')
})

t.test('a table that is too long', async (t) => {
  const table = new FakeConnections()
  for (let i = 0; i < MAX_ENTRIES_READ; i += 1) table.open('10.42.1.5', '10.60.0.7')
  const init = { pods: PODS, podsCut: false, others: OTHERS }
  t.strictSame(await countConnections(table, init, signal), { count: MAX_ENTRIES_READ, atLeast: false })
  table.open('10.42.1.5', '10.60.0.7')
  t.strictSame(await countConnections(table, init, signal), { count: MAX_ENTRIES_READ, atLeast: true })
})
