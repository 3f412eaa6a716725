import fc from 'fast-check'
import t from 'tap'
import { ANNOTATION_PUBLISHED_AT, laneClaims, lanesUp, publishedAt } from '../../../model/lanes/lane-servers.ts'
import type { ConnectionState, Endpoint, Gateway } from '../../../model/objects.ts'
import { reachableClusters } from '../../../model/lanes/liveness.ts'
import { endpointObject } from '../../support/objects/cluster-objects.ts'
import { connectionTo, gatewayObject } from '../../support/objects/node-objects.ts'

/** `minute` is when this API received it; `stamp` is the broker's time. */
function endpoint(cluster: string, node: string, lane: number, minute?: number, stamp?: string): Endpoint {
  const creationTimestamp = minute === undefined ? undefined : new Date(minute * 60_000).toISOString()
  const metadata = {
    ...(creationTimestamp === undefined ? {} : { creationTimestamp }),
    ...(stamp === undefined ? {} : { annotations: { [ANNOTATION_PUBLISHED_AT]: stamp } }),
  }
  return endpointObject({ cluster, node, lane }, metadata)
}

/** `{ 'paris/0': 'up' }` is the link to paris. */
function gateway(name: string, states?: Readonly<Record<string, ConnectionState>>): Gateway {
  if (states === undefined) return gatewayObject(name)
  const connections = Object.entries(states).map(([key, state]) => {
    const [cluster = '', lane] = key.split('/')
    return connectionTo(cluster, state, { lane: Number(lane) })
  })
  return gatewayObject(name, { connections })
}

const served = (...endpoints: Endpoint[]): string[] =>
  [...laneClaims(endpoints).values()].map(([last]) => last.metadata.name).sort()

t.test('the newest serves a lane; then the first by name', async (t) => {
  t.strictSame(served(endpoint('paris', 'a', 0, 1), endpoint('paris', 'b', 0, 2)), ['paris.b-lane0'])
  t.strictSame(served(endpoint('paris', 'b', 0, 2), endpoint('paris', 'a', 0, 1)), ['paris.b-lane0'], 'in any order')
  t.strictSame(served(endpoint('paris', 'b', 0, 1), endpoint('paris', 'a', 0, 1)), ['paris.a-lane0'])
  t.strictSame(served(endpoint('paris', 'b', 0), endpoint('paris', 'a', 0)), ['paris.a-lane0'], 'unknown times')
  t.strictSame(
    served(endpoint('paris', 'a', 0, 1), endpoint('paris', 'b', 1, 2), endpoint('tokyo', 'c', 0, 3)),
    ['paris.a-lane0', 'paris.b-lane1', 'tokyo.c-lane0'],
    'each lane of each cluster by itself',
  )
})

t.test('the stamp of the broker goes before the time at which this API got the object', async (t) => {
  const [early, late] = ['2026-11-20T10:00:00.000Z', '2026-11-20T10:00:00.001Z']
  const rows: [say: string, a: Endpoint, b: Endpoint, want: string][] = [
    ['joined later', endpoint('paris', 'a', 0, 9, early), endpoint('paris', 'b', 0, 9, late), 'b'],
    [
      'the mirrored object was deleted by hand',
      endpoint('paris', 'a', 0, 9, early),
      endpoint('paris', 'b', 0, 1, late),
      'b',
    ],
    ['equal stamps', endpoint('paris', 'a', 0, 1, early), endpoint('paris', 'b', 0, 9, early), 'a'],
    ['no time at all', endpoint('paris', 'a', 0, 1, 'soon'), endpoint('paris', 'b', 0, 2, ''), 'b'],
  ]
  for (const [say, a, b, want] of rows) t.strictSame(served(a, b), [`paris.${want}-lane0`], say)
})

t.test('the stamp as an annotation', async (t) => {
  const rows: [createdAtMs: number, want: string | undefined][] = [
    [Date.parse('2026-11-20T10:00:00.001Z'), '2026-11-20T10:00:00.001Z'],
    [0, undefined],
    [8.64e15, '+275760-09-13T00:00:00.000Z'],
    [8.64e15 + 1, undefined],
  ]
  for (const [createdAtMs, want] of rows) {
    t.strictSame(
      publishedAt(createdAtMs),
      want === undefined ? {} : { [ANNOTATION_PUBLISHED_AT]: want },
      `${createdAtMs}`,
    )
  }
})

/** The lanes that are up at each node, as `a:0,1 b:2`. */
function show(up: ReturnType<typeof lanesUp>): string {
  return [...up]
    .map(([node, lanes]) => `${node}:${[...lanes].sort().join(',')}`)
    .sort()
    .join(' ')
}

t.test('a lane is taken over by a later gateway that is up', async (t) => {
  const [a, b] = [endpoint('milano', 'a', 0, 1), endpoint('milano', 'b', 0, 2)]
  const up = { 'paris/0': 'up' } as const
  const rows: [say: string, gateways: Gateway[], endpoints: Endpoint[], want: string][] = [
    ['both up', [gateway('a', up), gateway('b', up)], [a, b], 'b:0'],
    ['the newcomer is down', [gateway('a', up), gateway('b', { 'paris/0': 'down' })], [a, b], 'a:0'],
    ['the newcomer connects', [gateway('a', up), gateway('b', { 'paris/0': 'connecting' })], [a, b], 'a:0'],
    ['the newcomer has not reported', [gateway('a', up), gateway('b')], [a, b], 'a:0'],
    ['the newcomer has no Gateway yet', [gateway('a', up)], [a, b], 'a:0'],
    ['the newcomer is up to another cluster', [gateway('a', up), gateway('b', { 'tokyo/0': 'up' })], [a, b], 'a:0'],
    ['the newcomer is up on another lane', [gateway('a', up), gateway('b', { 'paris/1': 'up' })], [a, b], 'a:0 b:1'],
    ['came at the same time', [gateway('b', up), gateway('a', up)], [endpoint('milano', 'b', 0, 1), a], 'a:0'],
    ['its own Endpoint is gone already', [gateway('a', up), gateway('b', up)], [b], 'b:0'],
    [
      'its own Endpoint is gone, the newcomer is down',
      [gateway('a', up), gateway('b', { 'paris/0': 'down' })],
      [b],
      'a:0',
    ],
    ['no Endpoint was seen: all count', [gateway('a', up), gateway('b', up)], [], 'a:0 b:0'],
    ['a lane each', [gateway('a', { ...up, 'paris/1': 'up' }), gateway('b', up)], [a, b], 'a:1 b:0'],
    ['nobody is up', [gateway('a', { 'paris/0': 'down' }), gateway('b')], [a, b], ''],
  ]
  for (const [say, gateways, endpoints, want] of rows) t.equal(show(lanesUp('paris', gateways, endpoints)), want, say)
})

t.test('taking over hides no cluster, and leaves no lane to two gateways', async () => {
  const state = fc.constantFrom<ConnectionState>('up', 'down', 'connecting')
  const states = fc.dictionary(fc.constantFrom('paris/0', 'paris/1', 'tokyo/0', 'tokyo/1'), state)
  const node = fc.constantFrom('a', 'b', 'c')
  const gateways = fc
    .dictionary(node, states)
    .map((all) => Object.entries(all).map(([name, one]) => gateway(name, one)))
  const claim = fc
    .tuple(node, fc.nat(1), fc.nat(3))
    .map(([name, lane, minute]) => endpoint('milano', name, lane, minute))
  const claims = fc.uniqueArray(claim, { selector: ({ metadata }) => metadata.name })
  fc.assert(
    fc.property(gateways, claims, (all, endpoints) => {
      for (const id of ['paris', 'tokyo']) {
        const up = lanesUp(id, all, endpoints)
        if (up.size > 0 !== (reachableClusters('milano', all)?.has(id) ?? false)) return false
        for (const lane of [0, 1]) {
          const nodes = [...up].filter(([, lanes]) => lanes.has(lane)).map(([name]) => name)
          const claimed = endpoints.some(({ spec }) => spec.lane === lane && nodes.includes(spec.node))
          if (claimed && nodes.length > 1) return false
        }
      }
      return true
    }),
  )
})
