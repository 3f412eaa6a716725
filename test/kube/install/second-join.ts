/**
 * A second join changes only what was requested. One cluster was joined by the command line, and then changed by hand,
 * by kubectl and by Helm; the other was installed by Helm before it joined.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import type { Test } from 'tap'
import { parseAllDocuments } from 'yaml'
import { formatYaml } from '../../../kubeapi/yaml.ts'
import { DNS_CONTAINER_PORT } from '../../../install/values/names.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { pathOf } from '../support/object-path.ts'
import {
  IMAGE,
  type InstallTarget,
  SYSTEM,
  type World,
  changedSince,
  changedWith,
  joinWords,
  noRefusals,
  settledObjects,
  tokenFile,
} from '../support/installing-world.ts'
import { eventually } from '../../support/eventually.ts'
import type { Json, KubeObject } from '../support/kube-request.ts'
import { goDownload } from '../support/go-download.ts'
import { MANIFESTS } from '../support/installed-objects.ts'
import {
  helmInstall,
  helmUpgrade,
  kubectlApply,
  kubectlApplyFiles,
  renderChart,
  renderKustomization,
} from '../support/other-hands.ts'
import { type CommandResult, sealane, trySealane } from '../support/sealane-command.ts'
import { SEALANE_IMAGE } from '../support/two-clusters.ts'

export async function secondJoin(t: Test, world: World): Promise<void> {
  const { hub, member } = world
  await sealane(['broker', 'deploy', ...hub.at, '--service-type', 'NodePort', ...IMAGE])
  await sealane([...joinWords(hub), '--token-file', await tokenFile(world)])
  await t.test('nothing was asked: nothing is changed, and no flag is needed', (t) => nothingAsked(t, hub))
  await t.test('what a hand has changed stays', (t) => byHand(t, hub))
  await t.test('what is asked is shown before it is done, and only that is done', (t) => asked(t, hub))
  await t.test('kubectl apply --server-side of what join prints', (t) => byKubectl(t, hub))
  await t.test('kubectl apply -k of a kustomization of ours', (t) => byKustomize(t, hub))
  await t.test('Helm adopts what join has installed, and join leaves it to Helm', (t) => helmAfter(t, hub))
  await t.test('a join after the chart', (t) => helmBefore(t, world, member))
  await noRefusals(t, hub, member)
}

const again = ({ at }: InstallTarget, ...more: readonly string[]): Promise<CommandResult> =>
  sealane(['join', ...at, '--yes', ...more])

async function nothingAsked(t: Test, place: InstallTarget): Promise<void> {
  const before = await settledObjects(place)
  const managers = await managersOf(place)
  const done = await again(place)
  t.match(done.stderr, /^c1 is already a member: repair of missing or changed objects; image localhost\/sealane:test$/m)
  t.match(done.stderr, /^no changes: the installation is up to date$/m)
  t.match(done.stdout, /^c1 has joined with gateway c1n1/)
  t.strictSame(await changedSince(place, before), [], 'nothing is changed')
  t.strictSame(await managersOf(place), managers, 'nobody owns more than before')
  t.comment(`a second join: ${(done.ms / 1000).toFixed(1)} s`)
}

const WORKLOADS = ['deployments/sealane-agent', 'deployments/sealane-dns', 'daemonsets/sealane-gateway'] as const
const ALL_WORKLOADS = [...WORKLOADS, 'daemonsets/sealane-routeagent'] as const
const workload = (name: (typeof ALL_WORKLOADS)[number]): string => `/apis/apps/v1/namespaces/${SYSTEM}/${name}`

interface Managed extends KubeObject {
  readonly metadata: KubeObject['metadata'] & {
    readonly managedFields?: readonly { readonly manager: string; readonly operation: string }[]
  }
}

/** The field managers of each workload, without controllers. */
async function managersOf({ site }: InstallTarget): Promise<readonly string[]> {
  const lines = await Promise.all(
    ALL_WORKLOADS.map(async (name) => {
      const { metadata } = await site.api.get<Managed>(workload(name))
      const writers = (metadata.managedFields ?? []).map(({ manager, operation }) => `${manager} ${operation}`)
      return `${name}: ${[...new Set(writers)]
        .filter((one) => !one.startsWith('kube-'))
        .sort()
        .join(', ')}`
    }),
  )
  return lines
}

interface Workload extends KubeObject {
  readonly spec: {
    readonly replicas?: number
    readonly template: {
      readonly spec: {
        readonly nodeSelector?: Json
        readonly imagePullSecrets?: readonly Json[]
        readonly containers: readonly (Json & { readonly args: readonly string[]; readonly image: string })[]
      }
    }
  }
}

const BINDING = '/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/sealane-about-clusterset'

async function byHand(t: Test, place: InstallTarget): Promise<void> {
  const { api } = place.site
  const container = (name: string, more: Json): Json => ({
    spec: { template: { spec: { containers: [{ name, ...more }] } } },
  })
  const patch = async (name: (typeof ALL_WORKLOADS)[number], body: Json): Promise<void> => {
    const contentType = 'application/strategic-merge-patch+json'
    const { status, text } = await api.raw('PATCH', `${workload(name)}?fieldManager=kubectl-edit`, {
      body,
      contentType,
    })
    t.equal(status, 200, text.slice(0, 200))
  }
  const agent = await api.get<Workload>(workload('deployments/sealane-agent'))
  const args = agent.spec.template.spec.containers[0]?.args.map((word) => (word === 'info' ? 'debug' : word))
  await patch('deployments/sealane-agent', { ...container('agent', { args }), metadata: { labels: { team: 'net' } } })
  await patch('deployments/sealane-agent', {
    spec: { replicas: 1, template: { spec: { imagePullSecrets: [{ name: 'registry' }] } } },
  })
  await patch(
    'deployments/sealane-dns',
    container('dns', { resources: { requests: { cpu: '60m' } }, imagePullPolicy: 'Never' }),
  )
  // Not of the gateways: their node selector rightly changes the agent, which chooses their nodes.
  await patch('deployments/sealane-dns', {
    spec: { template: { spec: { nodeSelector: { 'kubernetes.io/os': 'linux' } } } },
  })
  await patch('daemonsets/sealane-gateway', { spec: { template: { metadata: { annotations: { note: 'ours' } } } } })
  await patch('daemonsets/sealane-routeagent', { spec: { template: { metadata: { annotations: { note: 'ours' } } } } })
  const registry = { apiVersion: 'v1', kind: 'Secret', metadata: { name: 'registry' }, type: 'Opaque' }
  await api.apply(`/api/v1/namespaces/${SYSTEM}/secrets/registry`, registry)
  await api.delete(BINDING)
  await rolledOut(place)
  const before = await settledObjects(place)
  const done = await again(place)
  t.match(
    done.stderr,
    /note: ValidatingAdmissionPolicyBinding sealane-about-clusterset was deleted and is not restored/,
  )
  t.match(done.stderr, /^no changes: the installation is up to date$/m)
  t.strictSame(await changedSince(place, before), [], 'nothing is changed')
}

interface WorkloadStatus extends KubeObject {
  readonly status?: {
    readonly observedGeneration?: number
    readonly updatedReplicas?: number
    readonly readyReplicas?: number
    readonly replicas?: number
    readonly desiredNumberScheduled?: number
    readonly updatedNumberScheduled?: number
    readonly numberReady?: number
  }
}

async function rolledOut({ site }: InstallTarget): Promise<void> {
  await eventually(
    async () => {
      for (const name of ALL_WORKLOADS) {
        const { metadata, status = {} } = await site.api.get<WorkloadStatus>(workload(name))
        const { replicas, updatedReplicas, readyReplicas } = status
        const { desiredNumberScheduled, updatedNumberScheduled, numberReady } = status
        const numbers = name.startsWith('deployments')
          ? [replicas, updatedReplicas, readyReplicas]
          : [desiredNumberScheduled, updatedNumberScheduled, numberReady]
        const done = status.observedGeneration === metadata['generation'] && new Set(numbers).size === 1
        if (!done) throw new Error(`${name}: ${numbers.join(' ')}`)
      }
      // The pods of dns take some time to leave.
      const pods = await site.api.list(`/api/v1/namespaces/${SYSTEM}/pods`)
      const going = pods.filter(({ metadata }) => metadata['deletionTimestamp'] !== undefined)
      if (going.length > 0) throw new Error(`still there: ${going.map(({ metadata }) => metadata.name).join(' ')}`)
      return true
    },
    { deadlineMs: 120_000, intervalMs: 500, say: 'all parts are rolled out' },
  )
}

const OTHER_IMAGE = 'registry.example.org/sealane:other'

async function asked(t: Test, place: InstallTarget): Promise<void> {
  const before = await settledObjects(place)
  const dry = await again(place, '--label', 'region=eu', '--image', OTHER_IMAGE, '--dry-run')
  t.equal(dry.stdout, 'nothing was changed\n')
  t.match(
    dry.stderr,
    /^c1 is already a member: upgrade from image localhost\/sealane:test to registry\.example\.org\/sealane:other$/m,
  )
  t.match(
    dry.stderr,
    /^ {2}~ ConfigMap sealane-system\/sealane-site\n {6}data\["site.yaml"\]:\n(.*\n){1,2} {8}\+ +region: eu$/m,
  )
  for (const [kind, part] of [
    ['Deployment', 'agent'],
    ['Deployment', 'dns'],
    ['DaemonSet', 'gateway'],
    ['DaemonSet', 'routeagent'],
  ] as const) {
    const image = `spec.template.spec.containers[${part}].image: "localhost/sealane:test" -> "${OTHER_IMAGE}"`
    t.ok(diffOf(dry.stderr, `${kind} ${SYSTEM}/sealane-${part}`).includes(image), `${part}: ${image}`)
  }
  t.notMatch(dry.stderr, /^ {2}(\+|created|changed) /m, 'nothing is new')
  t.strictSame(await changedSince(place, before), [], 'a dry run changes nothing')

  const done = await again(place, '--label', 'region=eu')
  t.ok(done.stderr.indexOf('~ ConfigMap') < done.stderr.indexOf('changed   ConfigMap'), 'shown before it is done')
  // The new agent reports it about the cluster some moments after it is ready.
  const changed = await changedWith(place, before, '/clusters ')
  t.match(
    changed.map((line) => line.split(':')[0]).sort(),
    [
      ...ALL_WORKLOADS.map((name) => `~ /apis/apps/v1/${name.replace('/', ` ${SYSTEM}/`)}`),
      `~ /api/v1/configmaps ${SYSTEM}/sealane-site`,
      '~ /apis/sealane.io/v1alpha1/clusters -/c1',
    ].sort(),
    'the label, and the pods that read it',
  )
  const agent = await place.site.api.get<Workload>(workload('deployments/sealane-agent'))
  t.match(agent, { metadata: { labels: { team: 'net' } }, spec: { replicas: 1 } })
  t.ok(agent.spec.template.spec.containers[0]?.args.includes('debug'), 'what a hand changed is as it was')
  const declined = await trySealane(['join', ...place.at, '--yes', '--label', 'region-', '--dry-run'])
  t.match(declined.stderr, / {8}- +region: eu$/m, 'a label can be taken away')
}

/** The lines below the object's title. */
function diffOf(said: string, title: string): readonly string[] {
  const lines = said.split('\n')
  const at = lines.indexOf(`  ~ ${title}`)
  const rest = lines.slice(at + 1)
  const end = rest.findIndex((line) => !line.startsWith('      '))
  return at < 0 ? [] : rest.slice(0, end < 0 ? rest.length : end).map((line) => line.trim())
}

async function byKubectl(t: Test, place: InstallTarget): Promise<void> {
  const before = await settledObjects(place)
  const printed = await sealane(['join', ...place.at, '--yes', '--output', 'yaml'])
  t.strictSame(await kubectlApply(place.site.api, printed.stdout), [], 'it conflicts with nothing')
  t.strictSame(await changedSince(place, before), [], 'and changes nothing')
  const done = await again(place)
  t.match(done.stderr, /^no changes: the installation is up to date$/m)
  const other = printed.stdout.replace(/^( +)replicas: 1$/m, '$1replicas: 2')
  const [conflict = '', ...more] = await kubectlApply(place.site.api, other)
  t.match(conflict, /^Deployment sealane-agent: 409 .*"kubectl-edit"/s)
  t.strictSame([...new Set(conflict.match(/\.spec\S*/g))], ['.spec.replicas'], 'a field that somebody else set')
  t.strictSame(more, [], 'and nothing else is a conflict')
}

/** The module as the Prometheus Operator publishes it. */
const OPERATOR = {
  module: 'github.com/prometheus-operator/prometheus-operator@v0.86.1',
  sum: 'h1:pHUuiRErcFb3nFDox7RxoxpEN0FyT24GtYOkr2GBu04=',
}
const POD_MONITOR_CRD = 'example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml'
const POD_MONITORS = `/apis/monitoring.coreos.com/v1/namespaces/${SYSTEM}/podmonitors`

interface PodMonitor extends KubeObject {
  readonly spec: { readonly podMetricsEndpoints: readonly { readonly port: string }[] }
}

/** A user's kustomization on top of the shipped one, with its metrics and with another image and log level. */
async function byKustomize(t: Test, place: InstallTarget): Promise<void> {
  const { api } = place.site
  const crds = parseAllDocuments(readFileSync(join(await goDownload(OPERATOR), POD_MONITOR_CRD), 'utf8'))
  for (const crd of crds) await api.post('/apis/apiextensions.k8s.io/v1/customresourcedefinitions', crd.toJS() as Json)
  await eventually(() => api.list(POD_MONITORS), { deadlineMs: 30_000, say: 'PodMonitors are served' })
  const folder = temporaryFolder(t)
  const [base = '', metrics = ''] = ['base', 'metrics'].map((name) => relative(folder, join(MANIFESTS, name)))
  const [newName, newTag] = SEALANE_IMAGE.split(':')
  const name = imageOf(await renderKustomization(join(MANIFESTS, 'base')))
  const kustomization = { resources: [base], components: [metrics], images: [{ name, newName, newTag }] }
  writeFileSync(join(folder, 'kustomization.yaml'), formatYaml(kustomization))
  const objects = await renderKustomization(folder)
  await kubectlApplyFiles(api, objects)
  await rolledOut(place)
  const monitors = await api.list<PodMonitor>(POD_MONITORS)
  t.strictSame(
    monitors.map(({ metadata, spec }) => `${metadata.name} ${spec.podMetricsEndpoints[0]?.port}`).sort(),
    ['agent', 'dns', 'gateway', 'routeagent'].map((part) => `sealane-${part} status`),
    'the kind of the Prometheus Operator takes our PodMonitors',
  )
  const before = await settledObjects(place)
  const done = await again(place)
  t.match(done.stderr, /^no changes: the installation is up to date$/m)
  t.strictSame(await changedSince(place, before), [], 'a join after it changes nothing')
  await kubectlApplyFiles(api, objects)
  t.strictSame(await changedSince(place, before), [], 'nor does the kustomization after the join')
  const gateway = await api.get<Workload>(workload('daemonsets/sealane-gateway'))
  t.ok(gateway.spec.template.spec.containers[0]?.args.includes('--status-listen'), 'metrics are still to be had')
}

function imageOf(objects: readonly KubeObject[]): string {
  const agent = objects.find(({ kind, metadata }) => kind === 'Deployment' && metadata.name === 'sealane-agent')
  const image = (agent as Workload | undefined)?.spec.template.spec.containers[0]?.image ?? ''
  return image.replace(/:[^:/]*$/, '')
}

/** The values by which a user of the chart describes the joined cluster. */
function chartValues(site: string, more: Json = {}): Json {
  const [repository, tag] = SEALANE_IMAGE.split(':')
  return { image: { repository, tag }, member: { site }, ...more }
}

async function siteOf({ site }: InstallTarget): Promise<string> {
  const map = await site.api.get<{ data: Json }>(`/api/v1/namespaces/${SYSTEM}/configmaps/sealane-site`)
  return String(map.data['site.yaml'])
}

async function helmAfter(t: Test, place: InstallTarget): Promise<void> {
  const { api } = place.site
  const values = chartValues(await siteOf(place), { agent: { replicas: 2 } })
  const chart = await renderChart(temporaryFolder(t), values)
  await helmUpgrade(api, chart)
  await rolledOut(place)
  const agent = await api.get<Workload>(workload('deployments/sealane-agent'))
  t.match(agent, {
    metadata: { labels: { team: 'net', 'app.kubernetes.io/managed-by': 'Helm' } },
    spec: { replicas: 2 },
  })
  const before = await settledObjects(place)
  await helmUpgrade(api, chart)
  t.strictSame(await changedSince(place, before), [], 'Helm has nothing more to do')
  const done = await again(place)
  t.match(done.stderr, /^no changes: the installation is up to date$/m)
  t.strictSame(await changedSince(place, before), [], 'nor has join: its labels are still those of Helm')
  await api.merge(workload('deployments/sealane-dns'), { metadata: { labels: { 'app.kubernetes.io/part-of': null } } })
  const mended = await again(place)
  t.match(diffOf(mended.stderr, `Deployment ${SYSTEM}/sealane-dns`), [
    'metadata.labels["app.kubernetes.io/part-of"]: (none) -> "sealane"',
  ])
  t.strictSame(await changedSince(place, before), [], 'what was broken is mended, and nothing else')
}

async function helmBefore(t: Test, world: World, place: InstallTarget): Promise<void> {
  const { api } = place.site
  const spec = {
    kubernetes: {},
    podCIDRs: [place.cluster.row.podCIDR],
    serviceCIDRs: [place.cluster.row.serviceCIDR],
    labels: {},
    dns: { listen: [`0.0.0.0:${DNS_CONTAINER_PORT}`] },
  }
  const site = JSON.stringify({ apiVersion: 'sealane.io/v1alpha1', kind: 'Site', metadata: { name: 'c2' }, spec })
  const values = chartValues(site, {
    agent: { replicas: 1 },
    dns: { replicas: 1, clusterIP: '10.53.0.99' },
    logLevel: 'debug',
  })
  const chart = await renderChart(temporaryFolder(t), values)
  await helmInstall(api, chart)
  const managers = await managersOf(place)
  const written = await objectsOf(place, chart)
  const token = await tokenFile(world)
  const joined = await again(place, '--token-file', token)
  t.equal(
    joined.stdout,
    'c2 has joined with gateway c2n1; it reaches c1\n',
    'the id and the ranges are those of the chart',
  )
  t.match(joined.stderr, /^ {2}~ Node c2n1$/m)
  t.match(joined.stderr, /^ {2}~ ConfigMap kube-system\/coredns/m)
  const shown = joined.stderr.split('\n').filter((line) => /^ {2}[~+] /.test(line))
  t.equal(shown.length, 2, shown.join(', '))
  t.strictSame(await objectsOf(place, chart), written, 'no object of the chart is changed')
  t.strictSame(await managersOf(place), managers, 'and Helm alone owns them')
  t.notMatch(managers.join(' '), /sealane (Apply|Update)/)
  t.equal(readFileSync(token, 'utf8').startsWith('sealane1.'), true)

  const other = await renderChart(temporaryFolder(t), { ...values, logLevel: 'warn' })
  await helmUpgrade(api, other)
  await rolledOut(place)
  const before = await objectsOf(place, chart)
  const done = await again(place)
  t.match(done.stderr, /^no changes: the installation is up to date$/m)
  t.strictSame(await objectsOf(place, chart), before, "Helm's later wish stays too")
  const dns = await api.get<{ spec: { clusterIP: string } }>(`/api/v1/namespaces/${SYSTEM}/services/sealane-dns`)
  t.equal(dns.spec.clusterIP, '10.53.0.99')
}

/** The objects as text, without status and timestamps. */
async function objectsOf(place: InstallTarget, chart: readonly KubeObject[]): Promise<readonly string[]> {
  const all = await settledObjects(place)
  return chart.map((object) => {
    const parts = /^(\/.*?)(?:\/namespaces\/([^/]+))?\/([^/]+)\/([^/]+)$/.exec(pathOf(object)) ?? []
    const [, group = '', namespace = '-', plural = '', name = ''] = parts
    const key = `${group}/${plural} ${namespace}/${name}`
    return `${key}: ${all.get(key) ?? 'not there'}`
  })
}
