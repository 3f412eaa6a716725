/** Which facts of this machine are cached, and when they are read again. */
import t from 'tap'
import { FakeRouteTable } from '../../kernel/fake/fake-route-table.ts'
import { FakeSysctl } from '../../kernel/fake/fake-sysctl.ts'
import { FactsReader } from '../../routeagent/world/node-world.ts'

t.test('facts are kept until something changes, also when that happens during the look', async (t) => {
  const { signal } = new AbortController()
  const routes = new FakeRouteTable({ links: [{ name: 'eth0' }] })
  const reader = new FactsReader({ routes, sysctl: new FakeSysctl({}) })
  const names = async (): Promise<string[]> => (await reader.read(signal)).links.map((link) => link.name)
  const before = await names()
  t.equal(await reader.read(signal), await reader.read(signal), 'kept')

  reader.invalidate()
  const under = names()
  await routes.addLink({ kind: 'dummy', name: 'new0', mtu: 1500 })
  reader.invalidate()
  await under
  t.strictSame(await names(), [...before, 'new0'], 'what the overtaken look found is not kept')
})
