/** The incremental planner reaches the same result as one that starts from nothing. */
import { deepStrictEqual } from 'node:assert/strict'
import t from 'tap'
import { elementStatements } from '../../../kernel/nft/apply-table.ts'
import fc from 'fast-check'
import { FakeNft } from '../../../kernel/fake/fake-nft.ts'
import type { NftElement } from '../../../kernel/nft/nft-transaction.ts'
import { NFT_TABLE_NODE } from '../../../model/kernel-ids.ts'
import type { EndpointSlice, ServiceImport } from '../../../model/objects.ts'
import { SET_HAIRPIN, balanceElements, elementChanges, layout } from '../../../routeagent/balance/balance-elements.ts'
import { addressFamily } from '../../../routeagent/balance/address-family.ts'
import { BalancePlanner } from '../../../routeagent/balance/plan-balancing.ts'
import { type NodeNftWorld, desiredElements, planTable } from '../../../routeagent/balance/plan-node-table.ts'
import { SERVICE_CONTEXT, serviceImport, slice } from '../support/site.ts'

const NFT_WORLD: NodeNftWorld = {
  family: 4,
  podCidrs: ['10.42.0.0/16'],
  nodePodCidrs: ['10.42.1.0/24'],
  localCidrs: ['10.42.1.0/24'],
  remote: ['244.1.0.0/16'],
  clustersetIpRange: '245.0.0.0/16',
  bridgeHidesAnswers: false,
  overlay: { local: '192.168.7.11', devices: ['eth0'] },
  overlayNodes: ['192.168.7.1'],
  otherGateways: undefined,
  openPorts: [],
}

type Step = (planner: BalancePlanner, world: SimpleWorld) => void
/** The objects that the planner was given, by name. */
class SimpleWorld {
  readonly imports = new Map<string, ServiceImport>()
  readonly slices = new Map<string, EndpointSlice>()
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
  .map(([name, service, clusterId, hosts]): Step => (planner, world) => {
    const made = slice(service, clusterId, hosts)
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
const steps = fc.array(fc.oneof(setImport, setSlice, setSlice, removeImport, removeSlice, setReachable), {
  maxLength: 12,
})

function fromNothing(world: SimpleWorld): BalancePlanner {
  const planner = new BalancePlanner(world.context)
  planner.replaceAll([...world.imports.values()], [...world.slices.values()])
  planner.takeChanges()
  return planner
}

function sortedElements(elements: ReadonlyMap<string, string | undefined>): NftElement[] {
  return [...elements]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, value]) => (value === undefined ? { key } : { key, value }))
}

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
      map: 'slot-1',
      remove: ['245.0.0.2 . tcp . 80'],
      add: [{ key: '245.0.0.2 . tcp . 80', value: '244.1.0.9 . 8080' }],
    },
  ])
  planner.setSlice(slice('s2', 'paris', ['244.1.0.5', '244.1.0.9']))
  t.strictSame(planner.takeChanges(), [], 'an equal slice changes nothing')
  planner.removeSlice('shop', 's2-paris')
  t.strictSame(
    elementChanges(planner.takeChanges()).map((c) => `${c.map} -${c.remove.length} +${c.add.length}`),
    ['no-backends -0 +1', 'services -1 +0', 'slot-0 -1 +0', 'slot-1 -1 +0'],
  )
})

t.test('every port has one entry point and every slot it may draw', async () => {
  fc.assert(
    fc.property(steps, (list) => {
      const planner = new BalancePlanner(SERVICE_CONTEXT)
      const world = new SimpleWorld()
      for (const step of list) step(planner, world)
      planner.takeChanges()
      const maps = balanceElements(planner.ports())
      return [...planner.ports()].every(([key, plan]) => {
        const slots = [...maps].filter(([map, elements]) => map.startsWith('slot-') && elements.has(key)).length
        return (
          slots === plan.slots.length &&
          maps.get('services')?.has(key) === slots > 0 &&
          maps.get('no-backends')?.has(key) === (slots === 0)
        )
      })
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
