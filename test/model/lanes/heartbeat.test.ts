import t from 'tap'
import { type GatewayLiveness, heardGateways, heartbeatAgeMs } from '../../../model/lanes/liveness.ts'
import type { Gateway } from '../../../model/objects.ts'
import { gatewaySaying } from '../../support/objects/node-objects.ts'

const show = ({ metadata, status }: Gateway): string =>
  `${metadata.name} ${status?.connections.map(({ cluster, state }) => `${cluster} ${state}`).join(', ')}`

t.test('how gateways count', (t) => {
  const rows: readonly (readonly [say: string, livenesses: string, given: string[], want: string[]])[] = [
    ['all fresh', 'fresh fresh', ['g1 paris up', 'g2 paris up'], ['g1 paris up', 'g2 paris up']],
    ['one is gone', 'gone fresh', ['g1 paris up', 'g2 paris up'], ['g1 paris down', 'g2 paris up']],
    ['the only one is gone', 'gone', ['g1 paris up, rome down'], ['g1 paris down, rome down']],
    ['the only one is silent', 'silent', ['g1 paris up, rome connecting'], ['g1 paris up, rome connecting']],
    [
      'one is silent, another leads there',
      'silent fresh',
      ['g1 paris up', 'g2 paris up'],
      ['g1 paris down', 'g2 paris up'],
    ],
    [
      'one is silent, another leads elsewhere',
      'silent fresh',
      ['g1 paris up, rome up', 'g2 paris down, rome up'],
      ['g1 paris up, rome down', 'g2 paris down, rome up'],
    ],
    ['one is silent, the other gone', 'silent gone', ['g1 paris up', 'g2 paris up'], ['g1 paris up', 'g2 paris down']],
    ['two are silent', 'silent silent', ['g1 paris up', 'g2 paris up'], ['g1 paris up', 'g2 paris up']],
  ]
  for (const [say, livenesses, given, want] of rows) {
    const gateways = given.map(gatewaySaying)
    const known = new Map(
      gateways.map(({ metadata }, i) => [metadata.name, livenesses.split(' ')[i] as GatewayLiveness]),
    )
    const heard = heardGateways(gateways, (name) => known.get(name) ?? 'fresh')
    t.strictSame(heard.map(show), want, say)
  }
  t.end()
})

t.test('fresh ones are the very same objects, and one that never reported stays so', (t) => {
  const given = [gatewaySaying('g1 paris up'), gatewaySaying('g2 paris up')]
  t.equal(
    heardGateways(given, () => 'fresh'),
    given,
  )
  const { status: _status, ...bare } = gatewaySaying('g3')
  const heard = heardGateways([...given, bare], (name) => (name === 'g1' ? 'fresh' : 'gone'))
  t.equal(heard[0], given[0])
  t.equal(heard[2], bare)
  t.end()
})

t.test('a silent one says nothing of what is unanswered', (t) => {
  const rows: readonly (readonly [GatewayLiveness, cause: string | undefined, want: string | undefined])[] = [
    ['fresh', 'ProbesUnanswered', 'ProbesUnanswered'],
    ['silent', 'ProbesUnanswered', undefined],
    ['silent', 'NoneAnswers', 'NoneAnswers'],
  ]
  for (const [liveness, cause, want] of rows) {
    const { status, ...rest } = gatewaySaying('g1 paris up')
    const connections = (status?.connections ?? []).map((one) => ({ ...one, ...(cause && { cause }) }) as typeof one)
    const [heard] = heardGateways([{ ...rest, status: { ...status!, connections } }], () => liveness)
    t.match(heard?.status?.connections, [{ state: 'up' }], liveness)
    t.equal(heard?.status?.connections[0]?.cause, want, liveness)
  }
  t.end()
})

t.test('age', (t) => {
  const now = Date.parse('2026-01-01T00:01:00Z')
  const rows: readonly (readonly [string | undefined, number | undefined])[] = [
    ['2026-01-01T00:00:57Z', 3000],
    ['2026-01-01T00:00:57.500Z', 2500],
    ['2026-01-01T00:02:00Z', 0],
    ['yesterday', undefined],
    [undefined, undefined],
  ]
  for (const [heartbeatTime, want] of rows) {
    const { status, ...rest } = gatewaySaying('g1')
    if (status === undefined) throw new Error('no status')
    const given = { ...rest, status: { ...status, ...(heartbeatTime === undefined ? {} : { heartbeatTime }) } }
    t.equal(heartbeatAgeMs(given, now), want, heartbeatTime ?? 'absent')
  }
  t.end()
})
