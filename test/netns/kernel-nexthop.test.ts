import { execFileSync } from 'node:child_process'
import fc from 'fast-check'
import t from 'tap'
import { NO_ROUTING, type RoutingPlan, applyRouting } from '../../kernel/apply/apply-routing.ts'
import { Round } from '../../kernel/apply/round.ts'
import { normalGroup } from '../../kernel/route/check-next-hop.ts'
import {
  type NextHopGroup,
  formatGroup,
  formatHop,
  formatNextHopDeletion,
  memberShares,
} from '../../kernel/route/next-hop-table.ts'
import { RtnetlinkNextHops } from '../../kernel/route/rtnetlink-next-hops.ts'
import { formatRoute } from '../../kernel/route/format-ip.ts'
import { Rtnetlink } from '../../kernel/route/rtnetlink.ts'
import { NEXT_HOP_IDS_NODE } from '../../model/kernel-ids.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { anyPlan } from '../compliance/next-hop-plans.ts'
import { group, hop, hop6, id, resilient, route, wires } from '../compliance/next-hop-stage.ts'
import { nextHopTableCompliance, type NextHopNode } from '../compliance/next-hop-table.ts'
import { sorted } from '../compliance/route-table-stage.ts'
import { eventually } from '../support/eventually.ts'
import { inPrivateNetns } from '../support/netns.ts'

/** Runs one printed command without a change. */
const sh = (line: string, input = ''): string => {
  const [tool = '', ...args] = line.split(' ')
  return execFileSync(tool, args, { encoding: 'utf8', input })
}

const byId = <T extends { readonly id: number }>(items: readonly T[]): readonly T[] =>
  [...items].sort((a, b) => a.id - b.id)
const normalGroups = ({ nextHops }: RoutingPlan): readonly NextHopGroup[] => (nextHops?.groups ?? []).map(normalGroup)

inPrivateNetns(t, import.meta.url, () => {
  const make = (): NextHopNode => ({ hops: new RtnetlinkNextHops(), routes: new Rtnetlink() })
  nextHopTableCompliance(t, make)

  /** A node for one story, removed at its end. */
  const staged = async (t: { teardown: (end: () => Promise<void>) => void }): Promise<NextHopNode> => {
    const node = make()
    await wires(node)
    t.teardown(async () => {
      for (const device of ['sl-a', 'sl-b']) await node.routes.deleteLink(device)
      node.hops.close()
      node.routes.close()
    })
    return node
  }

  t.test('what the printed commands make is what the driver makes and lists', async (t) => {
    const { hops, routes } = await staged(t)
    const wanted = {
      hops: [
        hop(1, 'sl-a', { via: '192.0.2.2' }),
        hop(2, 'sl-b', { via: '203.0.113.9', onlink: true }),
        hop6(3, 'sl-a', { via: 'fe80::1', onlink: true }),
        hop6(4, 'sl-b'),
      ],
      groups: [
        resilient(10, [{ id: id(1), weight: 3 }, { id: id(2) }]),
        group(11, [{ id: id(3) }, { id: id(4), weight: 2 }]),
      ],
    }
    const over = [route('244.1.0.0/16', 10, { source: '192.0.2.1', mtu: 1370 }), route('fd01::/48', 11, { metric: 7 })]
    const snapshot = (): unknown => [
      sh('ip -d nexthop show'),
      sh('ip -d route show table 7312'),
      sh('ip -6 -d route show table 7312'),
    ]
    for (const line of [...wanted.hops.map(formatHop), ...wanted.groups.map(formatGroup), ...over.map(formatRoute)])
      sh(line)
    const byTools = snapshot()
    t.strictSame(await hops.list(), wanted, 'made by ip, read right')
    t.strictSame(await routes.routes(), over)
    for (const one of [...wanted.groups, ...wanted.hops]) sh(formatNextHopDeletion(one))
    t.strictSame([await hops.list(), await routes.routes()], [{ hops: [], groups: [] }, []])
    for (const one of wanted.hops) await hops.replaceHop(one)
    for (const one of wanted.groups) await hops.replaceGroup(one)
    for (const one of over) await routes.replaceRoute(one)
    t.strictSame(snapshot(), byTools, 'and the driver makes the same')
  })

  t.test('what others have is neither listed nor touched', async (t) => {
    const { hops } = await staged(t)
    sh(`ip nexthop add id ${id(1)} dev sl-b proto 80`)
    sh('ip nexthop add id 5 dev sl-b proto 173')
    sh('ip nexthop add id 6 blackhole')
    sh(`ip nexthop add id ${id(2)} blackhole proto 173`)
    t.strictSame(await hops.list(), { hops: [], groups: [] })
    await t.rejects(hops.replaceHop(hop(1, 'sl-a')), { code: 'EEXIST', message: /protocol number 80 uses this id/ })
    await t.rejects(hops.remove(id(1)), { code: 'ENOENT' })
    await t.rejects(hops.buckets(id(1)), { code: 'ENOENT' })
    t.match(sh('ip nexthop show'), `id ${id(1)} dev sl-b`)
    for (const one of [5, 6, id(1), id(2)]) sh(`ip nexthop del id ${one}`)
  })

  t.test('the main table, where routes of others name ids', async (t) => {
    const { routes } = await staged(t)
    sh('ip nexthop add id 5 via 192.0.2.9 dev sl-a')
    sh('ip nexthop add id 6 dev sl-b')
    sh('ip nexthop add id 7 group 5/6')
    sh('ip route add 10.42.6.0/24 nhid 7')
    const listed = async (): Promise<unknown> =>
      (await routes.mainRoutes()).filter(({ destination }) => destination === '10.42.6.0/24')
    const known = { destination: '10.42.6.0/24', type: 'unicast' }
    t.strictSame(await listed(), [{ ...known, device: 'sl-a', via: '192.0.2.9' }])
    sh('sysctl -qw net.ipv4.nexthop_compat_mode=0')
    t.strictSame(await listed(), [known], 'the kernel does not say where it leads')
    sh('sysctl -qw net.ipv4.nexthop_compat_mode=1')
    for (const one of [7, 6, 5]) sh(`ip nexthop del id ${one}`)
  })

  t.test('a device that loses its carrier takes its hops along', async (t) => {
    const { hops } = await staged(t)
    sh('ip link add sl-v type veth peer name sl-w')
    t.teardown(() => void sh('ip link del sl-v'))
    sh('ip link set sl-v up')
    await t.rejects(hops.replaceHop(hop(1, 'sl-v')), { code: 'ENETDOWN' }, 'its other end is down')
    sh('ip link set sl-w up')
    await hops.replaceHop(hop(1, 'sl-v'))
    let calls = 0
    hops.onChange(() => (calls += 1))
    sh('ip link set sl-w down')
    await eventually(() => calls > 0, { say: 'the watch reports the link' })
    await eventually(async () => (await hops.list()).hops.length === 0, { say: 'the hop is gone' })
  })

  t.test('which flows move', async (t) => {
    const { hops, routes } = await staged(t)
    sh('sysctl -qw net.ipv4.fib_multipath_hash_policy=1')
    const FLOWS = 200
    const asked = Array.from(
      { length: FLOWS },
      (_, flow) => `route get 244.1.0.7 ipproto udp sport ${10_000 + flow} dport 53\n`,
    ).join('')
    // A route lookup for a flow keeps its bucket busy, as its packets do. A bucket that was moved counts as idle if its
    // last use was in the same tick (nh_res_bucket_idle_point() in net/ipv4/nexthop.c), so another process looks each
    // flow up again.
    const ask = (): string => sh('ip -o -batch -', asked)
    const ways = (): readonly string[] => {
      ask()
      return [...ask().matchAll(/dev (\S+)/g)].map(([, device = '']) => device)
    }
    const moved = (before: readonly string[], after: readonly string[]): readonly string[] =>
      [...new Set(before.filter((device, flow) => device !== after[flow]))].sort()
    for (const device of ['sl-c', 'sl-d']) sh(`ip link add ${device} type bridge`)
    t.teardown(() => ['sl-c', 'sl-d'].forEach((device) => sh(`ip link del ${device}`)))
    for (const device of ['sl-c', 'sl-d']) sh(`ip link set ${device} up`)
    for (const [number, device] of ['sl-b', 'sl-c', 'sl-d'].entries()) await hops.replaceHop(hop(number + 1, device))
    const all = [{ id: id(1) }, { id: id(2) }, { id: id(3) }]
    const rest = all.slice(1)
    await routes.addRule({ priority: 7312, table: 7312 })
    t.teardown(() => void sh('ip rule del priority 7312'))

    await hops.replaceGroup(group(11, all))
    await routes.replaceRoute(route('244.1.0.0/16', 11))
    const plain = ways()
    t.equal(plain.length, FLOWS)
    await hops.replaceGroup(group(11, rest))
    t.same(moved(plain, ways()), ['sl-b', 'sl-c'], 'plain: also flows of a member that stays')

    const slow = { idleTimerMs: 60_000, unbalancedTimerMs: 0 }
    await hops.replaceGroup(resilient(10, all, slow))
    await routes.replaceRoute(route('244.1.0.0/16', 10))
    const before = ways()
    await hops.replaceGroup(resilient(10, rest, slow))
    const without = ways()
    t.same([moved(before, without), without.includes('sl-b')], [['sl-b'], false], 'resilient: its own flows alone')
    await hops.replaceGroup(resilient(10, all, slow))
    t.same(moved(without, ways()), [], 'it is back, and busy flows stay where they are')
    await hops.replaceGroup(resilient(10, all, { ...slow, unbalancedTimerMs: 500 }))
    await eventually(() => ways().includes('sl-b'), { say: 'the unbalanced timer gives it some' })
    t.ok(memberShares(await hops.buckets(id(10))).every(({ buckets }) => buckets >= 10))
    const settled = ways()
    sh('ip link set sl-d down')
    t.same(moved(settled, ways()), ['sl-d'], 'the link goes: its own flows alone')
    await routes.deleteRoute(route('244.1.0.0/16', 10))
  })

  t.test('from any plan to any other in one round, with nothing refused', async (t) => {
    const { hops, routes } = await staged(t)
    const scope = { tables: new Set([7312]), nextHops: { table: hops, ids: NEXT_HOP_IDS_NODE } }
    const apply = async (plan: RoutingPlan): Promise<Round> => {
      const round = new Round({ logger: new CapturingLogger() })
      await applyRouting(routes, plan, scope, round, new AbortController().signal)
      return round
    }
    await fc.assert(
      fc.asyncProperty(anyPlan(['sl-a', 'sl-b']), async (plan) => {
        t.equal((await apply(plan)).failure, undefined)
        const { nextHops } = plan
        t.strictSame(await hops.list(), { hops: byId(nextHops?.hops ?? []), groups: byId(normalGroups(plan)) })
        t.strictSame(sorted(await routes.routes()), sorted(plan.routes))
        t.equal((await apply(plan)).changes, 0, 'and then there is nothing to do')
      }),
      { numRuns: 60 },
    )
    await apply(NO_ROUTING)
    t.strictSame([await hops.list(), await routes.routes()], [{ hops: [], groups: [] }, []])
  })

  t.test('500 hops and 200 groups are listed whole', async (t) => {
    const { hops } = await staged(t)
    for (let i = 0; i < 500; i++) await hops.replaceHop(hop(i, 'sl-b'))
    for (let i = 0; i < 200; i++) await hops.replaceGroup(group(1000 + i, [{ id: id(i) }, { id: id(i + 1) }]))
    const found = await hops.list()
    t.same([found.hops.length, found.groups.length], [500, 200])
    await hops.replaceGroup(resilient(2000, [{ id: id(1) }], { buckets: 65_535 }))
    t.equal((await hops.buckets(id(2000))).length, 65_535)
  })

  t.test('a closed driver says so', async (t) => {
    const hops = new RtnetlinkNextHops()
    hops.onChange(() => undefined)
    hops.close()
    hops.close()
    await t.rejects(hops.list(), { code: 'EINTR' })
  })
})
