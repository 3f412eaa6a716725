/**
 * What an operator of three clusters learns without visiting the others: which clusters import what is exported here,
 * and why others do not; the state of every member, at the broker; metrics of the nodes' own parts, scraped from a pod;
 * and one file for support.
 */
import type { Test } from 'tap'
import type { ServiceExport } from '../../../model/objects.ts'
import { sealaneVersion } from '../../../runtime/version.ts'
import { eventually } from '../../support/eventually.ts'
import { type Site, helloService, inRequestPod, openForCalls, readyPods } from '../support/callers.ts'
import type { JoinedClusters } from '../support/joined-clusters.ts'
import { gatherStory } from '../support/gather-story.ts'
import type { KubeObject } from '../support/kube-request.ts'
import { watchRefusals } from '../support/pod-logs.ts'
import { sealane } from '../support/sealane-command.ts'

const EXPORT = '/apis/multicluster.x-k8s.io/v1beta1/namespaces/store/serviceexports/web'

export async function exporterInformed(t: Test, world: JoinedClusters): Promise<void> {
  const { sites, kubeconfig, directory } = world
  const [c1, c2, c3] = sites
  if (c1 === undefined || c2 === undefined || c3 === undefined) throw new Error('there are fewer than three clusters')
  const refusals = await watchRefusals(sites, 'sealane-system')
  await t.test('who imports a service', (t) => exporterIsInformed(t, c1, c2, c3))
  await exportNothing(c1)
  await t.test('how every member does', (t) => membersShown(t, kubeconfig))
  await t.test('metrics of gateway and routeagent', (t) => scraped(t, c1, '192.0.2.11'))
  const bundled = { site: c1, node: 'c1n1', serviceExport: EXPORT, kubeconfig, directory }
  await t.test('one file for who looks elsewhere', (t) => gatherStory(t, bundled))
  t.strictSame(await refusals(), [], 'nothing was refused')
}

async function exporterIsInformed(t: Test, c1: Site, c2: Site, c3: Site): Promise<void> {
  for (const site of [c1, c2]) await addNamespace(site)
  await c1.api.apply('/api/v1/namespaces/store/services/web', helloService('web'))
  const at = ['--kubeconfig', c1.kubeconfig]
  await sealane(['export', 'web', '--namespace', 'store', ...at])

  await reported(t, c1, 'True/Imported: imported by c2; namespace store is missing in c3')
  const shown = await sealane(['show', 'exports', ...at])
  t.match(
    shown.stdout,
    /^store +web +True \(Valid\).*True \(Imported\) +imported by c2; namespace store is missing in c3$/m,
  )

  await addNamespace(c3)
  await reported(t, c1, 'True/Imported: imported by c2, c3')
  for (const site of [c2, c3]) await site.api.raw('DELETE', '/api/v1/namespaces/store')
  await reported(t, c1, 'False/NotImported: no member imports it: namespace store is missing in c2, c3')
  await eventually(
    async () => {
      const events = await c1.api.list('/apis/events.k8s.io/v1/namespaces/store/events')
      const reasons = events.map(({ reason, type }) => `${String(type)} ${String(reason)}`)
      if (reasons.includes('Warning NotImported')) return true
      throw new Error(reasons.join(', '))
    },
    { deadlineMs: 30_000, intervalMs: 200, say: 'an Event says so' },
  )
  // The other clusters may export as well: c1 is not special.
  await addNamespace(c2)
  await c2.api.apply('/api/v1/namespaces/store/services/web', helloService('web'))
  await sealane(['export', 'web', '--namespace', 'store', '--kubeconfig', c2.kubeconfig])
  await reported(t, c2, 'True/Imported: imported by c1; namespace store is missing in c3')
}

async function addNamespace({ api }: Site): Promise<void> {
  const path = '/api/v1/namespaces/store'
  // A terminating namespace takes a while, and objects that are applied to it end with it.
  await eventually(async () => (await api.find(path))?.metadata['deletionTimestamp'] === undefined, {
    deadlineMs: 60_000,
    intervalMs: 200,
    say: 'no namespace store is ending',
  })
  await api.apply(path, { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'store' } })
}

async function reported(t: Test, { name, api }: Site, want: string): Promise<void> {
  let last = 'nothing'
  await eventually(
    async () => {
      const { status } = await api.get<ServiceExport & KubeObject>(EXPORT)
      const found = status?.conditions?.find(({ type }) => type === 'sealane.io/Imported')
      last = found === undefined ? 'nothing' : `${found.status}/${found.reason}: ${found.message}`
      return last === want
    },
    { deadlineMs: 60_000, intervalMs: 200 },
  ).catch(() => undefined)
  t.equal(last, want, `${name} is told`)
}

/** The commands of docs/operations.md: the broker is on c1, whose context is named. */
async function membersShown(t: Test, kubeconfig: string): Promise<void> {
  const ask = async (...words: string[]): Promise<string> =>
    (await sealane(['members', '--context', 'c1', ...words], { KUBECONFIG: kubeconfig })).stdout
  const row = (id: string, exports: string, problems = '\\S.*') =>
    new RegExp(`^${id} +in contact +${sealaneVersion().replaceAll('.', '\\.')} +2/2 +${exports} +${problems}Z$`, 'm')
  const rows = [row('c1', '2 \\(1 failed\\)', '.*NoService x1 \\(degraded\\).*'), row('c2', '1'), row('c3', '0')]
  let table = ''
  await eventually(
    async () => {
      table = await ask()
      return rows.every((one) => one.test(table))
    },
    { deadlineMs: 60_000, intervalMs: 500 },
  ).catch(() => undefined)
  for (const one of rows) t.match(table, one)
  t.match(table, /^CLUSTER +STATE +VERSIONS +LANES +EXPORTS +PROBLEMS +LAST HEARD$/m)
  const { items } = JSON.parse(await ask('-o', 'json')) as { readonly items: readonly { readonly id: string }[] }
  t.strictSame(items.map(({ id }) => id).sort(), ['c1', 'c2', 'c3'], 'each once')
  t.comment(table)
}

/** From here on one thing is wrong: an exported Service does not exist. */
async function exportNothing({ api }: Site): Promise<void> {
  const path = EXPORT.replace(/web$/, 'nothing')
  const metadata = { name: 'nothing' }
  await api.apply(path, { apiVersion: 'multicluster.x-k8s.io/v1beta1', kind: 'ServiceExport', metadata })
  await eventually(
    async () => {
      const { status } = await api.get<ServiceExport & KubeObject>(path)
      return status?.conditions?.some(({ type, status }) => type === 'Valid' && status === 'False')
    },
    { deadlineMs: 60_000, intervalMs: 200, say: 'it is not valid' },
  )
}

async function scraped(t: Test, site: Site, node: string): Promise<void> {
  await openForCalls(site, 'monitoring')
  await readyPods(site, 'monitoring', 1)
  const ask = (port: number, path: string): Promise<string> =>
    inRequestPod(site, 'monitoring', `printf 'GET ${path} HTTP/1.0\\r\\n\\r\\n' | nc -w 5 ${node} ${port}`)
  for (const [part, port, metric] of [
    ['gateway', 9472, 'sealane_gateway_'],
    ['routeagent', 9473, 'sealane_routeagent_'],
  ] as const) {
    const metrics = await ask(port, '/metrics')
    t.match(metrics, /^HTTP\/1\.1 200 OK/, part)
    t.match(metrics, new RegExp(`^${metric}`, 'm'), `${part}: its metrics`)
    t.match(await ask(port, '/healthz'), /^HTTP\/1\.1 200 OK/, `${part}: health`)
    const plan = await ask(port, '/debug/plan')
    t.match(plan, /^HTTP\/1\.1 403 /, `${part}: no plan`)
    t.notMatch(plan, /192\.0\.2\.2|peer [A-Za-z0-9+/]{43}=/, `${part}: nor any of it`)
  }
}
