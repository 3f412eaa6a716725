/**
 * Two real control planes on this host's loopback, a broker, and an agent for each cluster under its ServiceAccount
 * there: every process is one that users run too. Nothing stays after the run, however it ends.
 */
import { execFile, execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, realpathSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { requirePackages } from '../../scripts/install-system-packages.ts'
import { type ControlPlane, startControlPlane } from '../../test/kube/support/control-plane.ts'
import { memberObjects } from '../../test/kube/support/installed-objects.ts'
import { kubeProgramsMissing } from '../../test/kube/support/kube-programs.ts'
import type { KubeObject, KubeRequest } from '../../test/kube/support/kube-request.ts'
import { pathOf } from '../../test/kube/support/object-path.ts'
import { makeProgram } from '../../test/kube/support/program.ts'
import { eventually } from '../../test/support/eventually.ts'
import { freePort } from '../../test/support/free-port.ts'
import { ALL_CRDS } from '../../install/crds/all-crds.ts'
import { DEFAULT_VALUES } from '../../install/values/install-values.ts'
import { SYSTEM_NAMESPACE } from '../../model/spec-constants.ts'
import { BenchAgent, ROOT, SEALANE, isReady } from './agent.ts'
import { PROBE_CRD } from './objects.ts'

export interface BenchCluster {
  readonly name: string
  readonly plane: ControlPlane
  readonly api: KubeRequest
  readonly agent: BenchAgent
}

export interface BenchLab {
  readonly exporter: BenchCluster
  readonly importer: BenchCluster
}

interface Row {
  readonly name: string
  readonly podCIDR: string
  readonly serviceCIDR: string
}

const EXPORTER: Row = { name: 'milano', podCIDR: '10.42.0.0/16', serviceCIDR: '10.43.0.0/16' }
const IMPORTER: Row = { name: 'paris', podCIDR: '10.52.0.0/16', serviceCIDR: '10.53.0.0/16' }

const CRDS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'
/** Kinds that run pods, which these clusters do not have. */
const WORKLOADS = new Set(['DaemonSet', 'Deployment', 'PodDisruptionBudget'])

/** Starts everything, joins both clusters, works, and ends everything, even if it is interrupted. */
export async function withKubeLab<T>(work: (lab: BenchLab) => Promise<T>): Promise<T> {
  requirePackages('kube')
  const missing = kubeProgramsMissing()
  if (missing !== undefined) throw new Error(missing)
  // Users run the compiled product.
  execFileSync(process.execPath, [join(ROOT, 'scripts', 'build.ts')], { stdio: ['ignore', process.stderr, 'inherit'] })
  // The path is short, because paths of sockets are limited.
  const directory = realpathSync(mkdtempSync(join(tmpdir(), 'slb-')))
  const stops: (() => Promise<void>)[] = []
  const stop = async (): Promise<void> => {
    for (const end of stops.splice(0).reverse()) await end()
  }
  try {
    const token = await startBroker(directory, stops)
    // This handler also runs after signals: the started programs have been killed by then (program.ts).
    process.on('exit', () => rmSync(directory, { recursive: true, force: true, maxRetries: 5 }))
    const [exporter, importer] = await Promise.all([
      startCluster(EXPORTER, { directory, token, stops }),
      startCluster(IMPORTER, { directory, token, stops }),
    ])
    return await work({ exporter, importer })
  } finally {
    await stop()
  }
}

/** Starts a broker, and returns a token that both clusters may use. */
async function startBroker(directory: string, stops: (() => Promise<void>)[]): Promise<string> {
  const [port, status] = [await freePort(), await freePort()]
  const address = `127.0.0.1:${port}`
  const state = join(directory, 'broker')
  const args = ['--state', state, '--listen', address, '--advertise', address, '--status-listen', `127.0.0.1:${status}`]
  const program = makeProgram({ name: 'broker', path: SEALANE, args: ['broker', 'serve', ...args], directory })
  program.start()
  stops.push(() => program.kill('SIGTERM'))
  await isReady(program, status)
  const create = ['token', 'create', '--state', state, '--uses', '2', '--ttl', '1h', '-o', 'json']
  const { stdout } = await promisify(execFile)(SEALANE, create)
  return (JSON.parse(stdout) as { token: string }).token
}

interface Shared {
  readonly directory: string
  readonly token: string
  readonly stops: (() => Promise<void>)[]
}

async function startCluster(row: Row, { directory: parent, token, stops }: Shared): Promise<BenchCluster> {
  const directory = join(parent, row.name)
  mkdirSync(directory)
  const { name, serviceCIDR } = row
  // Without controllers, only the benchmark changes objects.
  const plane = await startControlPlane({ name, directory, serviceCIDR, controllers: false })
  stops.push(() => plane.stop())
  const { api } = plane
  await install(api)
  await api.post(`/api/v1/namespaces/${SYSTEM_NAMESPACE}/secrets`, {
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: { name: 'sealane-identity', namespace: SYSTEM_NAMESPACE },
    type: 'sealane.io/identity',
    stringData: { token },
  })
  const account = { namespace: SYSTEM_NAMESPACE, name: 'sealane-agent' }
  const kubeconfig = await plane.kubeconfigFor({ serviceAccount: account, seconds: 7200 })
  const agent = new BenchAgent({ ...row, directory, kubeconfig, statusPort: await freePort() })
  stops.push(() => agent.stop())
  agent.start()
  await agent.ready()
  return { name, plane, api, agent }
}

/** Installs everything but the workloads, and the benchmark's own kind. */
async function install(api: KubeRequest): Promise<void> {
  const crds = [...ALL_CRDS, PROBE_CRD] as unknown as KubeObject[]
  for (const crd of crds) await api.apply(`${CRDS}/${crd.metadata.name}`, crd)
  // Without a site file, the policies refuse all imports.
  const site = 'apiVersion: sealane.io/v1alpha1\nkind: Site\n'
  const values = { ...DEFAULT_VALUES, member: { ...DEFAULT_VALUES.member, site } }
  const objects = memberObjects(values).filter(({ kind }) => !WORKLOADS.has(kind))
  const isNamespace = ({ kind }: KubeObject): boolean => kind === 'Namespace'
  for (const object of objects.filter(isNamespace)) await api.apply(pathOf(object), object)
  for (const object of objects.filter((one) => !isNamespace(one))) await api.apply(pathOf(object), object)
  const names = crds.map(({ metadata }) => metadata.name)
  await eventually(
    async () => {
      const found = await Promise.all(names.map((name) => api.get<{ status?: object }>(`${CRDS}/${name}`)))
      return found.every(({ status }) => JSON.stringify(status ?? {}).includes('"type":"Established"'))
    },
    { deadlineMs: 30_000, say: 'all kinds are served' },
  )
}
