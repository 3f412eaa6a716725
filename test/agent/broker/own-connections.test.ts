/** The sum of the open connections that the nodes report, and the changes after which the agent sends it again. */
import t from 'tap'
import { ReportedConnections, sumOpenConnections } from '../../../agent/cluster/open-connections.ts'
import { MemoryApi } from '../../../kubeapi/memory/memory-api.ts'
import type { RouteAgent } from '../../../model/objects.ts'
import type { OpenConnections } from '../../../model/member-status.ts'
import { MAX_OPEN_CONNECTIONS } from '../../../model/values/limits.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { nodeObject, routeAgentObject } from '../../support/objects/node-objects.ts'

function agent(name: string, reported: unknown): RouteAgent {
  return routeAgentObject(name, reported === undefined ? {} : { openConnections: reported as OpenConnections })
}

const exactly = (count: number): OpenConnections => ({ count, atLeast: false })
const atLeast = (count: number): OpenConnections => ({ count, atLeast: true })

t.test('the sum', (t) => {
  const rows: [name: string, reported: Readonly<Record<string, unknown>>, want: OpenConnections | undefined][] = [
    ['no node', {}, undefined],
    ['a node of an earlier release', { a: undefined }, undefined],
    ['one', { a: exactly(12) }, exactly(12)],
    ['none is open', { a: exactly(0), b: exactly(0) }, exactly(0)],
    ['two', { a: exactly(12), b: exactly(3) }, exactly(15)],
    ['one of two tells', { a: exactly(12), b: undefined }, atLeast(12)],
    ['one of two tells that it has none: that is not known', { a: exactly(0), b: undefined }, undefined],
    ['one has not counted all', { a: exactly(12), b: atLeast(200_000) }, atLeast(200_012)],
    ['more than a figure holds', { a: exactly(MAX_OPEN_CONNECTIONS), b: exactly(1) }, atLeast(MAX_OPEN_CONNECTIONS)],
    ['less than nothing', { a: exactly(12), b: exactly(-5) }, atLeast(12)],
    ['half a connection', { a: exactly(12), b: exactly(0.5) }, atLeast(12)],
    ['too many', { a: exactly(12), b: exactly(2 ** 31) }, atLeast(12)],
    ['text', { a: exactly(12), b: { count: '3', atLeast: false } }, atLeast(12)],
    ['no word on whether it is all', { a: { count: 3 } }, undefined],
  ]
  for (const [name, reported, want] of rows) {
    const nodes = Object.keys(reported).map((node) => nodeObject(node))
    const agents = Object.entries(reported).map(([node, one]) => agent(node, one))
    t.strictSame(sumOpenConnections(nodes, agents), want, name)
  }
  t.equal(sumOpenConnections([], [agent('gone', exactly(3))]), undefined, 'of a node that is no more')
  const nodes = ['a', 'b', 'c'].map((node) => nodeObject(node))
  const silent: [counts: readonly number[], silent: readonly string[], want: OpenConnections | undefined][] = [
    [[12, 3, 4], ['b'], atLeast(16)],
    [[12, 0, 0], ['b', 'c'], atLeast(12)],
    [[0, 0, 0], ['b'], undefined],
    [[12, 3, 4], ['a', 'b', 'c'], undefined],
    [[12, 3, 4], ['gone'], exactly(19)],
  ]
  for (const [counts, names, want] of silent) {
    const agents = counts.map((count, i) => agent('abc'.charAt(i), exactly(count)))
    t.strictSame(sumOpenConnections(nodes, agents, new Set(names)), want, `silent: ${names.join()}`)
  }
  t.end()
})

t.test('told anew where it differs', async (t) => {
  const clock = new FakeClock()
  const api = new MemoryApi()
  api.put(nodeObject('a'))
  const reported = new ReportedConnections(api, clock, { nodes: new Set(), onChange: () => () => undefined })
  let calls = 0
  const stop = reported.onChange(() => (calls += 1))
  const reports = (count: number): void => {
    api.put(agent('a', exactly(count)))
  }
  t.equal(reported.get(), undefined)
  for (const kind of ['Node', 'RouteAgent'] as const) await api.cache(kind).whenSynced(new AbortController().signal)
  calls = 0
  reports(100)
  t.strictSame(reported.get(), exactly(100))
  reports(110)
  t.strictSame(reported.get(), exactly(100), 'about as many')
  await clock.advance(600_000)
  t.strictSame(reported.get(), exactly(110), 'after a while all the same')
  reports(121)
  t.strictSame(reported.get(), exactly(110))
  reports(122)
  t.strictSame(reported.get(), exactly(122))
  t.equal(calls, 4)
  api.put({ ...agent('a', exactly(122)), metadata: { name: 'a', labels: { of: 'another change' } } })
  t.equal(calls, 4, 'what else nodes tell is no matter')
  stop()
})
