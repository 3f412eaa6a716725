/** The defaults of the configuration, and the message for each value that is refused. */
import t from 'tap'
import { type GatewayConfigInit, gatewayConfig } from '../../gateway/world/config.ts'
import { messageOf } from '../support/failure.ts'

const base = { node: 'gw', version: '1', stateDir: '/state' }

t.test('defaults', async (t) => {
  t.strictSame(gatewayConfig({ ...base, lanes: [{ lane: 2, publicAddress: '192.0.2.10' }] }), {
    ...base,
    lanes: [{ port: 4502, lane: 2, publicAddress: '192.0.2.10' }],
    probeIntervalMs: 200,
    idleProbeIntervalMs: 1000,
    quickProbeMs: 50,
    missesUntilSuspect: 4,
    downAfterMs: 1500,
    answersUntilUp: 2,
    rotateMs: 5000,
    keyMaxAgeMs: 2_592_000_000,
    statusMs: 2000,
    heartbeatMs: 5000,
    openPorts: [],
  })
})

const ROWS: [init: Partial<GatewayConfigInit>, want: string][] = [
  [{ lanes: [{ lane: -1 }] }, 'gateway lane -1: expected a number from 0 to 7'],
  [{ lanes: [{ lane: 1.5 }] }, 'gateway lane 1.5: expected a number from 0 to 7'],
  [{ lanes: [{ lane: 8 }] }, 'gateway lane 8: expected a number from 0 to 7'],
  [
    { lanes: [{ lane: 0 }, { lane: 1 }] },
    'gateway lanes [0,1]: expected one lane for this node: one lane links it with all remote gateways',
  ],
  [{ lanes: [{ lane: 0, port: 70000 }] }, 'gateway port of lane 0 70000: expected a number from 1 to 65528'],
  [{ lanes: [{ lane: 3, port: 3 }] }, 'gateway port of lane 3 3: expected a number from 4 to 65531'],
  [
    { lanes: [{ lane: 0, publicAddress: 'gw.example' }] },
    'gateway publicAddress of lane 0 "gw.example": expected an IPv4 or IPv6 address such as 10.42.0.7',
  ],
  [
    { lanes: [{ lane: 0, publicAddress: '2001:db8::1' }] },
    'gateway publicAddress of lane 0 "2001:db8::1": expected an IPv4 address at which other sites reach this node',
  ],
  [
    { lanes: [{ lane: 0, publicAddress: '127.0.0.1' }] },
    'gateway publicAddress of lane 0 "127.0.0.1": expected an IPv4 address at which other sites reach this node',
  ],
  [{ observedAddress: 'me' }, 'gateway observedAddress "me": expected an IPv4 or IPv6 address such as 10.42.0.7'],
  [{ heartbeatMs: 999 }, 'gateway heartbeatMs 999: expected a whole number from 1000 to 10000'],
  [{ heartbeatMs: 10_001 }, 'gateway heartbeatMs 10001: expected a whole number from 1000 to 10000'],
  [{ probeIntervalMs: 0 }, 'gateway probeIntervalMs 0: expected a whole number above 0'],
]

t.test('refused', async (t) => {
  for (const [init, message] of ROWS)
    t.equal(await messageOf(() => gatewayConfig({ ...base, lanes: [], ...init })), message)
})
