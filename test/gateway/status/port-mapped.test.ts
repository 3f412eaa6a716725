/** What a Gateway says about the router in front of it. */
import t from 'tap'
import type { PortMappingView } from '../../../gateway/reach/reach.ts'
import { type StatusInit, planStatus } from '../../../gateway/status/plan-status.ts'
import { parseAddressPort } from '../../../model/addresses/addresses.ts'
import { NOW, UPTIME } from '../support/worlds.ts'

const STATUS: StatusInit = {
  ...{ node: 'gw', version: '1', driver: 'wireguard-kernel', sessionMs: 180_000, nowMs: NOW, monotonicMs: UPTIME },
  ...{ heardMs: () => undefined, lanes: [], laneStates: new Map(), health: new Map(), routed: new Set() },
  ...{ failure: undefined, conditions: [] },
}
const router = '10.0.0.1'
const place = parseAddressPort('203.0.113.7:51000')

t.test('condition PortMapped', async (t) => {
  const rows: readonly (readonly [PortMappingView | undefined, string])[] = [
    [undefined, ''],
    [{ is: 'asking', router }, ''],
    [
      { is: 'mapped', router, protocol: 'natPmp', place },
      'True PortMapped: router 10.0.0.1 leads 203.0.113.7:51000 to this gateway (NAT-PMP)',
    ],
    [{ is: 'refused', router, why: 'no resources' }, 'False PortMappingRefused: router 10.0.0.1 refuses: no resources'],
    [{ is: 'unusable', router, why: 'x' }, 'False PortMappingNotBelieved: router 10.0.0.1 is not believed: x'],
    [
      { is: 'silent', router },
      'False RouterMapsNoPorts: router 10.0.0.1 maps no ports: it answers neither PCP nor NAT-PMP',
    ],
  ]
  const said = (init: StatusInit): string => {
    const found = planStatus(init).status?.conditions?.find(({ type }) => type === 'PortMapped')
    return found === undefined ? '' : `${found.status} ${found.reason}: ${found.message}`
  }
  for (const [portMapping, want] of rows)
    t.equal(said({ ...STATUS, ...(portMapping === undefined ? {} : { portMapping }) }), want)
  const before = planStatus({ ...STATUS, portMapping: { is: 'silent', router } }).status?.conditions ?? []
  t.match(
    said({ ...STATUS, conditions: before, portMapping: { is: 'asking', router } }),
    'False',
    'kept while it is asked',
  )
  t.equal(said({ ...STATUS, conditions: before }), '', 'gone once no router is asked')
})
