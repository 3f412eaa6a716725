/** How many connections each endpoint of a service gets, counted in the kernel: shares, many endpoints, affinity. */
import { createSocket } from 'node:dgram'
import t, { type Test } from 'tap'
import { elementStatements } from '../../kernel/nft/apply-table.ts'
import { NftSession } from '../../kernel/nft/nft-session.ts'
import type { NftElement } from '../../kernel/nft/nft-transaction.ts'
import { NFT_TABLE_NODE } from '../../model/kernel-ids.ts'
import type { ServiceImport } from '../../model/objects.ts'
import { elementChanges, layout } from '../../routeagent/balance/balance-elements.ts'
import { BalancePlanner } from '../../routeagent/balance/plan-balancing.ts'
import { type TablePlan, planTable } from '../../routeagent/balance/plan-node-table.ts'
import { addressFamily } from '../../routeagent/world/address-family.ts'
import { here, ip } from '../routeagent/support/datapath.ts'
import { NFT_WORLD, SERVICE_CONTEXT, serviceImport, slice } from '../routeagent/support/site.ts'
import { IMPORT_PORTS, PORTS, VIP } from '../routeagent/support/vip-calls.ts'
import { eventually } from '../support/eventually.ts'
import { inPrivateNetns } from '../support/netns.ts'

inPrivateNetns(t, import.meta.url, () => {
  t.test('shares, many endpoints and affinity, by counting connections', { timeout: 60_000 }, async (t) => {
    const table = await countedTable(t)
    await sharesAreKept(t, table)
    await allAreUsed(t, table)
    await clientsAreRemembered(t, table)
  })
})

interface CountedTable {
  /** Replaces the table by what the planner wants. */
  readonly start: (planner: BalancePlanner) => Promise<void>
  /** Sends what has changed since then. */
  readonly apply: (planner: BalancePlanner) => Promise<void>
  readonly nft: NftSession
  /** Begins so many connections from each of these addresses; returns `client backend` of each pair that was seen. */
  readonly flows: (count: number, clients?: readonly string[]) => Promise<string[]>
}

/** Connections of this namespace leave by a device whose other end drops them. A rule counts where they went. */
async function countedTable(t: Test): Promise<CountedTable> {
  const nft = new NftSession()
  t.teardown(() => nft.close())
  await ip('link add hole0 type veth peer name hole1')
  await ip('link set hole1 up')
  await ip('link set hole0 arp off up')
  await ip('address add 10.42.1.200/24 dev hole0')
  for (let i = 0; i < CLIENTS.length; i++) await ip(`address add ${CLIENTS[i]}/24 dev hole0`)
  for (const range of ['245.0.0.0/16', '244.0.0.0/8']) await ip(`route add ${range} dev hole0`)
  await here('nft', 'add table ip counted')
  await here('nft', 'add set ip counted seen { type ipv4_addr . ipv4_addr; counter; flags dynamic; size 65535; }')
  await here('nft', 'add chain ip counted out { type filter hook postrouting priority 0; }')
  await here('nft', 'add rule ip counted out update @seen { ip saddr . ip daddr }')
  let table: Pick<TablePlan, 'layout' | 'localBackends'> | undefined
  return {
    nft,
    async start(planner) {
      planner.takeChanges()
      const planned = planTable(NFT_WORLD, planner.ports())
      await nft.run(planned.statements)
      table = planned
    },
    async apply(planner) {
      if (table === undefined) throw new Error('not started')
      const { localBackends } = table
      const changes = planner.takeChanges()
      const plans = changes.flatMap(({ after }) => (after === undefined ? [] : [after]))
      const { statements, result } = layout(plans, table.layout, addressFamily(4))
      table = { layout: result, localBackends }
      const elements = [...elementChanges(changes), localBackends.apply(changes)]
      await nft.run([...statements, ...elementStatements(NFT_TABLE_NODE, elements)])
    },
    async flows(count, clients = ['10.42.1.200']) {
      await here('nft', 'flush set ip counted seen')
      for (const client of clients) {
        for (let left = count; left > 0; left -= 250)
          await Promise.all(Array.from({ length: Math.min(left, 250) }, () => datagram(client)))
      }
      const listing = await here('nft', 'list set ip counted seen')
      const seen = listing.matchAll(/([\d.]+) \. ([\d.]+) counter packets (\d+)/g)
      return [...seen].flatMap(([, client, backend, n]) => new Array<string>(Number(n)).fill(`${client} ${backend}`))
    },
  }
}

let nextPort = 10_000

/** One datagram of a socket of its own. */
function datagram(from: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = createSocket('udp4')
    socket.on('error', reject)
    // A port that was used before would belong to a flow that the kernel has translated.
    nextPort += 1
    socket.bind(nextPort, from, () => socket.connect(80, VIP, () => socket.send('x', () => socket.close(resolve))))
  })
}

const CLIENTS = Array.from({ length: 40 }, (_, i) => `10.42.1.${100 + i}`)
const hosts = (cluster: number, count: number): string[] =>
  Array.from({ length: count }, (_, i) => `244.${cluster}.${1 + (i >> 8)}.${i & 255}`)
const UDP_WEB = (spec: Partial<ServiceImport['spec']> = {}): ServiceImport =>
  serviceImport('web', VIP, { ports: IMPORT_PORTS, ...spec })

/** A planner of service `web` with so many endpoints in milano, paris and tokyo. */
function plannerOf(
  endpoints: readonly [number, number, number],
  spec?: Partial<ServiceImport['spec']>,
): BalancePlanner {
  const planner = new BalancePlanner(SERVICE_CONTEXT)
  planner.setImport(UDP_WEB(spec))
  for (const [i, id] of ['milano', 'paris', 'tokyo'].entries())
    planner.setSlice(slice('web', id, hosts(i + 1, endpoints[i] ?? 0), PORTS))
  return planner
}

async function sharesAreKept(t: Test, { start, flows }: CountedTable): Promise<void> {
  const planner = plannerOf([3, 1, 7])
  const weights = new Map([
    ['milano', 100],
    ['paris', 1000],
    ['tokyo', 8900],
  ])
  planner.setTraffic({ of: () => ({ clusterShares: weights }) })
  await start(planner)
  // The deviation of the smallest share is 0.07: more than 0.3 happens once in fifty thousand runs.
  const seen = await flows(20_000)
  t.equal(seen.length, 20_000, 'connections')
  const percent = (cluster: number): number =>
    seen.filter((one) => one.includes(` 244.${cluster}.`)).length / (seen.length / 100)
  const got = [percent(1), percent(2), percent(3)]
  for (const [i, want, most] of [
    [0, 1, 0.3],
    [1, 10, 1],
    [2, 89, 1],
  ] as const)
    t.ok(Math.abs((got[i] ?? 0) - want) <= most, `${got[i]} % of 20,000 connections, ${want} % wanted`)
  const ofTokyo = hosts(3, 7).map((host) => seen.filter((one) => one.endsWith(` ${host}`)).length)
  // Each of seven is drawn 2,543 times, with a standard deviation of 47.
  t.ok(Math.max(...ofTokyo) - Math.min(...ofTokyo) < 470, `within a cluster all alike: ${ofTokyo.join()}`)
  t.comment(`shares: ${got.join(' / ')}`)
}

async function allAreUsed(t: Test, { start, flows, nft }: CountedTable): Promise<void> {
  await start(plannerOf([0, 5000, 0]))
  const slots = await nft.elements(NFT_TABLE_NODE, 'slots')
  t.equal(new Set(slots.filter(({ key }) => key.includes(' . udp . ')).map(({ value }) => value)).size, 5000)
  const seen = new Set(await flows(5000))
  // 5,000 draws of 5,000 find 3,161, with a standard deviation of 22.
  t.ok(seen.size > 3000 && seen.size < 3320, `${seen.size} of 5,000 endpoints were called`)
}

async function clientsAreRemembered(t: Test, { start, apply, flows, nft }: CountedTable): Promise<void> {
  const planner = plannerOf([2, 2, 2], { sessionAffinity: 'ClientIP' })
  const places = async (count = 1): Promise<ReadonlyMap<string, string>> => {
    const seen = await flows(count, CLIENTS)
    t.equal(seen.length, count * CLIENTS.length, 'all connections arrive')
    const pairs = [...new Set(seen)].map((pair) => pair.split(' ') as [string, string])
    t.equal(pairs.length, CLIENTS.length, 'each client goes to one backend')
    return new Map(pairs)
  }
  const weigh = (milano: number, paris: number, tokyo: number): void => {
    const clusterShares = new Map(Object.entries({ milano, paris, tokyo }))
    planner.setTraffic({ of: () => ({ clusterShares }) })
  }
  await start(planner)
  const first = await places(3)
  t.ok(new Set(first.values()).size >= 4, 'clients are spread')
  planner.setSlice(slice('web', 'tokyo', hosts(3, 9), PORTS))
  await apply(planner)
  t.strictSame(await places(), first, 'a scale-up moves none')
  weigh(1000, 1000, 8000)
  await apply(planner)
  t.strictSame(await places(), first, 'a change of weights moves none')
  planner.setSlice(slice('web', 'paris', hosts(2, 1), PORTS))
  await apply(planner)
  const [gone = ''] = hosts(2, 2).slice(1)
  const after = await places(2)
  const others = (places: ReadonlyMap<string, string>): unknown =>
    [...places].filter(([client]) => first.get(client) !== gone).sort()
  t.strictSame(others(after), others(first), 'a backend that is gone moves its own clients alone')
  t.ok(![...after.values()].includes(gone) && [...first.values()].includes(gone), 'and these are drawn again')
  t.strictSame(await places(), after, 'once')
  weigh(1000, 0, 9000)
  await apply(planner)
  t.ok(![...(await places()).values()].some((backend) => backend.startsWith('244.2.')), 'a drained cluster has none')

  const short = { sessionAffinityConfig: { clientIP: { timeoutSeconds: 1 } } }
  planner.setImport(UDP_WEB({ sessionAffinity: 'ClientIP', ...short }))
  await apply(planner)
  await places()
  const remembered = (): Promise<readonly NftElement[]> => nft.elements(NFT_TABLE_NODE, 'affinity')
  await eventually(async () => (await remembered()).length === 0, { say: 'forgotten after the time-out' })

  const full = Array.from({ length: 65_536 }, (_, i) => {
    return { key: `198.18.${i >> 8}.${i & 255} . ${VIP} . udp . 80`, value: '244.1.1.0' }
  })
  // Elements that are no longer listed take room until the kernel collects them.
  const fill = async (): Promise<boolean> => {
    await nft.run(elementStatements(NFT_TABLE_NODE, [{ map: 'affinity', remove: [], add: full }]))
    return true
  }
  await eventually(fill, { say: 'the map is full' })
  const byHash = await places(3)
  t.ok(new Set(byHash.values()).size > 3, 'with a full map the clients are balanced, by their addresses')
}
