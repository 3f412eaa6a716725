/**
 * The chart, as a company installs it with the real Helm, and as GitOps tools apply it with the real kubectl, on a real
 * API server. The agent runs beside, so that whatever it changes could be a difference.
 */
import { execFile } from 'node:child_process'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { DEFAULT_VALUES, type InstallValues } from '../../install/values/install-values.ts'
import { formatYaml, parseYaml } from '../../kubeapi/yaml.ts'
import { eventually } from '../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import { nodeObject, routeAgentObject } from '../support/objects/node-objects.ts'
import { ROOT } from '../support/source-tree.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { goVersion } from './support/build-programs.ts'
import { type ControlPlane, startControlPlane } from './support/control-plane.ts'
import { MANIFESTS, memberObjects } from './support/installed-objects.ts'
import { kubeProgramsMissing } from './support/kube-programs.ts'
import type { KubeObject } from './support/kube-request.ts'
import { pathOf } from './support/object-path.ts'
import { type Program, makeProgram } from './support/program.ts'
import { type RenderPrograms, renderPrograms } from './support/render-programs.ts'

t.setTimeout(600_000)

const SYSTEM = 'sealane-system'
const CHART = join(MANIFESTS, 'chart')
const SEALANE = join(ROOT, 'bin', 'sealane')
const MEMBERSHIP = '/apis/sealane.io/v1alpha1/memberships/self'
const SECRETS = `/api/v1/namespaces/${SYSTEM}/secrets`
const skip = kubeProgramsMissing() ?? (goVersion() === undefined ? 'needs Go to build Helm and kubectl' : false)

interface World {
  readonly plane: ControlPlane
  readonly programs: RenderPrograms
  readonly directory: string
  /** Gives standard output. Throws with what the program wrote. */
  readonly run: (program: 'helm' | 'kubectl', ...args: readonly string[]) => Promise<string>
}

t.test('a chart for companies and for GitOps', { skip }, async (t) => {
  const world = await startWorld(t)
  const { plane, directory, run } = world
  const { api } = plane
  const values = companyValues()
  const file = written(directory, 'values.yaml', values)
  // Helm keeps its own Secrets in namespace `default`: the chart creates that of Sealane.
  const release = ['sealane', CHART]
  const objects = memberObjects(values)
  const live = async (): Promise<ReadonlyMap<string, KubeObject>> => {
    const all = await Promise.all(
      objects.map(async (object) => [titleOf(object), await api.get(pathOf(object))] as const),
    )
    return new Map(all)
  }
  /** What each object says, without what the server and Helm note about it. */
  const meanings = async (): Promise<Record<string, unknown>> =>
    Object.fromEntries([...(await live())].map(([title, object]) => [title, meaningOf(object)]))

  await t.test('install', async (t) => {
    t.match(await run('helm', 'install', ...release, '-f', file), 'STATUS: deployed')
    const agent = (await live()).get('Deployment sealane-agent')
    t.match(agent, {
      metadata: { labels: { team: 'net' }, annotations: { 'example.org/owner': 'net@example.org' } },
      spec: {
        template: {
          spec: {
            imagePullSecrets: [{ name: 'registry' }],
            tolerations: [{ key: 'dedicated', operator: 'Equal', value: 'infra', effect: 'NoSchedule' }],
            priorityClassName: 'net-critical',
            containers: [
              { image: 'registry.example.org:5000/net/sealane:v1', resources: { limits: { cpu: '1', memory: '1Gi' } } },
            ],
          },
        },
      },
    })
  })
  const installed = await meanings()

  await t.test('an upgrade with the same values writes nothing', async (t) => {
    await eventually(async () => isSettled((await live()).values()), { deadlineMs: 30_000, say: 'status is written' })
    const before = versionsOf(await live())
    t.match(await run('helm', 'upgrade', ...release, '-f', file), 'REVISION: 2')
    t.strictSame(versionsOf(await live()), before)
  })

  await t.test('an upgrade with other values, and back', async (t) => {
    const other = {
      ...values,
      logLevel: 'debug',
      objects: { labels: { team: 'other' }, annotations: {} },
      gateway: { ...values.gateway, replace: 'never' },
      member: { ...values.member, networkPolicies: false },
    }
    await run('helm', 'upgrade', ...release, '-f', written(directory, 'other.yaml', other))
    const agent = await api.get(`/apis/apps/v1/namespaces/${SYSTEM}/deployments/sealane-agent`)
    t.equal(agent.metadata.labels?.['team'], 'other')
    t.match(JSON.stringify(agent['spec']), /"debug"/)
    t.equal(await api.find(`/apis/networking.k8s.io/v1/namespaces/${SYSTEM}/networkpolicies/sealane-agent`), undefined)
    await run('helm', 'rollback', 'sealane', '2')
    t.strictSame(await meanings(), installed, 'all is as it was')
  })

  const agent = await startMember(t, world, values)
  await t.test('the cluster joins by objects alone, and its agent chooses the gateways', async (t) => {
    await eventually(async () => (await gateways(world)).join(' ') === 'n1 n2', {
      deadlineMs: 60_000,
      say: 'two nodes have the label',
    }).catch((error: unknown) => Promise.reject(new Error(`${String(error)}\n${agent.log()}`)))
    t.match(await api.get(MEMBERSHIP), { spec: { clusterId: 'milano', phase: 'joined' } })
    const identity = await api.get(`${SECRETS}/sealane-identity`)
    t.equal(identity['type'], 'sealane.io/identity')
    // The agent adds what it keeps of the Membership a moment later.
    const parts = Object.keys(identity['data'] as object).filter((part) => part !== 'access.json')
    t.same(parts.sort(), ['broker.json', 'ca.crt', 'cluster.crt', 'cluster.key'])
    t.notOk(identity.metadata.annotations?.['meta.helm.sh/release-name'], 'Helm does not own it')
    t.ok((await api.get(`${SECRETS}/sealane-join-token`))['data'], 'and nothing has written to that of the token')
    const before = versionsOf(await live())
    await run('helm', 'upgrade', ...release, '-f', file)
    t.strictSame(versionsOf(await live()), before, 'the agent changed nothing that Helm would change back')
  })

  await t.test('the agent creates no other Secret', async (t) => {
    const account = await plane.apiAs({ serviceAccount: { namespace: SYSTEM, name: 'sealane-agent' } })
    t.teardown(() => account.close())
    const secret = { apiVersion: 'v1', kind: 'Secret', metadata: { name: 'other', namespace: SYSTEM } }
    const refusal = /the agent creates only Secret sealane-identity/
    await t.rejects(account.post(SECRETS, { ...secret, type: 'sealane.io/identity' }), refusal)
    const annotations = { 'kubernetes.io/service-account.name': 'sealane-gateway' }
    const metadata = { ...secret.metadata, name: 'sealane-identity', annotations }
    const type = 'kubernetes.io/service-account-token'
    await t.rejects(account.post(SECRETS, { ...secret, metadata, type }), refusal)
  })

  const rendered = join(directory, 'rendered.yaml')
  writeFileSync(rendered, await run('helm', 'template', ...release, '--kube-version', '1.36.0', '-f', file))

  await t.test('what an uninstall leaves', async (t) => {
    await agent.kill('SIGTERM')
    await run('helm', 'uninstall', 'sealane', '--wait')
    t.equal(await api.find(`/apis/apps/v1/namespaces/${SYSTEM}/deployments/sealane-agent`), undefined)
    t.equal(await api.find('/apis/rbac.authorization.k8s.io/v1/clusterroles/sealane-agent'), undefined)
    t.match(await api.get(`/api/v1/namespaces/${SYSTEM}`), { status: { phase: 'Active' } }, 'the namespace')
    t.ok(await api.find(`${SECRETS}/sealane-identity`), 'the identity')
    t.match(await api.get(MEMBERSHIP), { spec: { phase: 'joined' } }, 'the Membership')
    t.ok(await api.find('/apis/apiextensions.k8s.io/v1/customresourcedefinitions/clusters.sealane.io'), 'CRDs')
    t.same(await gateways(world), ['n1', 'n2'], 'the labels of nodes')
  })

  await t.test('what sealane join would install with these values is the same', async (t) => {
    const order = (kind: string): number => (kind === 'Namespace' ? 0 : 1)
    for (const object of [...objects].sort((a, b) => order(a.kind) - order(b.kind))) {
      await api.apply(pathOf(object), object)
    }
    t.strictSame(await meanings(), installed)
  })

  for (const [say, ...flags] of [
    ['kubectl apply'],
    ['kubectl apply --server-side', '--server-side', '--field-manager=argocd-controller', '--force-conflicts'],
  ] as const) {
    await t.test(`${say}, twice, while the agent runs`, async (t) => {
      const [first = ''] = flags
      const side = first === '' ? [] : [first, '--force-conflicts', '--field-manager=argocd-controller']
      await run('kubectl', 'apply', ...flags, '-f', rendered)
      if (agent.pid === undefined) await again(world, agent)
      await eventually(async () => isSettled((await live()).values()), { deadlineMs: 30_000, say: 'status is written' })
      t.equal(await run('kubectl', 'diff', ...side, '-f', rendered), '', 'no difference')
      const before = versionsOf(await live())
      const said = await run('kubectl', 'apply', ...flags, '-f', rendered)
      // Without --server-side, kubectl sends the selector of a PodDisruptionBudget each time.
      const written = said
        .split('\n')
        .filter((line) => !/^poddisruptionbudget| (unchanged|serverside-applied)$|^$/.test(line))
      t.same(written, [])
      t.strictSame(versionsOf(await live()), before, 'the second apply writes nothing')
      t.strictSame(await meanings(), installed)
    })
  }
})

async function startWorld(t: Test): Promise<World> {
  const directory = temporaryFolder(t)
  const programs = await renderPrograms()
  mkdirSync(join(directory, 'c1'))
  const plane = await startControlPlane({ name: 'c1', directory: join(directory, 'c1'), serviceCIDR: '10.43.0.0/16' })
  t.teardown(() => plane.stop())
  const env = { ...process.env, HOME: directory, XDG_CACHE_HOME: directory, KUBECONFIG: plane.kubeconfig }
  return {
    ...{ plane, programs, directory },
    run: async (program, ...args) =>
      (await promisify(execFile)(programs[program], args, { env, maxBuffer: 64 << 20, timeout: 120_000 })).stdout,
  }
}

function written(directory: string, name: string, values: object): string {
  writeFileSync(join(directory, name), formatYaml(values))
  return join(directory, name)
}

/** What the platform team of a company sets. */
function companyValues(): InstallValues {
  const pods = {
    resources: { requests: { cpu: '100m', memory: '128Mi' }, limits: { cpu: '1', memory: '1Gi' } },
    nodeSelector: {},
    tolerations: [{ key: 'dedicated', operator: 'Equal' as const, value: 'infra', effect: 'NoSchedule' }],
    priorityClassName: 'net-critical',
  }
  const { member, agent, dns, gateway, routeagent } = DEFAULT_VALUES
  return {
    ...DEFAULT_VALUES,
    image: { repository: 'registry.example.org:5000/net/sealane', tag: 'v1', pullPolicy: 'Always' },
    imagePullSecrets: [{ name: 'registry' }],
    objects: { labels: { team: 'net' }, annotations: { 'example.org/owner': 'net@example.org' } },
    pods: { labels: { 'example.org/cost-center': '4711' }, annotations: { 'example.org/scan': 'on' } },
    member: { ...member, site: SITE, criticalPodsQuota: true },
    agent: { ...agent, ...pods },
    dns: { ...dns, ...pods, clusterIP: '10.43.0.11' },
    gateway: { ...gateway, ...pods, nodeSelector: { pool: 'edge' }, replace: 'missing' },
    routeagent: { ...routeagent, ...pods, tolerations: [{ operator: 'Exists' }] },
  }
}

const SITE = formatYaml({
  apiVersion: 'sealane.io/v1alpha1',
  kind: 'Site',
  metadata: { name: 'milano' },
  spec: { podCIDRs: ['10.42.0.0/16'], serviceCIDRs: ['10.43.0.0/16'] },
})

/** Nodes, the token as an object of Git, and the agent with the environment and rights of the installed one. */
async function startMember(t: Test, world: World, { member }: InstallValues): Promise<Program> {
  const { plane, directory } = world
  const { api } = plane
  for (const [i, name] of ['n0', 'n1', 'n2'].entries()) {
    const labels = { 'kubernetes.io/os': 'linux', ...(i === 0 ? {} : { pool: 'edge' }) }
    await api.post('/api/v1/nodes', nodeObject(name, { metadata: { labels } }))
    const addresses = [{ type: 'InternalIP', address: `192.0.2.${i + 10}` }]
    const conditions = [{ type: 'Ready', status: 'True', lastHeartbeatTime: new Date().toISOString() }]
    await api.merge(`/api/v1/nodes/${name}/status`, { status: { addresses, conditions } })
    await api.post('/apis/sealane.io/v1alpha1/routeagents', routeAgentObject(name))
  }
  const token = await startBroker(t, directory)
  await api.post(SECRETS, {
    ...{ apiVersion: 'v1', kind: 'Secret', type: 'Opaque' },
    metadata: { name: 'sealane-join-token', namespace: SYSTEM },
    stringData: { token },
  })
  const site = parseYaml(member.site) as { readonly spec: object }
  const kubeconfig = await plane.kubeconfigFor({ serviceAccount: { namespace: SYSTEM, name: 'sealane-agent' } })
  const spec = { ...site.spec, kubernetes: { kubeconfig }, state: join(directory, 'state') }
  const status = `127.0.0.1:${await freePort()}`
  const deployment = await api.get(`/apis/apps/v1/namespaces/${SYSTEM}/deployments/sealane-agent`)
  const args = ['up', '--site', written(directory, 'site.yaml', { ...site, spec }), '--node', 'n0']
  const agent = makeProgram({
    ...{
      name: 'agent',
      path: SEALANE,
      directory,
      env: { ...process.env, ...environmentOf(deployment), NODE_OPTIONS: '' },
    },
    args: [...args, '--component', 'agent', '--status-listen', status],
  })
  t.teardown(() => agent.kill('SIGTERM'))
  agent.start()
  return agent
}

/** The variables of its container that have a value. */
function environmentOf(deployment: KubeObject): Record<string, string> {
  const { template } = deployment['spec'] as { readonly template: { readonly spec: { readonly containers: unknown } } }
  const [{ env = [] } = {}] = template.spec.containers as { readonly env?: { name: string; value?: string }[] }[]
  return Object.fromEntries(env.flatMap(({ name, value }) => (value === undefined ? [] : [[name, value]])))
}

async function startBroker(t: Test, directory: string): Promise<string> {
  const state = join(directory, 'broker')
  const address = `127.0.0.1:${await freePort()}`
  const places = ['--listen', address, '--advertise', address, '--status-listen', `127.0.0.1:${await freePort()}`]
  const program = makeProgram({
    ...{ name: 'broker', path: SEALANE, directory },
    args: ['broker', 'serve', '--state', state, ...places],
  })
  t.teardown(() => program.kill('SIGTERM'))
  program.start()
  const create = ['token', 'create', '--state', state, '-o', 'json']
  const made = await eventually(() => promisify(execFile)(SEALANE, create), { deadlineMs: 30_000, say: 'a token' })
  return (JSON.parse(made.stdout) as { readonly token: string }).token
}

/** Starts the agent under the account that was made again, and waits until it acts. */
async function again({ plane, directory }: World, agent: Program): Promise<void> {
  const kubeconfig = await plane.kubeconfigFor({ serviceAccount: { namespace: SYSTEM, name: 'sealane-agent' } })
  const path = join(directory, 'site.yaml')
  const site = parseYaml(readFileSync(path, 'utf8')) as { readonly spec: object }
  written(directory, 'site.yaml', { ...site, spec: { ...site.spec, kubernetes: { kubeconfig } } })
  const holder = async (): Promise<string> => {
    const lease = await plane.api.find(`/apis/coordination.k8s.io/v1/namespaces/${SYSTEM}/leases/sealane-agent`)
    return (lease?.['spec'] as { readonly holderIdentity?: string } | undefined)?.holderIdentity ?? ''
  }
  const before = await holder()
  agent.start()
  await eventually(async () => !['', before].includes(await holder()), { deadlineMs: 60_000, say: 'the agent acts' })
}

async function gateways({ plane }: World): Promise<readonly string[]> {
  const nodes = await plane.api.list('/api/v1/nodes?labelSelector=sealane.io/gateway=true')
  return nodes.map(({ metadata }) => metadata.name).sort()
}

function titleOf({ kind, metadata }: KubeObject): string {
  return `${kind} ${metadata.name}`
}

/** Controllers write the status of these, and with it the resourceVersion. */
const WITH_STATUS = /^(Deployment|DaemonSet|PodDisruptionBudget|ValidatingAdmissionPolicy|ResourceQuota|Namespace) /

/** Which write each object is of: its resourceVersion, or the generation where controllers write the status. */
function versionsOf(live: ReadonlyMap<string, KubeObject>): Record<string, unknown> {
  return Object.fromEntries(
    [...live].map(([title, { metadata }]) => [
      title,
      WITH_STATUS.test(title)
        ? { generation: metadata['generation'], labels: metadata.labels, annotations: metadata.annotations }
        : metadata.resourceVersion,
    ]),
  )
}

/** Whether the controllers have looked at the workloads. The first look adds an annotation to a Deployment. */
function isSettled(live: Iterable<KubeObject>): boolean {
  return [...live].every((object) => {
    if (object.kind !== 'Deployment') return true
    const status = object['status'] as { readonly observedGeneration?: number } | undefined
    return status?.observedGeneration === object.metadata['generation']
  })
}

const NOTED = new Set(['uid', 'resourceVersion', 'generation', 'creationTimestamp', 'managedFields'])
/** Of Helm, kubectl, and the controllers; what the objects are managed by, which Helm claims for itself. */
const NOTE =
  /^((meta\.)?helm\.sh|(kubectl|deployment)\.kubernetes\.io)\/|^(app\.kubernetes\.io\/managed-by|deprecated\.daemonset\..*)$/

function meaningOf({ status: _status, metadata, ...rest }: KubeObject): unknown {
  const kept = (map: Readonly<Record<string, string>> = {}): object =>
    Object.fromEntries(Object.entries(map).filter(([key]) => !NOTE.test(key)))
  const own = Object.fromEntries(Object.entries(metadata).filter(([field]) => !NOTED.has(field)))
  return { ...rest, metadata: { ...own, labels: kept(metadata.labels), annotations: kept(metadata.annotations) } }
}
