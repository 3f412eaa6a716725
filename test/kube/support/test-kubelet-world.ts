/** Two nodes with test-kubelets on one control plane, and what the test kubelet's tests look at. */
import { execFileSync } from 'node:child_process'
import { mkdirSync, readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { eventually } from '../../support/eventually.ts'
import { netnsMissing } from '../../support/netns.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { goVersion } from './build-programs.ts'
import { type ControlPlane, startControlPlane } from './control-plane.ts'
import { kubeProgramsMissing } from './kube-programs.ts'
import type { Json, KubeObject } from './kube-request.ts'
import { type KubeNode, startNode } from './node.ts'
import { type Underlay, makeUnderlay } from './underlay.ts'

/** The namespace that the tests' pods are in. */
export const NAMESPACE = '/api/v1/namespaces/shop'

export interface Pod extends KubeObject {
  readonly spec: { readonly nodeName?: string }
  readonly status: {
    readonly phase?: string
    readonly podIP?: string
    readonly podIPs?: readonly { readonly ip: string }[]
    readonly hostIP?: string
    readonly reason?: string
    readonly message?: string
    readonly conditions?: readonly { readonly type: string; readonly status: string }[]
    readonly containerStatuses?: readonly ContainerStatus[]
  }
}

export interface ContainerStatus {
  readonly name: string
  readonly ready: boolean
  readonly restartCount: number
  readonly state: { readonly waiting?: { readonly reason: string; readonly message?: string } }
  readonly lastState: { readonly terminated?: { readonly exitCode: number } }
}

export interface World {
  readonly cluster: ControlPlane
  readonly underlay: Underlay
  readonly nodes: readonly [KubeNode, KubeNode]
  readonly directory: string
}

/** Why no test kubelet can be run here; undefined when one can. */
export function kubeletMissing(): string | undefined {
  return kubeProgramsMissing() ?? (goVersion() === undefined ? 'needs Go to build the test kubelet' : netnsMissing())
}

/** Starts them with the namespace `shop`; everything ends with the test. */
export async function startWorld(t: Test): Promise<World> {
  const directory = temporaryFolder(t)
  const underlay = makeUnderlay()
  t.teardown(() => underlay.remove())
  const names = ['n1', 'n2'] as const
  const [first, second] = names.map((name, i) => underlay.addNode(name, `192.0.2.${11 + i}/24`))
  const cluster = await startControlPlane({
    name: 'milano',
    directory: folder(directory, 'plane'),
    serviceCIDR: '10.43.0.0/16',
    podCIDR: '10.42.0.0/16',
    listen: '192.0.2.11',
    netns: first ?? '',
    scheduler: true,
  })
  t.teardown(() => cluster.stop())
  const start = (name: string, netns: string, address: string): Promise<KubeNode> =>
    startNode({ name, cluster, netns, addresses: [address], directory, clusterDns: ['10.43.0.10'] })
  const nodes = await Promise.all([
    start('n1', first ?? '', '192.0.2.11'),
    start('n2', second ?? '', '192.0.2.12'),
  ] as const)
  t.teardown(() => Promise.all(nodes.map((node) => node.stop())))
  for (const [i, other] of [1, 0].entries()) {
    const target = nodes[other]
    const node = await cluster.api.get<{ spec: { podCIDR: string } }>(`/api/v1/nodes/${target?.name ?? ''}`)
    underlay.route(names[i] ?? '', node.spec.podCIDR, target?.address ?? '')
  }
  await cluster.api.post('/api/v1/namespaces', { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'shop' } })
  await eventually(() => cluster.api.find(`${NAMESPACE}/serviceaccounts/default`))
  return { cluster, underlay, nodes, directory }
}

function folder(parent: string, name: string): string {
  const path = join(parent, name)
  mkdirSync(path, { recursive: true })
  return path
}

/** Makes a pod and waits for its phase. */
export async function runPod({ cluster }: World, name: string, spec: Json, phase = 'Running'): Promise<Pod> {
  await cluster.api.post(`${NAMESPACE}/pods`, { apiVersion: 'v1', kind: 'Pod', metadata: { name }, spec })
  return await eventually(
    async () => {
      const pod = await cluster.api.get<Pod>(`${NAMESPACE}/pods/${name}`)
      if (pod.status.phase === phase) return pod
      throw new Error(`it is ${JSON.stringify(pod.status)}`)
    },
    { deadlineMs: 20_000, say: `pod ${name} is ${phase}` },
  )
}

export function isReady({ status }: Pod): boolean {
  return status.conditions?.some((condition) => condition.type === 'Ready' && condition.status === 'True') ?? false
}

export function podNamespaces({ prefix }: Underlay): string[] {
  const names = execFileSync('ip', ['netns', 'list'], { encoding: 'utf8' }).split('\n')
  return names.filter((name) => name.startsWith(prefix) && /-n\d-[0-9a-f]{8}/.test(name))
}

/** Processes whose mounts are made in the pods' folders of a node: exactly its containers. */
export function processesBelow(directory: string, node: string): string[] {
  const path = join(directory, `test-kubelet-${node}`, 'pods')
  return pids().filter((pid) => read(`/proc/${pid}/mountinfo`).includes(path) && read(`/proc/${pid}/cmdline`) !== '')
}

/** Processes whose command line has that text; arguments are separated by a zero byte. */
export function processesWith(commandLine: string): string[] {
  return pids().filter((pid) => read(`/proc/${pid}/cmdline`).includes(commandLine))
}

function pids(): string[] {
  return readdirSync('/proc').filter((name) => /^\d+$/.test(name))
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}
