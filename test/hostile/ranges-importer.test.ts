/**
 * Ranges that should never have been published, at clusters that receive them all the same: real processes and a real
 * kernel.
 */
import t from 'tap'
import { planCandidates } from '../../gateway/reach/plan-candidates.ts'
import { planLanes } from '../gateway/support/wireguard-plans.ts'
import type { Cluster } from '../../model/objects.ts'
import { SiteFolder } from '../cli/site-folder.ts'
import { cluster, endpoint, world } from '../gateway/support/worlds.ts'
import { SLOWNESS, eventually } from '../support/eventually.ts'
import { type Netns, netnsMissing, withNetns } from '../support/netns.ts'
import { attack } from './support/attack.ts'
import { BROKER, HubBroker, SEALANE } from './support/hub-broker.ts'
import { NetnsSite } from './support/netns-site.ts'

const AROUND_BROKER = '203.0.113.0/28'

await attack('range-gateway-of-another', (t) => {
  const own = cluster('milano', 1, '10.42.0.0/16')
  const paris = cluster('paris', 2, '10.44.0.0/16')
  const reported = ['public 198.51.100.20:4500', 'private 192.168.9.2:4500']
  const called = (
    ...others: Cluster[]
  ): { readonly called: readonly string[]; readonly hidden: boolean | undefined } => {
    const endpoints = [endpoint('paris', 'gw', 0, reported), endpoint('mallory', 'gw', 0, ['public 203.0.113.7:4500'])]
    const { lanes } = planLanes(world({ own, clusters: [own, paris, ...others], endpoints }))
    const peer = lanes[0]?.links.find((one) => one.cluster === 'paris')
    return { called: peer?.candidates.map(({ address }) => address) ?? [], hidden: peer?.hidden }
  }
  const before = called()
  t.same(before, { called: ['198.51.100.20', '192.168.9.2'], hidden: false })
  t.same(called(cluster('mallory', 3, ['198.51.100.0/24', '192.168.0.0/16'])), before)
  const seen = { clusters: [own, paris, cluster('mallory', 3, '198.51.100.0/24')], observedAddress: '198.51.100.9' }
  t.match(
    planCandidates(world({ own, ...seen }), { lane: 0, port: 4500 }).map(({ kind, address }) => `${kind} ${address}`),
    ['private 192.0.2.10', 'observed 198.51.100.9'],
    'and this cluster tells its own address that the broker saw',
  )
  return Promise.resolve()
})

// The test starts whole sites, as users do.
t.setTimeout(170_000 * SLOWNESS)
const skip = netnsMissing()
if (skip !== undefined) t.test('in network namespaces', { skip }, () => undefined)
else await withNetns((hub) => withNetns((one) => withNetns((two) => story(hub, [one, two]))))

async function story(hub: Netns, namespaces: readonly Netns[]): Promise<void> {
  await hub.exec('sysctl', ['-qw', 'net.ipv4.ip_forward=1'])
  const broker = new HubBroker(t, hub)
  await broker.start()
  const sites = namespaces.map((ns, i) => new NetnsSite(t, ['milano', 'paris'][i] ?? '', ns, i + 1))
  await Promise.all(
    sites.map(async (site) => {
      await site.wire(hub)
      await site.join(await broker.token())
    }),
  )
  const mallory = { podCIDRs: [AROUND_BROKER], serviceCIDRs: [], labels: {}, globalCIDRs: [] }
  try {
    await attack('range-correction-arrives', async (t) => {
      await joinAs(broker, hub, 'mallory', [AROUND_BROKER])
      for (const site of sites) {
        await site.takeInAsBefore({ ...mallory, id: 'mallory', index: 3 })
        t.notOk(await site.hearsBroker(), `${site.id} is cut off: this is what the attack did`)
        site.start()
      }
      for (const site of sites) {
        await eventually(() => site.hearsBroker(), {
          deadlineMs: 20_000,
          say: `${site.id} hears the broker: ${site.said}`,
        })
        const corrected = (known: string[]): boolean => known.includes('mallory 244.0.0.0/28')
        await eventually(async () => corrected(await site.known()), {
          deadlineMs: 20_000,
          say: `${site.id} is corrected`,
        })
        t.notMatch(await site.routes(), AROUND_BROKER)
        t.match(site.said, `${AROUND_BROKER} holds ${BROKER}, the broker`, `${site.id} says why`)
      }
      await broker.store((store) => store.evict({ cluster: 'mallory', force: true }))
      for (const site of sites) {
        const gone = async (): Promise<boolean> => !(await site.known()).some((line) => line.startsWith('mallory'))
        await eventually(gone, { deadlineMs: 20_000, say: `${site.id} hears of the eviction` })
        t.ok(await site.hearsBroker(), `${site.id} hears the broker still`)
      }
    })
    await attack('range-importer-refuses', async (t) => {
      const bad = [
        AROUND_BROKER,
        '192.168.1.0/28',
        '192.168.1.1/32',
        '192.168.1.128/28',
        '192.168.0.0/16',
        '9.9.9.0/24',
        'fd00:1::/80',
        'fd00:1:0:0:1::/80',
      ]
      const specs = bad.map((range, i) => {
        const podCIDRs = range.includes(':') ? [`10.${90 + i}.0.0/16`, range] : [range]
        return { ...mallory, podCIDRs, id: `bad${i}`, index: 20 + i }
      })
      await broker.report(...specs, { ...mallory, podCIDRs: ['10.77.0.0/16'], id: 'honest', index: 40 })
      const [milano] = sites
      if (milano === undefined) throw new Error('no site')
      // The honest cluster was reported together with the others, so once it is routed, all of them have been checked.
      const arrived = async (): Promise<boolean> => (await milano.routes()).includes('10.77.0.0/16')
      await eventually(arrived, { deadlineMs: 20_000, say: `an honest cluster is routed: ${milano.said}` })
      const known = await milano.known()
      t.same(
        known.filter((line) => line.startsWith('bad')),
        [],
      )
      const routes = await milano.routes()
      for (const range of bad) t.notOk(routes.includes(range.replace('/32', '')), `${range} is not routed`)
      for (const reason of ['the broker', 'a default gateway', 'a name server', 'a network of this node'])
        t.match(milano.said, reason, 'each with its reason')
      t.ok(await milano.hearsBroker())
      const reported = ['9.9.9.9/32', '192.168.1.0/24', '203.0.113.2/32', 'fd00:1::/64']
      const heard = async (): Promise<boolean> => (await broker.needsOf('milano')).join() === reported.join()
      await eventually(heard, { deadlineMs: 20_000, say: 'the broker is told what its machines need' })
    })
  } finally {
    for (const one of [...sites, broker]) one.stop()
  }
}

/** Joins a member that does nothing else; it calls from the hub. */
async function joinAs(broker: HubBroker, hub: Netns, clusterId: string, podCIDRs: string[]): Promise<void> {
  const folder = new SiteFolder(t, clusterId)
  folder.write('site.yaml', folder.read('site.yaml').replace('[10.42.0.0/16]', JSON.stringify(podCIDRs)))
  const args = ['join', '--site', folder.file, '--token-file', '-']
  await hub.exec(SEALANE, args, { input: await broker.token(...podCIDRs), timeoutMs: 30_000 * SLOWNESS })
}
