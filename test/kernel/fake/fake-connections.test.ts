import t from 'tap'
import { FakeConnections } from '../../../kernel/fake/fake-connections.ts'
import { connectionsCompliance, flowsCompliance } from '../../compliance/connections.ts'

connectionsCompliance(t, async () => {
  await Promise.resolve()
  const table = new FakeConnections()
  return {
    table,
    open: (_protocol, to, answeredBy = to) => Promise.resolve(table.open('10.42.1.5', answeredBy)),
  }
})

flowsCompliance(t, async () => {
  await Promise.resolve()
  const table = new FakeConnections()
  return {
    table,
    begin: async (client, called, server) => {
      await Promise.resolve()
      table.openFlow(client, called, server)
    },
  }
})
