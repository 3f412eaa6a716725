/**
 * A gateway writes every few seconds: few of these changes affect routes, and a node does not read its kernel for the
 * others.
 */
import fc from 'fast-check'
import t from 'tap'
import type { Gateway } from '../../../model/objects.ts'
import { changesRoutes, gatewaysTowards } from '../../../routeagent/routes/plan-gateways.ts'
import { endpoint, gateway } from '../support/site.ts'

const before = gateway('gw', { paris: ['up', 'down'], tokyo: 'up' })

function changed(change: (status: NonNullable<Gateway['status']>) => object): Gateway {
  const { status } = before
  if (status === undefined) throw new Error('no status')
  return { ...before, status: { ...status, ...change(status) } }
}

const links = (change: object) =>
  changed(({ connections }) => ({ connections: connections.map((one) => ({ ...one, ...change })) }))

t.test('what a gateway says', (t) => {
  const rows: readonly (readonly [say: string, after: Gateway, want: boolean])[] = [
    ['that it is there', changed(() => ({ heartbeatTime: '2026-11-28T12:00:05Z' })), false],
    ['how its probes do', links({ rttMs: 12, loss: 0.1, handshakeAgeSeconds: 7, message: 'x' }), false],
    ['how much has come', links({ rxBytes: 1, txBytes: 2 }), false],
    ['that links are down', links({ state: 'down' }), true],
    ['that links flap', links({ held: true }), true],
    ['that paths are narrow', links({ mtu: 1280 }), true],
    ['that its device is', changed(({ lanes }) => ({ lanes: lanes.map((one) => ({ ...one, mtu: 1300 })) })), true],
    ['nothing any more', { ...before, status: undefined } as unknown as Gateway, true],
  ]
  for (const [say, object, want] of rows) t.equal(changesRoutes({ type: 'set', object, previous: before }), want, say)
  t.equal(changesRoutes({ type: 'set', object: before, previous: before }), true, 'it counts otherwise than before')
  t.equal(changesRoutes({ type: 'set', object: before, previous: undefined }), true)
  t.equal(changesRoutes({ type: 'removed', object: before }), true)
  t.equal(changesRoutes(undefined), true)
  t.end()
})

t.test('where it says that nothing follows, the gateways to a cluster are the same', (t) => {
  const state = fc.constantFrom('up', 'down', 'connecting')
  const said = fc.record({ paris: fc.array(state, { minLength: 1, maxLength: 2 }), rttMs: fc.nat(3), mtu: fc.nat(2) })
  const of = ({
    paris,
    rttMs,
    mtu,
  }: {
    paris: ('up' | 'down' | 'connecting')[]
    rttMs: number
    mtu: number
  }): Gateway => {
    const made = gateway('gw', { paris }, 1400 + mtu)
    const status = made.status as NonNullable<Gateway['status']>
    return { ...made, status: { ...status, connections: status.connections.map((one) => ({ ...one, rttMs })) } }
  }
  const ends = [endpoint('milano', 'gw', 0), endpoint('milano', 'gw', 1)]
  fc.assert(
    fc.property(said, said, (a, b) => {
      const [previous, object] = [of(a), of(b)]
      if (changesRoutes({ type: 'set', object, previous })) return true
      const [x, y] = [previous, object].map((one) => JSON.stringify(gatewaysTowards('paris', ends, [one])))
      return x === y
    }),
  )
  t.end()
})
