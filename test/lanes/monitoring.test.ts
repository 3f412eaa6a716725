/**
 * Two sites and a broker, as users run them, and a real Prometheus that scrapes them all. Every query of every
 * dashboard but that of calls returns data; alerts are quiet while all is well, and fire when a site loses its power and the broker ends.
 * A third site would show nothing more here, and each takes seconds of processor time to start.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { ALL_DASHBOARDS } from '../../install/monitoring/all-dashboards.ts'
import { CALLS_DASHBOARD } from '../../install/monitoring/calls-dashboard.ts'
import { ruleFile } from '../../install/monitoring/rule-file.ts'
import { eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { hasData, queriesOf } from '../support/prometheus/dashboard-queries.ts'
import { Prometheus, prometheusMissing } from '../support/prometheus/prometheus.ts'
import { quickened } from '../support/prometheus/quickened.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { type Machine, type PlainSite, type SitePlan, withPlainSites } from '../netns/support/plain-sites.ts'

t.setTimeout(170_000)

const PAGE = 9471
const LISTEN = '127.0.0.1:9090'
/** A minute of the rules; targets are scraped and rules evaluated at this interval. */
const MS_PER_MINUTE = 500
const LONG = { deadlineMs: 60_000, intervalMs: 1000 }

function sitePlan(name: string, uplinks: string, pods: string): SitePlan {
  const spec =
    `  gateways: [{ node: gw1, lane: 0, publicAddress: ${uplinks}.11.2 }]\n` + `  dns: { listen: ['${pods}.1.1:53'] }\n`
  return { name, uplinks, pods, nodes: ['gw1'], spec }
}

const PLANS = [sitePlan('milano', '192.0', '10.42'), sitePlan('tokyo', '198.18', '10.62')]

t.test('dashboards and alerts', { skip: netnsMissing() ?? prometheusMissing() ?? false }, async (t) => {
  const folder = temporaryFolder(t)
  await withPlainSites(folder, PLANS, async (sites, { broker }) => {
    const [milano, tokyo] = sites
    if (milano === undefined || tokyo === undefined) throw new Error('no sites')
    for (const site of sites) {
      const machine = site.machine('gw1')
      site.export(`web-${site.plan.name}`, machine)
      const pages = ['--status-listen', `:${PAGE}`, '--status-listen', `${machine.address}:${PAGE}`]
      machine.start(['up', '--site', site.file, '--node', 'gw1', ...pages])
    }
    // The Service does not exist.
    const ghost =
      'apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceExport\nmetadata: { name: ghost, namespace: shop }\n'
    writeFileSync(join(milano.folder, 'objects', 'ghost.yaml'), ghost)
    const prometheus = await Prometheus.start({
      folder: temporaryFolder(t),
      listen: LISTEN,
      within: ['ip', 'netns', 'exec', broker.netns.name],
      intervalMs: MS_PER_MINUTE,
      rules: quickened(ruleFile(), MS_PER_MINUTE),
      jobs: [
        { name: 'sealane-broker', targets: ['127.0.0.1:9470'] },
        { name: 'sealane', targets: sites.map((site) => `${site.machine('gw1').address}:${PAGE}`) },
      ],
    })
    try {
      for (const site of sites)
        await eventually(() => site.lanes('gw1') === '0 (1 up)', {
          ...LONG,
          say: `${site.plan.name} reaches the other`,
        })
      await dashboards(t, prometheus, sites)
      await alerts(t, prometheus, { tokyo, broker })
    } catch (error) {
      t.comment(prometheus.said, ...sites.map((site) => site.said()))
      throw error
    } finally {
      await prometheus.stop()
    }
  })
})

/**
 * Meanwhile names are queried, packets are dropped, and exports come and go, since a metric without events has no data,
 * and events before the first scrape have no rate.
 */
async function dashboards(t: Test, prometheus: Prometheus, sites: readonly PlainSite[]): Promise<void> {
  // No pod calls here: lanes/flows asks the queries of the dashboard of calls.
  const queries = queriesOf(ALL_DASHBOARDS.filter(({ uid }) => uid !== CALLS_DASHBOARD.uid))
  let empty = queries
  let rounds = 0
  const given = async (): Promise<boolean> => {
    rounds += 1
    for (const site of sites) {
      if (rounds % 2 === 1) site.export('more', site.machine('gw1'))
      else site.write('more', undefined)
    }
    await Promise.all(sites.map((site) => traffic(site.machine('gw1'), sites)))
    const found = await prometheus.query(empty.map(({ expr }) => expr))
    empty = empty.filter((_, i) => !hasData(found[i] ?? []))
    return empty.length === 0
  }
  await eventually(given, LONG).catch(() => undefined)
  for (const site of sites) site.write('more', undefined)
  t.same(
    empty.map(({ panel, expr }) => `${panel}: ${expr}`),
    [],
    'every query gives data',
  )
  t.ok(queries.length > 60, `${queries.length} queries`)
}

/** One answer in 64 is timed. */
const NAMES = Array.from(
  { length: 100 },
  (_, i) => `web-${['milano', 'tokyo', 'ghost'][i % 3]}.shop.svc.clusterset.local`,
)

async function traffic({ netns, podAddress }: Machine, sites: readonly PlainSite[]): Promise<void> {
  await netns.tryExec('dig', [`@${podAddress}`, '+tries=1', '+time=1', '+short', ...NAMES])
  for (const other of sites.map((site) => site.machine('gw1')).filter((one) => one.podAddress !== podAddress)) {
    const from = ['-s', '--max-time', '0.1', '--interface', podAddress]
    await netns.tryExec('curl', [...from, `http://${other.podAddress}:7999/`])
  }
}

async function alerts(
  t: Test,
  prometheus: Prometheus,
  { tokyo, broker }: { readonly tokyo: PlainSite; readonly broker: Machine },
): Promise<void> {
  const firing = async (): Promise<readonly string[]> => {
    const all = (await prometheus.alerts()).filter(({ state }) => state === 'firing')
    return [...new Set(all.map(({ labels }) => labels['alertname'] ?? ''))].sort()
  }
  let last: readonly string[] = []
  const fire = async (say: string, isSo: (firing: readonly string[]) => boolean): Promise<void> => {
    const looked = async (): Promise<boolean> => {
      last = await firing()
      return isSo(last)
    }
    await eventually(looked, LONG).then(
      () => t.pass(say),
      () => t.fail(`${say}; these fire: ${last.join(', ')}`),
    )
  }
  const all = (names: readonly string[]) => (firing: readonly string[]) => names.every((name) => firing.includes(name))
  // At the start links are down and the broker is not followed yet; with minutes of half a second, that fires alerts.
  await fire('only the export without a Service', (firing) => firing.join(' ') === 'SealaneExportsFailed')

  await Promise.all([tokyo.machine('gw1').lose(), broker.stop()])
  const lost = ['SealaneClusterUnreachable', 'SealaneLinkDown', 'SealaneMemberDown', 'SealanePartDown']
  const unheard = ['SealanePublishNotLive', 'SealaneReplicaNotLive']
  await fire('a lost site and a broker that ended', all([...lost, ...unheard]))
}
