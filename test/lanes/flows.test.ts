/**
 * Calls of a pod and to a pod, with packets, as the kernel counts and samples them: the worker and the gateway node of
 * test/routeagent/support/datapath.ts, where the gateway node stands in for pods of paris.
 */
import { once } from 'node:events'
import t, { type Test } from 'tap'
import { CALLS_DASHBOARD } from '../../install/monitoring/calls-dashboard.ts'
import { Conntrack } from '../../kernel/nfnetlink/ctnetlink.ts'
import type { TranslatedFlow } from '../../kernel/nfnetlink/connection-table.ts'
import type { FlowPage, FlowRow } from '../../model/flow-counts.ts'
import type { KubeObject } from '../../model/objects.ts'
import { parsePrefix } from '../../model/values/ip.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { formatHostPort } from '../../runtime/flag-values.ts'
import { serveStatus } from '../../runtime/http/http-status.ts'
import {
  type Site,
  TALKER,
  buildBridge,
  buildGatewayNode,
  call,
  here,
  serving,
  settled,
  startRouteAgent,
} from '../routeagent/support/datapath.ts'
import { ownSlice } from '../routeagent/support/own-slice.ts'
import { podObject } from '../routeagent/support/pod-object.ts'
import { cluster, endpoint, gateway, membership, node, serviceImport, slice } from '../routeagent/support/site.ts'
import { eventually } from '../support/eventually.ts'
import { hasData, queriesOf } from '../support/prometheus/dashboard-queries.ts'
import { Prometheus, prometheusMissing } from '../support/prometheus/prometheus.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { type Netns, inPrivateNetns, withNetns } from '../support/netns.ts'

const WEB = '10.42.1.5'
const [PARIS, DEEP] = ['244.1.0.5', '244.1.0.6'] as const
const [FAR_IP, EMPTY_IP] = ['245.0.0.7', '245.0.0.8'] as const
const PORTS = [
  { name: 'http', protocol: 'TCP', port: 8080 },
  { name: 'closed', protocol: 'TCP', port: 8081 },
  { name: 'silent', protocol: 'TCP', port: 8082 },
  { name: 'udp', protocol: 'UDP', port: 8080 },
  { name: 'udp-closed', protocol: 'UDP', port: 8081 },
  { name: 'udp-silent', protocol: 'UDP', port: 8082 },
] as const
const OBJECTS: readonly KubeObject[] = [
  membership(),
  node('gw', '192.168.7.1', '10.42.0.0/24'),
  node('worker', '192.168.7.11', '10.42.1.0/24'),
  cluster('milano', 1, '244.0.0.0/16'),
  cluster('paris', 2, '244.1.0.0/16'),
  endpoint('milano', 'gw'),
  gateway('gw', { paris: 'up' }, 1400),
  serviceImport('far', FAR_IP, { ports: [...PORTS] }),
  slice('far', 'paris', [PARIS], [...PORTS]),
  serviceImport('empty', EMPTY_IP),
  slice('deep', 'paris', [DEEP], [...PORTS]),
  podObject('shop/web', WEB),
  ownSlice('web', [WEB], [{ name: 'http', protocol: 'TCP', port: 80 }]),
]

inPrivateNetns(t, import.meta.url, () => {
  t.test('calls are counted', { timeout: 220_000 }, (t) => withNetns((web) => withNetns((far) => story(t, web, far))))
})

async function story(t: Test, web: Netns, far: Netns): Promise<void> {
  await buildBridge([web])
  await buildGatewayNode(far)
  await serving(far.spawn(process.execPath, [TALKER, 'serve', `${PARIS}:8080`, `${DEEP}:8080`]))
  await serving(web.spawn(process.execPath, [TALKER, 'serve', `${WEB}:80`]))
  await far.exec('nft', ['add table ip t; add chain ip t in { type filter hook input priority 0; }'])
  await far.exec('nft', ['add rule ip t in tcp dport 8082 drop'])
  await far.exec('nft', ['add rule ip t in udp dport 8082 drop'])
  const site = startRouteAgent(t, OBJECTS, { countsCalls: true })
  await settled(site, /slot-0: 245.0.0.7/)
  await eventually(() => site.status.notReady().length === 0, { say: 'ready' })
  await eventually(async () => (await here('nft', 'list', 'tables')).includes('ip sealane_flows'), { say: 'a table' })
  await eventually(() => page(site).problem === undefined, { say: 'calls are sampled' })

  const to = (ns: Netns, kind: 'tcp' | 'udp', address: string, port: number, count: number) =>
    call(ns, kind, { address, port, count })
  t.equal((await to(web, 'tcp', FAR_IP, 8080, 5))[0], `${PARIS} ${WEB}`)
  t.equal((await to(web, 'udp', FAR_IP, 8080, 3))[0], `${PARIS} ${WEB}`)
  t.strictSame(await to(web, 'tcp', FAR_IP, 8081, 2), ['ECONNREFUSED', 'ECONNREFUSED'])
  t.strictSame(await to(web, 'udp', FAR_IP, 8081, 1), ['ECONNREFUSED'])
  t.strictSame(await to(web, 'tcp', FAR_IP, 8082, 1), ['timeout'])
  t.strictSame(await to(web, 'tcp', EMPTY_IP, 80, 1), ['ECONNREFUSED'])
  t.equal((await to(web, 'tcp', DEEP, 8080, 1))[0], `${DEEP} ${WEB}`)
  t.equal((await to(far, 'tcp', WEB, 80, 2))[0]?.split(' ')[0], WEB)

  const isCounted = (): boolean => rowOf(site, 'far')?.total.unanswered === 1
  await eventually(isCounted, { say: 'all are counted' })
  const row = rowOf(site, 'far')
  const { sentBytes = 0, receivedBytes = 0, ended: _, timedOut = -1, ...counts } = row?.total ?? {}
  t.match(row, { way: 'out', namespace: 'shop', cluster: 'paris' })
  t.same(counts, { opened: 12, answered: 8, refused: 3, unanswered: 1 })
  t.equal(timedOut, 0)
  await eventually(() => (page(site), rowOf(site, 'far')?.total.ended === 11), { say: 'all but one have ended' })
  t.ok(sentBytes > 9000 && receivedBytes > 500, `${sentBytes} octets sent, ${receivedBytes} received`)
  t.equal(
    row?.times.reduce((sum, n) => sum + n),
    5,
    'connect times of TCP',
  )
  t.match(rowOf(site, 'empty'), { namespace: 'shop', cluster: undefined, total: { opened: 1, refused: 1 } })
  t.match(rowOf(site, 'deep'), { namespace: 'shop', cluster: 'paris', total: { opened: 1, answered: 1 } })
  t.match(rowOf(site, 'web'), { way: 'in', namespace: undefined, cluster: 'paris', total: { opened: 2, answered: 2 } })
  t.equal(page(site).rest.total.opened, 0)
  sampled(t, page(site))
  t.match(
    await site.metrics.text(),
    /sealane_routeagent_calls_total\{[^}]*service="shop\/far",cluster="paris",outcome="refused"[^}]*\} 3/,
  )
  for (const said of [
    /sealane_routeagent_caller_calls_total\{[^}]*caller="shop",outcome="opened"[^}]*\} 14/,
    /sealane_routeagent_caller_bytes_total\{[^}]*caller="shop",way="sent"/,
    /sealane_routeagent_call_bytes_total\{[^}]*service="shop\/far",cluster="paris",way="sent"/,
    /sealane_routeagent_service_connect_seconds_count\{[^}]*service="shop\/far"[^}]*\} 5/,
    /sealane_routeagent_caller_connect_seconds_count\{[^}]*caller="shop"[^}]*\} 6/,
  ])
    t.match(await site.metrics.text(), said)

  await timeOuts(t, site, web)
  await dashboard(t, site, web)

  await here('nft', 'delete table ip sealane_flows')
  await eventually(async () => (page(site), (await here('nft', 'list', 'tables')).includes('ip sealane_flows')), {
    say: 'the table is back',
  })
  // The table may be made twice, and a call between the two does not count.
  const goesOn = async (): Promise<boolean> => {
    await to(web, 'tcp', FAR_IP, 8080, 1)
    page(site)
    return (rowOf(site, 'far')?.total.opened ?? 0) >= 15
  }
  await eventually(goesOn, { say: 'and counting goes on' })
  site.api.put(membership('leaving'))
  await site.ended
  t.notMatch(await here('nft', 'list', 'tables'), /sealane/, 'leaving leaves nothing behind')
}

/** A real Prometheus scrapes the process, and every query of the dashboard of calls has data while calls are made. */
async function dashboard(t: Test, site: Site, web: Netns): Promise<void> {
  const missing = prometheusMissing()
  if (missing !== undefined) {
    t.comment(`the dashboard of calls is not asked: ${missing}`)
    return
  }
  const { clock, metrics, status } = site
  const served = await serveStatus({ clock, metrics, status, listen: '127.0.0.1:0' })
  t.teardown(() => served.close())
  const prometheus = await Prometheus.start({
    ...{ folder: temporaryFolder(t), listen: '127.0.0.1:9090', intervalMs: 500, rules: { groups: [] } },
    jobs: [{ name: 'sealane', targets: [formatHostPort(served.address)] }],
  })
  try {
    const queries = queriesOf([CALLS_DASHBOARD])
    let empty = queries
    const given = async (): Promise<boolean> => {
      await call(web, 'tcp', { address: FAR_IP, port: 8080, count: 3 })
      await call(web, 'tcp', { address: FAR_IP, port: 8081, count: 1 })
      page(site)
      const found = await prometheus.query(empty.map(({ expr }) => expr))
      empty = empty.filter((_, i) => !hasData(found[i] ?? []))
      return empty.length === 0
    }
    // A rate is that of calls between two scrapes, so the calls of one round at least come after another round's.
    await eventually(given, { deadlineMs: 100_000, intervalMs: 500 }).catch((error: unknown) => {
      t.comment(String(error))
    })
    t.same(
      empty.map(({ panel, expr }) => `${panel}: ${expr}`),
      [],
      `each of ${queries.length} queries gives data`,
    )
    const [refused] = await prometheus.query(['sum(rate(sealane_routeagent_calls_total{outcome="refused"}[5m])) > 0'])
    t.equal(refused?.length, 1, 'and the calls are those that were made')
  } finally {
    await prometheus.stop()
  }
}

/** A connection that falls silent, and a datagram without an answer. */
async function timeOuts(t: Test, site: Site, web: Netns): Promise<void> {
  const hold = `require('node:net').connect(8080, '${FAR_IP}').on('connect', () => console.log('open'))`
  const idle = web.spawn(process.execPath, ['-e', hold])
  await once(idle.stdout!, 'data')
  // An entry that was never seen does not count.
  const runs = await site.runs('flows')
  await eventually(async () => (page(site), (await site.runs('flows')) > runs + 3), { say: 'it has been looked up' })
  t.strictSame(await call(web, 'udp', { address: FAR_IP, port: 8082, count: 1 }), ['timeout'])
  // The time-out of an open connection is days; its entry goes in the same way.
  const [table, held] = [new Conntrack({ clock: new SystemClock() }), [] as TranslatedFlow[]]
  await table.calls({ called: parsePrefix(`${FAR_IP}/32`), state: 'answered', limit: 1000 }, (one) => held.push(one))
  await table.forget(held)
  const timedOut = () => page(site).lines.filter(({ outcome }) => outcome === 'timed-out')
  // The kernel forgets the datagram after 30 s, and its entry is looked up at 10 s and at 40 s.
  const isForgotten = (): boolean => (page(site), rowOf(site, 'far')?.total.timedOut === 2)
  await eventually(isForgotten, { say: 'both are forgotten', deadlineMs: 60_000 })
  t.match(timedOut(), [{ protocol: 'tcp', port: 8080, reason: 'CallTimedOut', to: { service: 'shop/far' } }])
  t.equal(rowOf(site, 'far')?.total.ended, 13)
  t.match(
    await site.metrics.text(),
    /sealane_routeagent_call_ends_total\{[^}]*service="shop\/far",cluster="paris",end="timed_out"[^}]*\} 2/,
  )
  t.match(
    await site.metrics.text(),
    /sealane_routeagent_caller_call_ends_total\{[^}]*caller="shop",end="timed_out"[^}]*\} 2/,
  )
}

function sampled(t: Test, { lines }: FlowPage): void {
  const found = (port: number, outcome: string) =>
    lines.filter(({ port: at, outcome: one, to }) => at === port && one === outcome && to.address === PARIS)
  const answered = found(8080, 'answered')
  t.equal(answered.length, 8)
  t.match(answered[0], {
    from: { address: WEB, namespace: 'shop', pod: 'web' },
    to: { address: PARIS, service: 'shop/far', cluster: 'paris' },
  })
  t.ok(answered.every(({ ms = -1 }) => ms >= 0 && ms < 1000))
  t.match(found(8081, 'refused'), [
    { protocol: 'tcp', reason: 'CallRefused' },
    { protocol: 'tcp' },
    { protocol: 'udp' },
  ])
  t.match(found(8082, 'unanswered'), [{ protocol: 'tcp', reason: 'CallUnanswered' }])
  t.match(
    lines.find(({ to }) => to.address === EMPTY_IP),
    { outcome: 'refused', reason: 'CallWithoutEndpoint', to: { service: 'shop/empty' } },
  )
  t.match(
    lines.find(({ to }) => to.address === WEB),
    { outcome: 'answered', from: { cluster: 'paris' }, to: { service: 'shop/web' } },
  )
}

/** Time passes for the process, so that it reads at once. */
function page(site: Site): FlowPage {
  site.clock.lateMs += 5000
  return site.status.detailOf('flows')?.() as FlowPage
}

function rowOf(site: Site, service: string): FlowRow | undefined {
  return page(site).rows.find((row) => row.service === `shop/${service}`)
}
