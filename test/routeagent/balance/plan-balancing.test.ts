/** The incremental planner reaches the same result as one that starts from nothing. */
import { deepStrictEqual, equal, ok } from 'node:assert/strict'
import t, { type Test } from 'tap'
import { elementStatements } from '../../../kernel/nft/apply-table.ts'
import fc from 'fast-check'
import { FakeNft } from '../../../kernel/fake/fake-nft.ts'
import type { NftElement } from '../../../kernel/nft/nft-transaction.ts'
import { NFT_TABLE_NODE } from '../../../model/kernel-ids.ts'
import type { EndpointSlice, ServiceImport } from '../../../model/objects.ts'
import { serviceKey } from '../../../model/ids.ts'
import { ANNOTATION_ENDS_OPEN } from '../../../model/services/service-shares.ts'
import {
  SET_HAIRPIN,
  balanceElements,
  drawsOfShares,
  elementChanges,
  layout,
} from '../../../routeagent/balance/balance-elements.ts'
import { addressFamily } from '../../../routeagent/world/address-family.ts'
import { wholeShares } from '../../../routeagent/balance/plan-service.ts'
import { BalancePlanner, SHARES_HOLD_MS, type Traffic } from '../../../routeagent/balance/plan-balancing.ts'
import { desiredElements, planTable } from '../../../routeagent/balance/plan-node-table.ts'
import { NFT_WORLD, SERVICE_CONTEXT, serviceImport, slice } from '../support/site.ts'

type Step = (planner: BalancePlanner, world: SimpleWorld) => void
/** The objects that the planner was given, by name. */
class SimpleWorld {
  readonly imports = new Map<string, ServiceImport>()
  readonly slices = new Map<string, EndpointSlice>()
  readonly weights = new Map<string, ReadonlyMap<string, number>>()
  context = SERVICE_CONTEXT
}

const services = fc.constantFrom('a', 'b', 'c')
const clusters = fc.constantFrom('milano', 'paris', 'tokyo')
// Two services may have the same address: the first by name gets it.
const ips = fc.constantFrom('245.0.0.1', '245.0.0.2', '245.0.0.3')
const addresses = fc.uniqueArray(
  fc.constantFrom('10.42.1.5', '10.42.1.6', '244.1.0.5', '244.1.0.6!', '244.1.0.7~', '244.2.0.8'),
)

const setImport = fc
  .tuple(services, ips, fc.constantFrom('None' as const, 'ClientIP' as const))
  .map(([name, ip, sessionAffinity]): Step => (planner, world) => {
    const object = serviceImport(name, ip, { sessionAffinity })
    world.imports.set(name, object)
    planner.setImport(object)
  })
const removeImport = services.map((name): Step => (planner, world) => {
  world.imports.delete(name)
  planner.removeImport('shop', name)
})
// A slice keeps its name when its label moves it to another service.
const setSlice = fc
  .tuple(services, services, clusters, addresses)
  .map(([name, service, clusterId, addresses]): Step => (planner, world) => {
    // Tokyo has another port, and addresses of its own.
    const isTokyo = clusterId === 'tokyo'
    const hosts = isTokyo ? addresses.map((text) => text.replace(/^\d+\.\d+/, '244.3')) : addresses
    const port = isTokyo ? 8081 : 8080
    const made = slice(service, clusterId, hosts, [{ name: 'http', protocol: 'TCP', port }])
    const object = { ...made, metadata: { ...made.metadata, name: `${name}-${clusterId}` } }
    world.slices.set(object.metadata.name, object)
    planner.setSlice(object)
  })
const removeSlice = fc.tuple(services, clusters).map(([name, clusterId]): Step => (planner, world) => {
  world.slices.delete(`${name}-${clusterId}`)
  planner.removeSlice('shop', `${name}-${clusterId}`)
})
const setReachable = fc.option(fc.subarray(['milano', 'paris', 'tokyo'])).map((reachable): Step => (planner, world) => {
  world.context = { ...SERVICE_CONTEXT, reachable: reachable === null ? undefined : new Set(reachable) }
  planner.setContext(world.context)
})
const setWeights = fc
  .tuple(services, fc.option(fc.dictionary(clusters, fc.constantFrom(0, 1, 100, 3333, 5000, 9900))))
  .map(([name, some]): Step => (planner, world) => {
    const weights = some === null ? undefined : new Map(Object.entries(some))
    if (weights === undefined) world.weights.delete(`shop/${name}`)
    else world.weights.set(`shop/${name}`, weights)
    planner.setTraffic(trafficOf(world.weights, true), ({ metadata }) => metadata.name === name)
  })
const steps = fc.array(
  fc.oneof(setImport, setSlice, setSlice, removeImport, removeSlice, setReachable, setWeights, setWeights),
  { maxLength: 12 },
)

/** `ends`: open connections to clusters with share 0 are ended. */
function trafficOf(weights: ReadonlyMap<string, ReadonlyMap<string, number>>, ends = false): Traffic {
  return {
    of({ metadata }) {
      const clusterShares = weights.get(`${metadata.namespace}/${metadata.name}`)
      const ended = new Set(
        [...(clusterShares ?? [])].flatMap(([cluster, share]) => (ends && share === 0 ? [cluster] : [])),
      )
      return clusterShares && { clusterShares, ended }
    },
  }
}

function fromNothing(world: SimpleWorld): BalancePlanner {
  const planner = new BalancePlanner(world.context)
  planner.setTraffic(trafficOf(world.weights, true))
  planner.replaceAll([...world.imports.values()], [...world.slices.values()])
  planner.takeChanges()
  return planner
}

function sortedElements(elements: ReadonlyMap<string, string | undefined>): NftElement[] {
  return [...elements]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, value]) => (value === undefined ? { key } : { key, value }))
}

t.test('a change on which no plan depends is told from the others', async (t) => {
  const planner = new BalancePlanner(SERVICE_CONTEXT)
  const web = serviceImport('web', '245.0.0.1')
  const from = (...clusters: string[]): ServiceImport => ({
    ...web,
    status: { clusters: clusters.map((cluster) => ({ cluster })) },
  })
  const mine = slice('web', 'milano', ['10.42.1.5'])
  const differs = (object: ServiceImport): boolean => planner.setImport(object)
  t.ok(differs(web))
  t.notOk(differs(from('milano')), 'the first status of a plain service')
  t.ok(differs(from('paris')), 'connections to a cluster that has left may be ended')
  t.ok(differs({ ...from('paris'), spec: { ...web.spec, ports: [] } }))
  t.ok(planner.setSlice(mine))
  t.notOk(planner.setSlice({ ...mine, metadata: { ...mine.metadata, name: 'other' }, addressType: 'IPv6' }))
  t.ok(planner.setSlice({ ...mine, addressType: 'IPv6' }), 'a slice of the other family that was of this one')
  t.notOk(planner.removeSlice('shop', mine.metadata.name))
  planner.setImport(from('paris'))
  planner.setTraffic(trafficOf(new Map([['shop/web', new Map([['paris', 1]])]])))
  t.ok(differs(from('paris')), 'its clusters have shares')
  t.ok(planner.removeImport('shop', 'web'))
  t.notOk(planner.removeImport('shop', 'web'))
})

/** Divides a service by its status, as policies do: without one, it is a plain service. */
const BY_STATUS: Traffic = {
  of({ status, metadata }, slices) {
    const shared = (status?.clusters ?? []).filter(({ cluster }) => cluster !== 'tokyo')
    if (metadata.name === 'c' || shared.length === 0 || slices.length === 0) return undefined
    return { clusterShares: new Map(shared.map(({ cluster }, i) => [cluster, 1000 * (i + 1)])) }
  },
}

const few = fc.constantFrom('a', 'c')
const usually = <T>(value: T, other: T): fc.Arbitrary<T> => fc.nat(7).map((n) => (n === 0 ? other : value))
/** Each changes one object, and says whether the plan may differ. Most imports are as they were but for their status. */
const setters = fc.oneof(
  {
    weight: 4,
    arbitrary: fc
      .tuple(few, usually('245.0.0.1', '245.0.0.2'), fc.option(fc.subarray(['milano', 'paris', 'tokyo'])))
      .map(([name, ip, from]) => {
        const object = serviceImport(name, ip)
        const status = from && { clusters: from.map((cluster) => ({ cluster })) }
        return (planner: BalancePlanner) => planner.setImport({ ...object, ...(status && { status }) })
      }),
  },
  {
    weight: 4,
    arbitrary: fc
      .tuple(few, few, clusters, addresses, usually('IPv4' as const, 'IPv6' as const), usually(true, false))
      .map(([name, service, from, hosts, addressType, isLabelled]) => {
        const { metadata, ...made } = slice(service, from, hosts)
        const annotations = { [ANNOTATION_ENDS_OPEN]: 'true' }
        const labels = isLabelled ? metadata.labels : undefined
        const { labels: _, ...others } = metadata
        const named = { ...others, name: `${name}-${from}`, annotations, ...(labels && { labels }) }
        const object: EndpointSlice = { ...made, metadata: named, addressType }
        return (planner: BalancePlanner) => planner.setSlice(object)
      }),
  },
  { weight: 1, arbitrary: few.map((name) => (planner: BalancePlanner) => planner.removeImport('shop', name)) },
  {
    weight: 1,
    arbitrary: fc.tuple(few, clusters).map(
      ([name, from]) =>
        (planner: BalancePlanner) =>
          planner.removeSlice('shop', `${name}-${from}`),
    ),
  },
)

t.test('a change that is said to change no plan changes none, in whatever order objects come', (t) => {
  let silent = 0
  fc.assert(
    fc.property(
      fc.array(fc.tuple(setters, fc.nat(3000)), { minLength: 25, maxLength: 40 }),
      fc.nat(20),
      (changes, trafficAt) => {
        const planner = new BalancePlanner(SERVICE_CONTEXT)
        let atMs = 0
        for (const [i, [change, laterMs]] of changes.entries()) {
          if (i === trafficAt) planner.setTraffic(BY_STATUS)
          atMs += laterMs
          // Without the time nothing is held, and with it the withdrawn ports are looked at.
          for (const at of [undefined, atMs]) planner.takeChanges(at)
          const { dueMs } = planner
          if (change(planner)) continue
          silent += 1
          for (const at of [undefined, atMs]) deepStrictEqual(planner.takeChanges(at), [])
          equal(planner.dueMs, dueMs, 'and none that is to come')
        }
      },
    ),
    { numRuns: 300 },
  )
  ok(silent > 100, 'there were such changes')
  t.end()
})

t.test('any sequence of changes comes to what a start from nothing comes to, in the kernel too', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(steps, { maxLength: 6 }), async (rounds) => {
      const planner = new BalancePlanner(SERVICE_CONTEXT)
      const world = new SimpleWorld()
      const nft = new FakeNft()
      const table = planTable(NFT_WORLD, planner.ports())
      await nft.run(table.statements)
      let chains = table.layout
      for (const round of rounds) {
        for (const step of round) step(planner, world)
        const changes = planner.takeChanges()
        const more = layout(
          changes.flatMap((c) => (c.after === undefined ? [] : [c.after])),
          chains,
          addressFamily(4),
        )
        chains = more.result
        await nft.run([
          ...more.statements,
          ...elementStatements(NFT_TABLE_NODE, [...elementChanges(changes), table.localBackends.apply(changes)]),
        ])
      }
      const fresh = fromNothing(world)
      const want = planTable(NFT_WORLD, fresh.ports())
      for (const [map, elements] of desiredElements(NFT_WORLD, fresh.ports(), want.localBackends)) {
        // Slots of an earlier state may remain if they are empty; every wanted map must be exactly as wanted.
        deepStrictEqual(await nft.elements(NFT_TABLE_NODE, map), sortedElements(elements), map)
      }
    }),
    { numRuns: 150 },
  )
})

t.test('a change of one service touches only its own elements', async (t) => {
  const planner = new BalancePlanner(SERVICE_CONTEXT)
  for (const i of [1, 2, 3]) planner.setImport(serviceImport(`s${i}`, `245.0.0.${i}`))
  for (const i of [1, 2, 3]) planner.setSlice(slice(`s${i}`, 'paris', ['244.1.0.5', '244.1.0.6']))
  t.equal(planner.takeChanges().length, 3)
  t.strictSame(planner.takeChanges(), [], 'nothing new, nothing to do')
  planner.setSlice(slice('s2', 'paris', ['244.1.0.5', '244.1.0.9']))
  t.strictSame(elementChanges(planner.takeChanges()), [
    {
      map: 'slots',
      remove: ['245.0.0.2 . tcp . 80 . 1'],
      add: [{ key: '245.0.0.2 . tcp . 80 . 1', value: '244.1.0.9' }],
    },
  ])
  planner.setSlice(slice('s2', 'paris', ['244.1.0.5', '244.1.0.9']))
  t.strictSame(planner.takeChanges(), [], 'an equal slice changes nothing')
  planner.removeSlice('shop', 's2-paris')
  t.strictSame(
    elementChanges(planner.takeChanges()).map((c) => `${c.map} -${c.remove.length} +${c.add.length}`),
    ['no-backends -0 +1', 'services -1 +0', 'slots -2 +0'],
  )
})

t.test('a change of weights touches the elements of that service only, and few of them', async (t) => {
  const planner = new BalancePlanner(SERVICE_CONTEXT)
  for (const i of [1, 2, 3]) {
    planner.setImport(serviceImport(`s${i}`, `245.0.0.${i}`))
    planner.setSlice(slice(`s${i}`, 'paris', ['244.1.0.5', '244.1.0.6']))
    planner.setSlice(slice(`s${i}`, 'tokyo', ['244.2.0.5']))
  }
  planner.takeChanges()
  const changed = (paris: number, tokyo: number): string[] => {
    const weights = new Map([
      ['paris', paris],
      ['tokyo', tokyo],
    ])
    planner.setTraffic(trafficOf(new Map([['shop/s2', weights]])))
    const changes = elementChanges(planner.takeChanges())
    const touched = changes.flatMap(({ remove, add }) => [...remove, ...add.map((one) => one.key)])
    t.ok(
      touched.every((one) => one.startsWith('245.0.0.2 ')),
      'no other service',
    )
    return changes.map((c) => `${c.map} -${c.remove.length} +${c.add.length}`)
  }
  t.strictSame(
    changed(9900, 100),
    ['draws-0 -0 +10', 'draws-1 -0 +10', 'services -1 +1', 'slots -1 +2'],
    'a canary of 1 %',
  )
  t.strictSame(changed(9900, 100), [], 'the same again')
  t.strictSame(changed(9000, 1000), ['draws-0 -1 +1', 'draws-1 -10 +0'], '10 %')
  t.strictSame(changed(10_000, 0), ['draws-0 -10 +0', 'services -1 +1', 'slots -2 +0'], 'none')
  t.strictSame(changed(9000, 1000), ['draws-0 -0 +10', 'services -1 +1', 'slots -0 +2'], 'and 10 % again')
  t.strictSame(changed(0, 10_000), ['draws-0 -10 +0', 'services -1 +1', 'slots -4 +2'], '100 %')
})

t.test('a cluster that loses its share leaves the slots of the others as they are', async (t) => {
  const planner = new BalancePlanner(SERVICE_CONTEXT)
  planner.setImport(serviceImport('web', '245.0.0.7'))
  for (const [i, id] of ['milano', 'paris', 'tokyo'].entries()) planner.setSlice(slice('web', id, [`244.${i}.0.5`]))
  const slots = (milano: number, paris: number, tokyo: number): string[] => {
    planner.setTraffic(trafficOf(new Map([['shop/web', new Map(Object.entries({ milano, paris, tokyo }))]])))
    const changes = elementChanges(planner.takeChanges()).filter(({ map }) => map === 'slots')
    return changes.flatMap(({ remove, add }) => [...remove, ...add.map(({ key, value }) => `${key} ${value}`)])
  }
  t.equal(slots(1000, 4000, 5000).length, 6)
  t.strictSame(slots(0, 4000, 6000), ['245.0.0.7 . tcp . 80 . 0', '245.0.0.7 . tcp . 80 . 1'], 'its own go')
  t.equal(slots(1000, 4000, 5000).length, 2, 'and come back')
})

t.test('shares of a service change at once, and not again too soon', async () => {
  const step = fc.record({ afterMs: fc.integer({ min: 0, max: 60 }), flips: fc.subarray(['plain', 'shared', 'other']) })
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const planner = new BalancePlanner(SERVICE_CONTEXT)
      const weights = new Map(['shared', 'other'].map((name) => [`shop/${name}`, new Map([['paris', 1]])]))
      planner.setTraffic(trafficOf(weights))
      const names = ['plain', 'shared', 'other']
      const keyOf = (name: string): string => `245.0.0.${names.indexOf(name) + 1} . tcp . 80`
      const isUp = new Map<string, boolean>()
      const changedAt = new Map<string, number>()
      for (const name of names) planner.setImport(serviceImport(name, keyOf(name).split(' ')[0] ?? ''))
      planner.takeChanges()
      let now = 0
      const take = (): string[] => planner.takeChanges(now).map(({ key }) => key)
      const isAsWanted = (name: string): boolean =>
        (planner.ports().get(keyOf(name))?.slots.length === 1) === (isUp.get(name) ?? false)
      for (const { afterMs, flips } of steps) {
        now += afterMs
        for (const name of flips) {
          isUp.set(name, isUp.get(name) !== true)
          planner.setSlice(slice(name, 'paris', isUp.get(name) === true ? ['244.1.0.5'] : []))
        }
        const changed = take()
        ok(isAsWanted('plain'), 'a service without shares never waits')
        for (const name of ['shared', 'other']) {
          const since = now - (changedAt.get(name) ?? -Infinity)
          ok(!changed.includes(keyOf(name)) || since >= SHARES_HOLD_MS, `again after ${since} ms`)
          ok(isAsWanted(name) || (since < SHARES_HOLD_MS && planner.dueMs !== undefined), 'held for no reason')
          if (changed.includes(keyOf(name))) changedAt.set(name, now)
        }
      }
      for (let left = 3; left > 0 && planner.dueMs !== undefined; left -= 1) {
        now = planner.dueMs
        take()
      }
      equal(planner.dueMs, undefined)
      return names.every(isAsWanted)
    }),
  )
})

t.test('a target that is left out touches its own service only, and only where a policy asks for it', async (t) => {
  const planner = new BalancePlanner(SERVICE_CONTEXT)
  for (const i of [1, 2]) {
    planner.setImport(serviceImport(`s${i}`, `245.0.0.${i}`))
    planner.setSlice(slice(`s${i}`, 'paris', ['244.1.0.5', '244.1.0.6', '244.1.0.7!']))
  }
  const [first, second] = [serviceKey('shop', 's1'), serviceKey('shop', 's2')]
  const key = '245.0.0.1 . tcp . 80'
  const out = new Set(['244.1.0.5 . 8080'])
  planner.takeChanges()
  t.equal(planner.setLeftOut(first, out), false, 'no policy')
  t.equal(planner.watchedService(key), undefined)
  planner.setTraffic({ of: ({ metadata: { name } }) => ({ passiveHealth: name === 's1' }) })
  t.strictSame(planner.takeChanges(), [], 'a policy alone changes nothing')
  t.strictSame([planner.watchedService(key), planner.watched.has(second)], [first, false])
  t.strictSame(
    [...planner.watchedPorts()].map(([port]) => port),
    [key],
  )
  t.strictSame([...planner.ready(key)], ['244.1.0.5 . 8080', '244.1.0.6 . 8080'])
  t.strictSame(
    [planner.setLeftOut(first, out), planner.setLeftOut(first, out), planner.setLeftOut(second, out)],
    [...[true, false, false]],
  )
  const changes = planner.takeChanges()
  t.strictSame(
    changes.map((one) => [one.key, one.after?.slots]),
    [[key, ['244.1.0.6 . 8080']]],
  )
  t.strictSame([...planner.ready(key)], ['244.1.0.5 . 8080', '244.1.0.6 . 8080'], 'it still counts for the limit')
  t.strictSame([...(planner.serving(key) ?? [])].length, 2, 'and connections to it go on')
  planner.setSlice(slice('s1', 'paris', ['244.1.0.5']))
  t.strictSame(planner.takeChanges()[0]?.after?.slots, ['244.1.0.5 . 8080'], 'it is the last one now')
  t.strictSame(planner.leftOutServices(), [first])
  planner.setTraffic(undefined)
  planner.takeChanges()
  t.strictSame([planner.watched.size, planner.leftOutServices()], [0, []], 'the policy is gone')
})

for (const sessionAffinity of ['None', 'ClientIP'] as const) {
  t.test(`an endpoint of a large service that goes or comes costs a few elements: ${sessionAffinity}`, async (t) => {
    await changesOfLargeService(t, sessionAffinity)
  })
}

async function changesOfLargeService(t: Test, sessionAffinity: 'None' | 'ClientIP'): Promise<void> {
  const hosts = Array.from({ length: 5000 }, (_, i) => `244.1.${1 + (i >> 8)}.${i & 255}`)
  const planner = new BalancePlanner(SERVICE_CONTEXT)
  planner.setImport(serviceImport('web', '245.0.0.7', { sessionAffinity }))
  planner.setSlice(slice('web', 'paris', hosts))
  planner.takeChanges()
  const change = (...addresses: string[]): string[] => {
    planner.setSlice(slice('web', 'paris', addresses))
    const changes = elementChanges(planner.takeChanges())
    const slots = planner.ports().get('245.0.0.7 . tcp . 80')?.slots ?? []
    t.strictSame([...slots].sort(), addresses.map((address) => `${address} . 8080`).sort())
    return changes.filter(({ map }) => map !== 'members').map((c) => `${c.map} -${c.remove.length} +${c.add.length}`)
  }
  t.strictSame(change(...hosts.slice(1)), ['services -1 +1', 'slots -2 +1'], 'the first goes')
  t.strictSame(change(...hosts), ['services -1 +1', 'slots -0 +1'], 'and comes back')
  t.strictSame(change('244.9.0.1', ...hosts.slice(1)), ['slots -1 +1'], 'another in its place')
}

t.test('the elements realise the plan: each backend is drawn as often as it should be', async () => {
  fc.assert(
    fc.property(steps, (list) => {
      const planner = new BalancePlanner(SERVICE_CONTEXT)
      const world = new SimpleWorld()
      for (const step of list) step(planner, world)
      planner.takeChanges()
      const maps = balanceElements(planner.ports())
      for (const [key, plan] of planner.ports()) {
        const { slots, shares } = plan
        equal(maps.get('services')?.has(key), slots.length > 0)
        equal(maps.get('no-backends')?.has(key), slots.length === 0)
        if (slots.length === 0) continue
        const drawn = new Map<string, number>()
        const sticky = plan.pick === 'client'
        const walk = (chain: string | undefined, chance: number): void => {
          const [, kind = '', count, at = '0', port] = /^\w+ (\w+)-(\d+)(?:-(\d+))?(?:-(\d+))?$/.exec(chain ?? '') ?? []
          const isSlot = ['pick', 'mixed', 'client'].includes(kind)
          const from = isSlot ? Number(at) * 65_536 : 0
          for (let number = from; number < from + Number(count); number++) {
            const place = `${key} . ${number}`
            const each = chance / Number(count)
            if (!isSlot) walk(maps.get(`draws-${at}`)?.get(place), each)
            else {
              const address = maps.get('slots')?.get(place) ?? 'none'
              const member = maps.get('members')?.get(`${key} . ${address}`) ?? 'none'
              const backend = kind === 'pick' ? `${address} . ${port}` : member
              drawn.set(backend, (drawn.get(backend) ?? 0) + each)
            }
          }
        }
        const service = maps.get('services')?.get(key)
        walk(sticky ? service?.replace(/sticky-\d+-/, '') : service, 1)
        const parts = shares ?? [{ part: 0, size: slots.length, share: 1 }]
        const total = parts.reduce((sum, { share }) => sum + share, 0)
        const wanted = new Map<string, number>()
        let at = 0
        for (const { size, share } of parts) {
          for (const target of slots.slice(at, at + size))
            wanted.set(target, (wanted.get(target) ?? 0) + share / total / size)
          at += size
        }
        deepStrictEqual([...drawn.keys()].sort(), [...wanted.keys()].sort())
        for (const [target, chance] of wanted) ok(Math.abs((drawn.get(target) ?? 0) - chance) < 1e-9, target)
      }
      return true
    }),
  )
})

t.test('draws of many clusters are exact, and few', async () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 1, max: 9999 }), { minLength: 2, maxLength: 40 }), (weights) => {
      const shares = wholeShares(weights, 1000).map((share, part) => ({ part, share }))
      const total = shares.reduce((sum, { share }) => sum + share, 0)
      const chances = new Map<number, number>()
      let chance = 1
      let elements = 0
      for (const { count, parts, turn } of drawsOfShares(shares)) {
        equal(parts.length, count)
        ok(turn <= 2)
        elements += count
        for (const part of parts) if (part !== undefined) chances.set(part, (chances.get(part) ?? 0) + chance / count)
        chance *= parts.filter((part) => part === undefined).length / count
      }
      equal(chance, 0)
      for (const { part, share } of shares) ok(Math.abs((chances.get(part) ?? 0) - share / total) < 1e-9)
      return elements <= 10 + 10 * Math.min(10, weights.length - 1) + 10 * Math.min(100, weights.length - 1)
    }),
  )
})

t.test('a local backend is in the hairpin set as long as any port uses it', async (t) => {
  const { localBackends } = planTable(NFT_WORLD, new Map())
  const uses = (...hosts: string[]) => ({ pick: 'random', slots: hosts.map((host) => `${host} . 80`) }) as const
  t.strictSame(
    localBackends.apply([
      { key: 'a', before: undefined, after: uses('10.42.1.5', '10.42.2.9') },
      { key: 'b', before: undefined, after: uses('10.42.1.5') },
    ]),
    {
      map: SET_HAIRPIN,
      remove: [],
      add: [{ key: '10.42.1.5 . 10.42.1.5' }],
    },
  )
  t.strictSame(localBackends.apply([{ key: 'a', before: uses('10.42.1.5', '10.42.2.9'), after: undefined }]).remove, [])
  t.strictSame(localBackends.apply([{ key: 'b', before: uses('10.42.1.5'), after: undefined }]).remove, [
    '10.42.1.5 . 10.42.1.5',
  ])
})
