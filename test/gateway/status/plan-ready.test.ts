import t from 'tap'
import { gatewayEvents, laneEvents, readyFinding, upText } from '../../../gateway/status/plan-conditions.ts'
import type { ConnectionState, ConnectionStatus, Gateway } from '../../../model/objects.ts'
import { connectionTo, gatewayObject } from '../../support/objects/node-objects.ts'

const connection = (cluster: string, state: ConnectionState, lane = 0): ConnectionStatus =>
  connectionTo(cluster, state, { lane, message: 'why' })

/** Reads `paris up, rome.2 down`: the second is the link with lane 2 of rome. */
const connections = (text: string): ConnectionStatus[] =>
  text.split(', ').flatMap((pair) => {
    if (pair === '') return []
    const [far, state] = pair.split(' ') as [string, ConnectionState]
    const [cluster = '', remoteLane] = far.split('.')
    const one = connection(cluster, state)
    return [remoteLane === undefined ? one : { ...one, remoteLane: Number(remoteLane) }]
  })

t.test('Ready', (t) => {
  const rows: readonly (readonly [given: string, lanes: number, failure: string | undefined, want: string])[] = [
    ['', 1, undefined, 'True NoOtherCluster 0/0'],
    ['', 0, undefined, 'False NoLane 0/0'],
    ['paris up, rome up, wien up', 1, undefined, 'True LanesUp 3/3'],
    ['paris up, rome connecting', 1, undefined, 'False LaneConnecting 1/2: not connected yet to rome'],
    ['wien down, paris up, rome down', 1, undefined, 'False LaneProbeTimeout 1/3: no answer to probes from rome, wien'],
    ['paris connecting, rome down', 1, undefined, 'False LaneProbeTimeout 0/2: no answer to probes from rome'],
    [
      'paris up, paris.1 down, paris.2 connecting, rome up',
      1,
      undefined,
      'True SomeLinksDown 2/4: not up: lane 1 of paris, lane 2 of paris; each cluster has another link that is up',
    ],
    [
      'paris up, paris.1 down, rome down, rome.1 connecting',
      1,
      undefined,
      'False LaneProbeTimeout 1/4: no answer to probes from rome',
    ],
    ['paris up', 1, 'nft is missing', 'False RoundFailed 1/1: nft is missing'],
  ]
  for (const [given, lanes, failure, want] of rows) {
    const all = connections(given)
    const { status, reason, message } = readyFinding({ lanes, connections: all, failure })
    const said = want.includes(':') ? `: ${message}` : ''
    t.equal(`${status} ${reason} ${upText(all)}${said}`, want, given)
  }
  const many = Array.from({ length: 13 }, (_, i) => connection(`c${String(i).padStart(2, '0')}`, 'down'))
  t.match(readyFinding({ lanes: 1, connections: many, failure: undefined }).message, /c00, .*, c09 and 3 more$/)
  t.end()
})

t.test('events', (t) => {
  const gateway = (text: string | undefined): Gateway =>
    gatewayObject('gw', text === undefined ? undefined : { connections: connections(text) }, { uid: 'u1' })
  const rows: readonly (readonly [before: string | undefined, after: string, want: string])[] = [
    [undefined, 'paris up, rome connecting, wien down', 'Normal LaneUp lane 0 to paris is up'],
    ['paris connecting', 'paris up', 'Normal LaneUp lane 0 to paris is up'],
    ['paris up', 'paris up', ''],
    ['paris up, rome up', 'paris down, rome up', 'Warning LaneDown lane 0 to paris is down: why'],
    ['paris up', 'paris connecting', ''],
    ['paris down', 'paris connecting', ''],
    ['paris down', 'paris up', 'Normal LaneUp lane 0 to paris is up'],
    ['paris up', '', ''],
  ]
  for (const [before, after, want] of rows) {
    const events = laneEvents(gateway(before), gateway(after))
    t.equal(
      events.map(({ type, reason, note }) => `${type} ${reason} ${note}`).join('; '),
      want,
      `${before} → ${after}`,
    )
    for (const { regarding } of events) t.strictSame(regarding, { kind: 'Gateway', name: 'gw', uid: 'u1' })
  }
  t.equal(laneEvents(undefined, gateway('paris up')).length, 1)
  const flapping = gatewayObject('gw', { connections: [{ ...connection('paris', 'up'), held: true }] }, { uid: 'u1' })
  const reported = (before: Gateway, after: Gateway): string =>
    laneEvents(before, after)
      .map(({ type, reason, note }) => `${type} ${reason} ${note}`)
      .join('; ')
  t.equal(
    reported(gateway('paris down'), flapping),
    'Normal LaneUp lane 0 to paris is up; Warning LinkFlaps lane 0 to paris: why',
  )
  t.equal(reported(flapping, flapping), '', 'told once')
  t.equal(reported(flapping, gateway('paris up')), 'Normal LinkSteady lane 0 to paris is used again')
  t.equal(reported(flapping, gateway('paris down')), 'Warning LaneDown lane 0 to paris is down: why')
  const links = [0, 2].map((remoteLane) => connectionTo('paris', 'up', { lane: 0, remoteLane }))
  t.strictSame(
    laneEvents(undefined, gatewayObject('gw', { connections: links })).map(({ note }) => note),
    ['lane 0 to paris is up', 'lane 0 to lane 2 of paris is up'],
    'each link',
  )
  t.end()
})

t.test('events of a drain', (t) => {
  const gateway = (drained: 'True' | 'False' | undefined): Gateway => {
    const at = { lastTransitionTime: '2026-01-01T00:00:00Z', message: '' }
    const conditions =
      drained === undefined ? [] : [{ type: 'Drained', status: drained, reason: 'StillCarries' as const, ...at }]
    return gatewayObject('gw', { connections: [], conditions }, { uid: 'u1' })
  }
  const rows: readonly (readonly [
    before: 'True' | 'False' | undefined,
    after: 'True' | 'False' | undefined,
    want: string,
  ])[] = [
    [undefined, undefined, ''],
    [undefined, 'False', 'GatewayDraining'],
    [undefined, 'True', 'GatewayDraining NothingFlows'],
    ['False', 'False', ''],
    ['False', 'True', 'NothingFlows'],
    ['True', 'False', ''],
    ['True', 'True', ''],
    ['True', undefined, 'GatewayUndrained'],
    ['False', undefined, 'GatewayUndrained'],
  ]
  for (const [before, after, want] of rows) {
    const events = gatewayEvents(gateway(before), gateway(after))
    t.equal(events.map(({ reason }) => reason).join(' '), want, `${before} → ${after}`)
    for (const { regarding, type } of events) {
      t.strictSame([regarding, type], [{ kind: 'Gateway', name: 'gw', uid: 'u1' }, 'Normal'])
    }
  }
  t.end()
})
