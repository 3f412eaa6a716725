import t from 'tap'
import type { ConnectionState, Gateway } from '../../../model/objects.ts'
import { changesAnswers, reachableClusters, unansweredClusters, usableClusters } from '../../../model/lanes/liveness.ts'
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

/** A gateway from `x up, y up!`, where ! is unanswered. With `stale: ` before it, it has stopped reporting. */
function answering(name: string, whole: string): Gateway {
  const text = whole.replace('stale: ', '')
  const conditions = whole === text ? [] : [STALE]
  const states = text.split(', ').map((one) => one.split(' ') as [string, string])
  const connections = states.flatMap(([id, said]) => {
    const cause = said.endsWith('!') ? ({ cause: 'ProbesUnanswered' } as const) : {}
    return connectionsTo({ [id]: said.replace('!', '') as ConnectionState }).map((one) => ({ ...one, ...cause }))
  })
  return gatewayObject(name, { connections, conditions })
}

const STALE = {
  type: 'Ready',
  status: 'Unknown',
  reason: 'GatewayStatusStale',
  message: '',
  lastTransitionTime: '2026-01-01T00:00:00Z',
} as const

t.test('who answers nothing at the moment', async (t) => {
  const rows: [texts: string[], want: string][] = [
    [[], ''],
    [['x up'], ''],
    [['x up!, y up'], 'x'],
    [['x up!, x up!'], 'x'],
    [['x up!, x up'], ''],
    [['x up!', 'x up'], ''],
    [['x up!', 'x down'], 'x'],
    [['x down!'], ''],
    [['stale: x up!'], ''],
    [['stale: x up!', 'x up!'], ''],
  ]
  for (const [texts, want] of rows) {
    const found = unansweredClusters([gateway('none'), ...texts.map((text, i) => answering(`gw${i}`, text))])
    t.equal([...found].join(), want, texts.join('; '))
  }
})

t.test('which changes of a gateway matter for that', async (t) => {
  const changed = (before: string, after: string): boolean =>
    changesAnswers({ type: 'set', object: answering('gw', after), previous: answering('gw', before) })
  const same = answering('gw', 'x up')
  t.same(
    [
      changed('x up', 'x up'),
      changed('x up', 'x up!'),
      changed('x up!', 'x up'),
      changed('x up!', 'x down!'),
      changed('x down', 'x down!'),
      changed('x up!', 'stale: x up!'),
      changed('x up', 'stale: x up'),
      changesAnswers(undefined),
      changesAnswers({ type: 'removed', object: same }),
      changesAnswers({ type: 'set', object: same, previous: undefined }),
      changesAnswers({ type: 'set', object: same, previous: same }),
    ],
    [false, true, true, true, false, true, false, true, true, true, true],
  )
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
