import t from 'tap'
import type { ConnectionState, Gateway } from '../../../model/objects.ts'
import { reachableClusters, usableClusters } from '../../../model/lanes/liveness.ts'
import { connectionsTo, gatewayObject } from '../../support/objects/node-objects.ts'

function gateway(name: string, connections?: Record<string, ConnectionState>): Gateway {
  return gatewayObject(name, connections && { connections: connectionsTo(connections) })
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

t.test('who is used', async (t) => {
  const validation = (accepted: string, refused: string) => ({
    clusters: accepted.split(' ').map((id, index) => ({ id, index, prefixes: [] })),
    refused: refused
      .split(' ')
      .flatMap((name) => (name === '' ? [] : [{ name, reason: 'InvalidValue' as const, message: 'no' }])),
  })
  const rows: [name: string, gateways: Gateway[], given: ReturnType<typeof validation> | undefined, want: string][] = [
    ['nothing known', [], undefined, 'all'],
    ['nobody refused', [], validation('x y', ''), 'all'],
    ['no report: all but the refused', [], validation('x y', 'z'), 'own x y'],
    [
      'a report: what is up but not refused',
      [gateway('a', { x: 'up', y: 'down', z: 'up' })],
      validation('x y', 'z'),
      'own x',
    ],
    ['a report and no verdict', [gateway('a', { x: 'up', z: 'up' })], undefined, 'own x z'],
  ]
  for (const [name, gateways, given, want] of rows) {
    const found = usableClusters('own', gateways, given)
    t.equal(found === undefined ? 'all' : [...found].sort().join(' '), want, name)
  }
})
