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
    unansweredAfterMs: 600,
    calmAfterMs: 3000,
    answersUntilUp: 2,
    rotateMs: 5000,
    keyMaxAgeMs: 2_592_000_000,
    statusMs: 2000,
    heartbeatMs: 5000,
    openPorts: [],
  })
})

t.test('ports: what an operator states is the port for gateways of number 0', async (t) => {
  const [lane] = gatewayConfig({ ...base, lanes: [{ lane: 3, listenPort: 51820, publicPort: 60000 }] }).lanes
  t.strictSame(lane, { lane: 3, port: 51823, publicPort: 60000 })
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
  ...['gw', '127.1', 'gw.example.org:51820', 'gw_1.example.org', '2001:db8::1', '127.0.0.1', 'gw\n.example.org'].map(
    (publicAddress): [Partial<GatewayConfigInit>, string] => [
      { lanes: [{ lane: 0, publicAddress }] },
      `gateway publicAddress of lane 0 ${JSON.stringify(publicAddress)}: expected an IPv4 address, or a DNS name, at which other sites reach this node`,
    ],
  ),
  [
    { lanes: [{ lane: 0, publicPort: 65_529 }] },
    'gateway publicPort of lane 0 65529: expected the first of 8 ports, a whole number from 1 to 65528',
  ],
  [
    { lanes: [{ lane: 0, listenPort: 4492 }] },
    'gateway listenPort of lane 0 4492: expected ports that Sealane does not use itself: 4492 to 4499 contain 4498, for probes between nodes',
  ],
  [{ observedAddress: 'me' }, 'gateway observedAddress "me": expected an IPv4 or IPv6 address such as 10.42.0.7'],
  [{ heartbeatMs: 999 }, 'gateway heartbeatMs 999: expected a whole number from 1000 to 10000'],
  [{ heartbeatMs: 10_001 }, 'gateway heartbeatMs 10001: expected a whole number from 1000 to 10000'],
  [{ sleepAfterMs: -1 }, 'gateway sleepAfterMs -1: expected a whole number, or 0'],
  [{ probeIntervalMs: 0 }, 'gateway probeIntervalMs 0: expected a whole number above 0'],
]

t.test('refused', async (t) => {
  for (const [init, message] of ROWS)
    t.equal(await messageOf(() => gatewayConfig({ ...base, lanes: [], ...init })), message)
})
