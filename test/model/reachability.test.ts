import t from 'tap'
import type { ConnectionState, Gateway } from '../../model/objects.ts'
import { reachableClusters } from '../../model/reachability.ts'

function gateway(name: string, connections?: Record<string, ConnectionState>): Gateway {
  const base = { apiVersion: 'sealane.io/v1alpha1', kind: 'Gateway', metadata: { name } } as const
  if (connections === undefined) return base
  return {
    ...base,
    status: {
      version: '0',
      lanes: [],
      connections: Object.entries(connections).map(([cluster, state]) => ({
        cluster,
        state,
        lane: 0,
        endpoint: '',
        message: '',
        usingNat: false,
        rxBytes: 0,
        txBytes: 0,
      })),
    },
  }
}

t.test('who answers', async (t) => {
  const rows: [name: string, gateways: Gateway[], want: string[] | undefined][] = [
    ['no gateway at all: unknown', [], undefined],
    ['a gateway that has not reported: unknown', [gateway('a')], undefined],
    ['reported nothing up: only ourselves', [gateway('a', {})], ['own']],
    ['up counts, down and connecting do not', [gateway('a', { x: 'up', y: 'down', z: 'connecting' })], ['own', 'x']],
    ['one gateway that is up is enough', [gateway('a', { x: 'down' }), gateway('b', { x: 'up' })], ['own', 'x']],
    ['a silent gateway does not hide the others', [gateway('a'), gateway('b', { x: 'up' })], ['own', 'x']],
  ]
  for (const [name, gateways, want] of rows) {
    const found = reachableClusters('own', gateways)
    t.same(found === undefined ? undefined : [...found].sort(), want, name)
  }
})
