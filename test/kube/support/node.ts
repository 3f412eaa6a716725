/** A node of a test cluster: a network namespace in which the test kubelet (../test-kubelet) runs pods as processes. */
import { execFile } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { eventually } from '../../support/eventually.ts'
import { buildGoModule } from './build-programs.ts'
import type { ControlPlane } from './control-plane.ts'
import { type Program, makeProgram } from './program.ts'

const MODULE = join(import.meta.dirname, '../../test-kubelet')

/** How an image is run; see ../../test-kubelet/README.md. */
export interface Image {
  readonly root?: 'host'
  readonly entrypoint?: readonly string[]
  readonly cmd?: readonly string[]
  readonly env?: Readonly<Record<string, string>>
  readonly workingDir?: string
  readonly uid?: number
  readonly gid?: number
  /** Path in the container → file or folder of this machine that is seen there, read-only. */
  readonly paths?: Readonly<Record<string, string>>
  /** Devices beside the usual ones, such as /dev/net/tun. */
  readonly devices?: readonly string[]
}

export interface NodeInit {
  readonly name: string
  /** Its API server must be reachable from the node's namespace: startControlPlane with `netns` and `listen`. */
  readonly cluster: ControlPlane
  /** The node's namespace, such as underlay.addNode() gives. Pods' namespaces begin with its name and a dash. */
  readonly netns: string
  /** Addresses of the node in that namespace, without prefix length. */
  readonly addresses: readonly string[]
  /** For logs and the pods' files. */
  readonly directory: string
  /** Default: what the cluster's controllers give it (startControlPlane with `podCIDR`). */
  readonly podCIDRs?: readonly string[]
  readonly images?: Readonly<Record<string, Image>>
  readonly labels?: Readonly<Record<string, string>>
  /** Addresses in pods' resolv.conf. */
  readonly clusterDns?: readonly string[]
  /** hostPath volumes that are this machine's own; others lie in the node's folder. */
  readonly sharedHostPaths?: readonly string[]
  /** True: pods reach the API server by the Service `kubernetes`, which needs a kube-proxy. Default: directly. */
  readonly apiByService?: boolean
  /** Bound on terminationGracePeriodSeconds. Default: none. */
  readonly maxGraceSeconds?: number
  readonly mtu?: number
}

export interface KubeNode {
  readonly name: string
  readonly netns: string
  readonly address: string
  /** The test kubelet. Killed, it takes all processes of its pods along; started again, it runs them anew. */
  readonly kubelet: Program
  /** Waits until the Node is Ready and pods may be put on it. */
  ready(): Promise<void>
  /** Ends the test kubelet and removes what it made in this machine; the Node object stays. */
  stop(): Promise<void>
}

/** Images of the conformance suite, a pause, and an ingress: all are this machine's own programs. */
export const IMAGES: Readonly<Record<string, Image>> = {
  'alpine/socat:1.7.4.4': { root: 'host', entrypoint: ['socat'] },
  'nicolaka/netshoot:v0.15': { root: 'host', cmd: ['sleep', 'infinity'] },
  'haproxy:2.6': { root: 'host', entrypoint: ['haproxy', '-W', '-db'] },
  'host:pause': { root: 'host', cmd: ['sleep', 'infinity'] },
}

/**
 * Starts a node and waits until it is Ready. Throws with the end of the test kubelet's log when it does not become so.
 */
export async function startNode(init: NodeInit): Promise<KubeNode> {
  const { kubelet: path } = await kubeletPrograms()
  mkdirSync(init.directory, { recursive: true })
  const kubelet = makeProgram({
    name: `test-kubelet-${init.name}`,
    path,
    args: await kubeletArguments(init),
    directory: init.directory,
  })
  const node: KubeNode = {
    name: init.name,
    netns: init.netns,
    address: init.addresses[0] ?? '',
    kubelet,
    ready: () => waitUntilReady(init, kubelet),
    stop: () => kubelet.kill('SIGTERM'),
  }
  kubelet.start()
  await node.ready().catch(async (error: unknown) => {
    await node.stop()
    throw new Error(`node ${init.name}: ${(error as Error).message}\n${kubelet.log().slice(-2000)}`)
  })
  return node
}

/** The programs of the test kubelet's module, built when needed: the test kubelet, and podexec, a client for exec. */
export async function kubeletPrograms(): Promise<{ readonly kubelet: string; readonly podexec: string }> {
  const { 'test-kubelet': kubelet, podexec } = await buildGoModule(MODULE)
  if (kubelet === undefined || podexec === undefined) throw new Error(`${MODULE} built no test kubelet or no podexec`)
  return { kubelet, podexec }
}

async function kubeletArguments(init: NodeInit): Promise<string[]> {
  const { cluster, name, netns, directory } = init
  const images = join(directory, `images-${name}.json`)
  writeFileSync(images, JSON.stringify({ ...IMAGES, ...init.images }))
  const identity = { user: `system:node:${name}`, groups: ['system:nodes'] }
  const flags: Record<string, string | number | undefined> = {
    kubeconfig: await cluster.kubeconfigFor(identity, 'inside'),
    node: name,
    'node-ip': init.addresses.join(','),
    netns,
    prefix: netns,
    'state-dir': join(directory, `test-kubelet-${name}`),
    images,
    'client-ca': cluster.caFile,
    'pod-cidr': init.podCIDRs?.join(','),
    'cluster-dns': init.clusterDns?.join(','),
    'node-labels': pairs(init.labels),
    'shared-host-path': init.sharedHostPaths?.join(','),
    'kubernetes-service-host': init.apiByService === true ? undefined : new URL(cluster.insideUrl).host,
    'max-grace': init.maxGraceSeconds === undefined ? undefined : `${init.maxGraceSeconds}s`,
    mtu: init.mtu,
  }
  const given = Object.entries(flags).flatMap(([flag, value]) => (value === undefined ? [] : [`--${flag}=${value}`]))
  return [...given, '--cleanup']
}

function pairs(labels: NodeInit['labels']): string | undefined {
  if (labels === undefined) return undefined
  return Object.entries(labels)
    .map(([key, value]) => `${key}=${value}`)
    .join(',')
}

interface NodeObject {
  readonly spec?: { readonly taints?: readonly { readonly key: string }[] }
  readonly status?: { readonly conditions?: readonly { readonly type: string; readonly status: string }[] }
}

async function waitUntilReady(init: NodeInit, kubelet: Program): Promise<void> {
  await eventually(
    async () => {
      if (kubelet.failure !== undefined) return kubelet.failure
      const found = await init.cluster.api.find<NodeObject>(`/api/v1/nodes/${init.name}`)
      const ready = found?.status?.conditions?.some(({ type, status }) => type === 'Ready' && status === 'True')
      // A controller takes the taint off some time after the status says Ready.
      return ready === true && !found?.spec?.taints?.some(({ key }) => key === 'node.kubernetes.io/not-ready')
    },
    { deadlineMs: 30_000, say: `node ${init.name} is Ready and without its taint` },
  )
  if (kubelet.failure !== undefined) throw new Error(`the test kubelet ${kubelet.failure}`)
}

export interface ExecInPod {
  readonly namespace: string
  readonly pod: string
  readonly container?: string
  readonly argv: readonly string[]
  readonly protocol?: 'spdy' | 'websocket'
  readonly tty?: boolean
  /** Asks as the conformance suite does: a terminal, both outputs, no resize stream. */
  readonly quirk?: boolean
  readonly input?: string
  readonly timeoutSeconds?: number
}

/** Runs a command in a pod through the API server. A code of 255 means that it could not be run; stderr says why. */
export async function execInPod(
  kubeconfig: string,
  what: ExecInPod,
): Promise<{ readonly code: number; readonly stdout: string; readonly stderr: string }> {
  const { podexec } = await kubeletPrograms()
  const timeoutSeconds = what.timeoutSeconds ?? 4
  const args = [
    `--kubeconfig=${kubeconfig}`,
    `--namespace=${what.namespace}`,
    `--container=${what.container ?? ''}`,
    `--protocol=${what.protocol ?? 'spdy'}`,
    `--tty=${what.tty ?? false}`,
    `--quirk=${what.quirk ?? false}`,
    `--stdin=${what.input !== undefined}`,
    `--timeout=${timeoutSeconds}s`,
    what.pod,
    '--',
    ...what.argv,
  ]
  return await new Promise((resolve) => {
    const child = execFile(podexec, args, { timeout: (timeoutSeconds + 5) * 1000 }, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : typeof error.code === 'number' ? error.code : 255, stdout, stderr })
    })
    child.stdin?.on('error', () => undefined)
    child.stdin?.end(what.input ?? '')
  })
}
