/**
 * A real Kubernetes control plane for tests: etcd, kube-apiserver, kube-controller-manager and, if asked for,
 * kube-scheduler, with TLS, RBAC and ServiceAccount tokens as in a cluster. Nodes are not part of it.
 */
import { isIP } from 'node:net'
import { join } from 'node:path'
import type { ClusterCa } from './cluster-certificates.ts'
import {
  type KubeconfigWriter,
  type Subject,
  credentialsOf,
  kubeconfigWriter,
  writeClusterFiles,
} from './cluster-files.ts'
import {
  type ControlPlaneFacts,
  FILES,
  GO_ENVIRONMENT,
  apiServerArguments,
  controllerManagerArguments,
  schedulerArguments,
} from './control-plane-arguments.ts'
import { waitForDefaultAccount, waitUntilReady } from './control-plane-ready.ts'
import { type Etcd, startEtcd } from './etcd.ts'
import { freePort } from '../../support/free-port.ts'
import { forwardFromHost } from './host-port-forward.ts'
import { kubePrograms } from './kube-programs.ts'
import { type KubeRequest, kubeRequest } from './kube-request.ts'
import type { Credentials } from './kubeconfig-file.ts'
import { type Program, makeProgram } from './program.ts'

export type ControlPlaneProgram = 'etcd' | 'kube-apiserver' | 'kube-controller-manager' | 'kube-scheduler'

export interface ControlPlaneInit {
  /** Name of the cluster in kubeconfigs and certificates; also what its keys in etcd begin with. */
  readonly name: string
  /**
   * A folder of the test's own, which exists and which the test removes. Its path must be short (a socket is in it).
   */
  readonly directory: string
  readonly serviceCIDR: string
  /** Ranges that nodes get theirs from (Node.spec.podCIDR), with commas between. Default: nodes get none. */
  readonly podCIDR?: string
  /** Address of the API server. Default 127.0.0.1. */
  readonly listen?: string
  /** A named network namespace, in which `listen` is an address. Default: the caller's. */
  readonly netns?: string
  /** An etcd to share (startEtcd). Default: one of its own. */
  readonly etcd?: Etcd
  /** Default true. Without it: no EndpointSlices, no default ServiceAccounts, nothing is cleaned up. */
  readonly controllers?: boolean
  /** Default false: whoever makes Pods sets spec.nodeName. */
  readonly scheduler?: boolean
  /** Further flags of kube-apiserver; a later flag wins. */
  readonly apiServerArguments?: readonly string[]
}

export interface ControlPlane {
  readonly name: string
  readonly directory: string
  /** Of the API server, as the caller reaches it. */
  readonly url: string
  /** As it is reached inside the network namespace; the same as url without one. */
  readonly insideUrl: string
  /** Kubeconfig of an administrator, and the same for use inside the namespace. */
  readonly kubeconfig: string
  readonly insideKubeconfig: string
  readonly caFile: string
  /** Signs certificates that the API server believes, such as a kubelet's. */
  readonly ca: ClusterCa
  /** The administrator's client. */
  readonly api: KubeRequest
  /** Writes a kubeconfig and gives its path. `inside`: for use inside the namespace. */
  kubeconfigFor(subject: Subject, where?: 'outside' | 'inside'): Promise<string>
  /** A client with those credentials. */
  apiAs(subject: Subject): Promise<KubeRequest>
  /** Ends a program and leaves it ended. Default SIGKILL. */
  kill(program: ControlPlaneProgram, signal?: NodeJS.Signals): Promise<void>
  /** Ends it if it runs, starts it, and waits until the API server is ready again (if it and etcd run). */
  restart(program: ControlPlaneProgram): Promise<void>
  /** Waits until the API server says that it is ready. */
  ready(): Promise<void>
  /** The end of a program's log. */
  logs(program: ControlPlaneProgram): string
  /** Process ids of what runs. */
  pids(): Readonly<Partial<Record<ControlPlaneProgram, number>>>
  /** Ends everything; the folder stays. Also happens when the process exits. */
  stop(): Promise<void>
}

const ADMIN = 'kubernetes-admin'
const INSIDE_PORT = 6443

/** What is known before the first program starts. */
interface Plan {
  readonly init: ControlPlaneInit
  readonly facts: ControlPlaneFacts
  readonly ca: ClusterCa
  readonly etcd: Etcd
  readonly url: string
  readonly insideUrl: string
  readonly admin: Credentials
  readonly kubeconfigs: KubeconfigWriter
}

/** By their names, etcd too. */
type Running = ReadonlyMap<ControlPlaneProgram, Program>

/**
 * Starts one and waits until it is ready: the API server says so and, with controllers, the namespace `default` has
 * its ServiceAccount. Throws with the end of the log of the program that failed, and leaves nothing running.
 */
export async function startControlPlane(init: ControlPlaneInit): Promise<ControlPlane> {
  const toStop: (() => Promise<void>)[] = []
  const stop = async (): Promise<void> => {
    for (const end of toStop.splice(0).reverse()) await end()
  }
  try {
    const plan = await preparePlan(init, toStop)
    const own = await makePrograms(plan)
    toStop.push(async () => {
      await Promise.all([...own.values()].map((program) => program.kill()))
    })
    const running = new Map([['etcd', plan.etcd.program], ...own] as const)
    const plane = describe(plan, running, stop)
    toStop.push(async () => plane.api.close())
    await startInOrder(plane, own)
    return plane
  } catch (error) {
    await stop()
    throw error
  }
}

async function preparePlan(init: ControlPlaneInit, toStop: (() => Promise<void>)[]): Promise<Plan> {
  const { name, directory, netns, serviceCIDR, listen: address = '127.0.0.1' } = init
  const files = join(directory, 'files')
  const ca = await writeClusterFiles({ files, cluster: name, address, serviceCIDR })
  const port = netns === undefined ? await freePort(address) : INSIDE_PORT
  const etcd = init.etcd ?? (await startEtcd({ directory: join(directory, 'etcd') }))
  if (init.etcd === undefined) toStop.push(() => etcd.stop())
  const insideUrl = `https://${isIP(address) === 6 ? `[${address}]` : address}:${port}`
  let url = insideUrl
  if (netns !== undefined) {
    const forward = await forwardFromHost({ directory, netns, address, port })
    toStop.push(() => forward.stop())
    url = forward.url
  }
  return {
    init,
    facts: { name, address, port, files, etcdUrl: etcd.url, serviceCIDR, podCIDR: init.podCIDR },
    ca,
    etcd,
    url,
    insideUrl,
    admin: await ca.issue({ name: ADMIN, groups: ['system:masters'] }),
    kubeconfigs: kubeconfigWriter(files, name, ca),
  }
}

/** The programs beside etcd, in the order in which they start. */
async function makePrograms(plan: Plan): Promise<Running> {
  const { init, facts, kubeconfigs, insideUrl } = plan
  const { directory, netns } = init
  const programs = await kubePrograms()
  const own = new Map<ControlPlaneProgram, Program>()
  const add = (name: ControlPlaneProgram, args: readonly string[]): void => {
    const path = programs[name]
    if (path === undefined) throw new Error(`${name} is not in KUBEBUILDER_ASSETS, and there is no Go to build it`)
    const env = { ...process.env, ...GO_ENVIRONMENT }
    own.set(name, makeProgram({ name, path, args, directory, env, ...(netns === undefined ? {} : { netns }) }))
  }
  add('kube-apiserver', [...apiServerArguments(facts), ...(init.apiServerArguments ?? [])])
  if (init.controllers ?? true) {
    const path = await kubeconfigs.forUser('controller-manager', 'system:kube-controller-manager', insideUrl)
    add('kube-controller-manager', controllerManagerArguments(facts, path))
  }
  if (init.scheduler ?? false) {
    add(
      'kube-scheduler',
      schedulerArguments(await kubeconfigs.forUser('scheduler', 'system:kube-scheduler', insideUrl)),
    )
  }
  return own
}

async function startInOrder(plane: ControlPlane, own: Running): Promise<void> {
  own.get('kube-apiserver')?.start()
  await plane.ready()
  // The others give up when the API server does not answer soon.
  for (const program of own.values()) program.start()
  const controllers = own.get('kube-controller-manager')
  if (controllers !== undefined) await waitForDefaultAccount(plane.api, controllers)
}

function describe(plan: Plan, running: Running, stop: () => Promise<void>): ControlPlane {
  const { init, ca, url, insideUrl, admin, kubeconfigs, facts } = plan
  const api = kubeRequest({ url, ca: ca.certificate, credentials: admin })
  const find = (program: ControlPlaneProgram): Program => {
    const found = running.get(program)
    if (found === undefined) throw new Error(`cluster ${init.name} has no ${program}`)
    return found
  }
  const ready = (): Promise<void> => waitUntilReady(api, [find('etcd'), find('kube-apiserver')])
  return {
    name: init.name,
    directory: init.directory,
    url,
    insideUrl,
    kubeconfig: kubeconfigs.write('admin', ADMIN, admin, url),
    insideKubeconfig: kubeconfigs.write('admin-inside', ADMIN, admin, insideUrl),
    caFile: join(facts.files, FILES.ca),
    ca,
    api,
    kubeconfigFor: (subject, where = 'outside') =>
      kubeconfigs.forSubject(subject, api, where === 'inside' ? insideUrl : url),
    apiAs: async (subject) =>
      kubeRequest({ url, ca: ca.certificate, credentials: await credentialsOf(subject, ca, api) }),
    kill: (program, signal) => find(program).kill(signal),
    restart: async (program) => {
      await find(program).kill()
      find(program).start()
      if (find('kube-apiserver').pid !== undefined && find('etcd').pid !== undefined) await ready()
    },
    ready,
    logs: (program) => find(program).log(),
    pids: () => Object.fromEntries([...running].flatMap(([name, { pid }]) => (pid === undefined ? [] : [[name, pid]]))),
    stop,
  }
}
