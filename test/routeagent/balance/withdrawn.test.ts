/** Open connections of services that have gone: test/netns/udp-stale-endpoint.test.ts has the packets. */
import t from 'tap'
import { ANNOTATION_KEEPS_OPEN } from '../../../model/services/service-shares.ts'
import type { EndpointSlice } from '../../../model/objects.ts'
import { balanceElements } from '../../../routeagent/balance/balance-elements.ts'
import { BalancePlanner } from '../../../routeagent/balance/plan-balancing.ts'
import { MAX_WITHDRAWN_TARGETS, WITHDRAWN_HOLD_MS, WITHDRAWN_MS } from '../../../routeagent/balance/withdrawn.ts'
import { SERVICE_CONTEXT, serviceImport, slice } from '../support/site.ts'

const VIP = '245.0.0.7'
const HTTP = { name: 'http', protocol: 'TCP', port: 80 } as const
const WEB = serviceImport('web', VIP, { ports: [HTTP, { name: 'dns', protocol: 'UDP', port: 53 }] })
const PARIS = slice(
  'web',
  'paris',
  ['244.1.0.5', '244.1.0.6~'],
  [
    { ...HTTP, port: 8080 },
    { name: 'dns', protocol: 'UDP', port: 5353 },
  ],
)
const ENDED = [`${VIP} . tcp . 80 . 244.1.0.5`, `${VIP} . tcp . 80 . 244.1.0.6`]

function planned(slices: readonly EndpointSlice[] = [PARIS]): BalancePlanner {
  const planner = new BalancePlanner(SERVICE_CONTEXT)
  planner.replaceAll([WEB], slices)
  planner.takeChanges(0)
  return planner
}

/** The elements of the set of what is ended, at this time. */
function endedAt(planner: BalancePlanner, atMs: number): string[] {
  planner.takeChanges(atMs)
  return [...(balanceElements(planner.ports()).get('ended')?.keys() ?? [])].sort()
}

t.test('what goes with the import is ended after a moment, and for a while', async (t) => {
  const planner = planned()
  planner.removeImport('shop', 'web')
  planner.removeSlice('shop', PARIS.metadata.name)
  t.strictSame(endedAt(planner, 10), [], 'it may come back at once')
  t.equal(planner.ports().size, 0)
  const dueMs = planner.dueMs ?? NaN
  t.equal(dueMs, 10 + WITHDRAWN_HOLD_MS)
  t.strictSame(endedAt(planner, dueMs), ENDED, 'TCP alone, also of a pod that only serves')
  const elements = balanceElements(planner.ports())
  for (const map of ['services', 'no-backends', 'none-here'])
    t.equal(elements.get(map)?.size, 0, `new calls find no service: ${map}`)
  t.equal(planner.serving(`${VIP} . udp . 53`), undefined)
  t.equal(planner.dueMs, dueMs + WITHDRAWN_MS)
  t.strictSame(endedAt(planner, dueMs + WITHDRAWN_MS), [])
  t.strictSame([planner.ports().size, planner.dueMs], [0, undefined], 'nothing is left')
})

t.test('what ends nothing', async (t) => {
  const kept = { ...PARIS, metadata: { ...PARIS.metadata, annotations: { [ANNOTATION_KEEPS_OPEN]: 'true' } } }
  const late = WITHDRAWN_HOLD_MS + 20
  type Act = (planner: BalancePlanner) => void
  const remove: Act = (planner) => planner.removeImport('shop', 'web')
  const rows: readonly (readonly [say: string, slices: readonly EndpointSlice[], act: Act])[] = [
    ['the import stays', [PARIS], (planner) => planner.removeSlice('shop', PARIS.metadata.name)],
    ['an import that was never seen', [PARIS], (planner) => planner.removeImport('shop', 'other')],
    ['its exporter keeps connections', [kept], remove],
    ['endpoints of this cluster', [slice('web', 'milano', ['10.42.1.6'], PARIS.ports)], remove],
    [
      'it comes back at once',
      [PARIS],
      (planner) => {
        remove(planner)
        planner.takeChanges(15)
        planner.setImport(WEB)
      },
    ],
    [
      'another service has its address',
      [PARIS],
      (planner) => {
        planner.setImport(serviceImport('later', VIP, { ports: [HTTP] }))
        remove(planner)
      },
    ],
  ]
  for (const [say, slices, act] of rows) {
    const planner = planned(slices)
    act(planner)
    t.strictSame(endedAt(planner, 20), [], say)
    t.strictSame(endedAt(planner, 20 + late), [], say)
  }
})

t.test('its slices may go first, and an import that comes later ends nothing more', async (t) => {
  const planner = planned()
  planner.removeSlice('shop', PARIS.metadata.name)
  planner.takeChanges(1)
  planner.replaceAll([], [])
  planner.takeChanges(10)
  t.strictSame(endedAt(planner, 10 + WITHDRAWN_HOLD_MS), ENDED)
  planner.setImport(WEB)
  t.strictSame(endedAt(planner, 20 + WITHDRAWN_HOLD_MS), [])
  planner.setSlice(PARIS)
  t.strictSame(endedAt(planner, 30 + WITHDRAWN_HOLD_MS), [])
  t.equal(planner.ports().get(`${VIP} . tcp . 80`)?.slots.length, 1)
})

t.test('there is a limit, which leaves the rest as it is', async (t) => {
  const planner = new BalancePlanner(SERVICE_CONTEXT)
  const hosts = Array.from({ length: 1000 }, (_, i) => `244.1.${i >> 8}.${i & 255}`)
  for (let i = 0; i < 20; i++) {
    planner.setImport(serviceImport(`web-${i}`, `245.0.1.${i}`, { ports: [HTTP] }))
    planner.setSlice(slice(`web-${i}`, 'paris', hosts, [{ ...HTTP, port: 8080 }]))
  }
  planner.takeChanges(0)
  planner.replaceAll([], [])
  planner.takeChanges(1)
  t.equal(endedAt(planner, 1 + WITHDRAWN_HOLD_MS).length, Math.floor(MAX_WITHDRAWN_TARGETS / 1000) * 1000)
  endedAt(planner, 1 + WITHDRAWN_HOLD_MS + WITHDRAWN_MS)
  t.equal(planner.ports().size, 0)
})
