/** Open connections of services that have gone: test/lanes/udp-stale-endpoint.test.ts has the packets. */
import t from 'tap'
import { ANNOTATION_ENDS_OPEN } from '../../../model/services/service-shares.ts'
import type { EndpointSlice, ServiceImport } from '../../../model/objects.ts'
import { balanceElements } from '../../../routeagent/balance/balance-elements.ts'
import { BalancePlanner } from '../../../routeagent/balance/plan-balancing.ts'
import {
  MAX_SLICES_THAT_WENT,
  MAX_WITHDRAWN_TARGETS,
  WITHDRAWN_HOLD_MS,
  WITHDRAWN_MS,
  WITHDRAWN_UNKNOWN_MS,
} from '../../../routeagent/balance/withdrawn.ts'
import { SERVICE_CONTEXT, serviceImport, slice } from '../support/site.ts'

const VIP = '245.0.0.7'
const HTTP = { name: 'http', protocol: 'TCP', port: 80 } as const
const WEB = serviceImport('web', VIP, { ports: [HTTP, { name: 'dns', protocol: 'UDP', port: 53 }] })
const PORTS = [
  { ...HTTP, port: 8080 },
  { name: 'dns', protocol: 'UDP', port: 5353 },
] as const
/** From an exporter that does not say what becomes of open connections: an earlier release, or all pods are exposed. */
const SILENT = slice('web', 'paris', ['244.1.0.5', '244.1.0.6~'], PORTS)
const PARIS = ending(SILENT)
const ENDED = [`${VIP} . tcp . 80 . 244.1.0.5`, `${VIP} . tcp . 80 . 244.1.0.6`]

function ending(object: EndpointSlice): EndpointSlice {
  return { ...object, metadata: { ...object.metadata, annotations: { [ANNOTATION_ENDS_OPEN]: 'true' } } }
}

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
  const late = WITHDRAWN_HOLD_MS + 20
  type Act = (planner: BalancePlanner) => void
  const remove: Act = (planner) => planner.removeImport('shop', 'web')
  const rows: readonly (readonly [say: string, slices: readonly EndpointSlice[], act: Act])[] = [
    ['the import stays', [PARIS], (planner) => planner.removeSlice('shop', PARIS.metadata.name)],
    ['an import that was never seen', [PARIS], (planner) => planner.removeImport('shop', 'other')],
    ['its exporter does not say that it drops them', [SILENT], remove],
    ['endpoints of this cluster', [ending(slice('web', 'milano', ['10.42.1.6'], PORTS))], remove],
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

t.test('an import that goes with its namespace ends nothing', async (t) => {
  let stays: boolean | undefined
  const planner = new BalancePlanner(SERVICE_CONTEXT, (namespace) => (namespace === 'shop' ? stays : true))
  const rows: readonly (readonly [say: string, answers: readonly (boolean | undefined)[], isEnded: boolean])[] = [
    ['it was on its way already', [false, true], false],
    ['it goes right after', [true, false], false],
    ['it is not known at first', [undefined, undefined, true], true],
    ['it is not known, and gone', [undefined, undefined, false], false],
    ['it goes later, by itself', [true, true, false], true],
    ['it is never known', Array.from({ length: WITHDRAWN_UNKNOWN_MS / WITHDRAWN_HOLD_MS + 1 }, () => undefined), false],
  ]
  let atMs = 0
  for (const [say, answers, isEnded] of rows) {
    planner.replaceAll([WEB], [PARIS])
    planner.takeChanges(atMs)
    planner.replaceAll([], [])
    let ended: string[] = []
    for (stays of answers) {
      ended = endedAt(planner, atMs)
      atMs += WITHDRAWN_HOLD_MS
    }
    t.strictSame(ended, isEnded ? ENDED : [], say)
    if (!isEnded) t.equal(planner.dueMs, undefined, `${say}: nothing is waited for`)
  }
})

t.test('each exporter has room of its own, where its oldest give way', async (t) => {
  const planner = new BalancePlanner(SERVICE_CONTEXT)
  const hosts = Array.from({ length: 1000 }, (_, i) => `244.1.${i >> 8}.${i & 255}`)
  const goes = (i: number, slices: readonly EndpointSlice[], atMs: number): void => {
    planner.replaceAll([serviceImport(`web-${i}`, `245.0.1.${i}`, { ports: [HTTP] })], slices.map(ending))
    planner.takeChanges(atMs)
    planner.replaceAll([], [])
    planner.takeChanges(atMs)
  }
  const port = [{ ...HTTP, port: 8080 }] as const
  goes(100, [slice('web-100', 'roma', ['244.2.0.5'], port), slice('web-100', 'paris', ['244.1.9.9'], port)], 0)
  t.equal(endedAt(planner, WITHDRAWN_HOLD_MS).length, 2)
  for (let i = 0; i < 20; i++) goes(i, [slice(`web-${i}`, 'paris', hosts, port)], WITHDRAWN_HOLD_MS + i)
  const ended = endedAt(planner, 2 * WITHDRAWN_HOLD_MS + 20)
  const ofPorts = new Map<string, number>()
  for (const [vip = ''] of ended.map((one) => one.split(' '))) ofPorts.set(vip, (ofPorts.get(vip) ?? 0) + 1)
  t.strictSame(Object.fromEntries(ofPorts), { '245.0.1.100': 1, '245.0.1.18': 1000, '245.0.1.19': 1000 })
  t.ok(ended.includes('245.0.1.100 . tcp . 80 . 244.2.0.5'), 'another one keeps its own')
  t.ok(ended.length - 1 <= MAX_WITHDRAWN_TARGETS)
  endedAt(planner, 3 * WITHDRAWN_HOLD_MS + WITHDRAWN_MS)
  t.strictSame([planner.ports().size, planner.dueMs], [0, undefined])
})

t.test('slices of one exporter that went do not push out those of another', async (t) => {
  const planner = new BalancePlanner(SERVICE_CONTEXT)
  const others = Array.from({ length: MAX_SLICES_THAT_WENT + 1 }, (_, i) =>
    ending(slice(`other-${i}`, 'roma', ['244.2.0.5'], PORTS)),
  )
  planner.replaceAll([WEB, serviceImport('other-0', '245.0.0.8', { ports: [HTTP] })], [PARIS, ...others])
  planner.takeChanges(0)
  for (const { metadata } of [PARIS, ...others]) planner.removeSlice('shop', metadata.name)
  planner.replaceAll([], [])
  planner.takeChanges(1)
  t.strictSame(endedAt(planner, 1 + WITHDRAWN_HOLD_MS), ENDED, 'and the first of the others is forgotten')
})

t.test('one of several exporters withdraws the service: its connections alone are ended', async (t) => {
  const ROMA = ending(slice('web', 'roma', ['244.2.0.5'], PORTS))
  const by = (...clusters: readonly string[]): ServiceImport => ({
    ...WEB,
    status: { clusters: clusters.map((cluster) => ({ cluster })) },
  })
  const begun = (slices: readonly EndpointSlice[] = [PARIS, ROMA]): BalancePlanner => {
    const planner = new BalancePlanner(SERVICE_CONTEXT)
    planner.replaceAll([by('paris', 'roma')], slices)
    planner.takeChanges(0)
    return planner
  }
  const http = `${VIP} . tcp . 80`
  const later = 10 + WITHDRAWN_HOLD_MS
  for (const isSliceFirst of [true, false]) {
    const planner = begun()
    if (isSliceFirst) planner.removeSlice('shop', PARIS.metadata.name)
    planner.takeChanges(5)
    planner.setImport(by('roma'))
    t.strictSame(endedAt(planner, 10), [], 'it may come back at once')
    planner.removeSlice('shop', PARIS.metadata.name)
    t.strictSame(endedAt(planner, later), ENDED, isSliceFirst ? 'its slices go first' : 'the import changes first')
    t.strictSame(planner.ports().get(http)?.slots, ['244.2.0.5 . 8080'], 'new calls find the other one')
    planner.setImport({ ...by('roma'), spec: { ...WEB.spec, trafficDistribution: 'PreferClose' } })
    t.strictSame(endedAt(planner, later + 1), ENDED, 'also while the import changes otherwise')
    t.equal(planner.dueMs, later + WITHDRAWN_MS)
    t.strictSame(endedAt(planner, later + WITHDRAWN_MS), [])
    t.equal(planner.dueMs, undefined)
  }

  const again = begun()
  again.removeSlice('shop', PARIS.metadata.name)
  again.setImport(by('roma'))
  t.strictSame([endedAt(again, 10), endedAt(again, later)], [[], ENDED])
  again.setImport(by('paris', 'roma'))
  again.setSlice(PARIS)
  t.strictSame(endedAt(again, later + 1), [], 'it exports the service again')
  t.equal(again.dueMs, undefined)

  const replacements: readonly (readonly [say: string, import_: ServiceImport, want: readonly string[]])[] = [
    ['without it', by('roma'), ENDED],
    ['with it', by('paris', 'roma'), []],
    ['without a word about clusters', WEB, []],
  ]
  for (const [say, replacement, want] of replacements) {
    const replaced = begun()
    replaced.removeSlice('shop', PARIS.metadata.name)
    replaced.setImport(by('roma'))
    t.strictSame([endedAt(replaced, 10), endedAt(replaced, later)], [[], ENDED])
    replaced.removeImport('shop', 'web')
    t.strictSame(endedAt(replaced, later + 1), ENDED)
    replaced.setImport(replacement)
    t.strictSame(endedAt(replaced, later + 2), want, `the import is replaced ${say}`)
  }

  type Act = (planner: BalancePlanner) => void
  const goes: Act = (planner) => planner.removeSlice('shop', PARIS.metadata.name)
  const rows: readonly (readonly [say: string, act: Act, slices?: readonly EndpointSlice[]])[] = [
    ['its endpoints go, and it still exports the service', goes],
    [
      'the import has no status',
      (planner) => {
        goes(planner)
        planner.setImport(WEB)
      },
    ],
    ['the exporter does not say that it drops them', (planner) => planner.setImport(by('roma')), [SILENT, ROMA]],
    [
      'it is back at once',
      (planner) => {
        planner.setImport(by('roma'))
        planner.takeChanges(12)
        planner.setImport(by('paris', 'roma'))
      },
    ],
  ]
  for (const [say, act, slices] of rows) {
    const planner = begun(slices)
    act(planner)
    t.strictSame([endedAt(planner, 20), endedAt(planner, 20 + later)], [[], []], say)
  }

  const last = begun()
  goes(last)
  last.setImport(by('roma'))
  t.strictSame([endedAt(last, 10), endedAt(last, later)], [[], ENDED])
  last.replaceAll([], [])
  t.strictSame(endedAt(last, later + 1), ENDED, 'the last one withdraws too')
  t.strictSame(endedAt(last, later + 1 + WITHDRAWN_HOLD_MS), [...ENDED, `${http} . 244.2.0.5`])
})
