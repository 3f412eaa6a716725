/**
 * The number of connections that a join would break, reported from the nodes of one member through a real broker to the
 * joining cluster.
 */
import { join } from 'node:path'
import t from 'tap'
import type { Renumbered } from '../../protocol/broker-api.ts'
import { eventually } from '../support/eventually.ts'
import { nodeObject, routeAgentObject } from '../support/objects/node-objects.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { Member, startBroker } from './real-members.ts'

t.test('what nodes have counted is said to whoever joins, and where it breaks', async (t) => {
  const directory = temporaryFolder(t)
  const brokerDirectory = join(directory, 'broker')
  const broker = await startBroker(brokerDirectory, 0)
  const [milano, paris] = [new Member('milano', directory), new Member('paris', directory)]
  t.teardown(async () => {
    await milano.stop()
    await broker.stop()
  })
  await milano.join(brokerDirectory, broker.port)
  for (const [node, count] of [
    ['a', 5],
    ['b', 7],
  ] as const) {
    milano.api.put(nodeObject(node))
    milano.api.put(routeAgentObject(node, { openConnections: { count, atLeast: false } }))
  }
  milano.start({ reportMs: 50 })
  const renumbered = { cluster: 'milano', globalCIDRs: ['244.0.0.0/16'] }
  let found: readonly Renumbered[] = []
  const reported = async (): Promise<boolean> => {
    found = (await paris.look(brokerDirectory, broker.port)).renumbered
    return found[0]?.openConnections !== undefined
  }
  await eventually(reported, { say: 'milano has told', deadlineMs: 20_000, intervalMs: 200 })
  const want = [{ ...renumbered, openConnections: { count: 12, atLeast: false } }]
  t.strictSame(found, want)
  t.strictSame((await paris.join(brokerDirectory, broker.port)).renumbered, want)
  const why = (): string | undefined => {
    const line = milano.logger.lines.find(({ message }) => message.startsWith('this cluster now has global addresses'))
    return line?.fields['why'] as string | undefined
  }
  await eventually(() => why() !== undefined, { say: 'milano hears that it has global addresses', deadlineMs: 20_000 })
  t.match(why(), /; about 12 open connections to them break$/)
})
