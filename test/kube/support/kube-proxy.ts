/** A real kube-proxy on a test cluster's node: makes the cluster addresses of Services work there. */
import type { ControlPlane } from './control-plane.ts'
import { kubePrograms } from './kube-programs.ts'
import { makeProgram } from './program.ts'

export interface KubeProxyInit {
  readonly cluster: ControlPlane
  /** Name of the Node, whose object exists and has its addresses in its status. */
  readonly node: string
  /** The node's network namespace; the API server's address leads to it from there. */
  readonly netns: string
  /** For the log. */
  readonly directory: string
  /**
   * The whole ranges of the cluster's pods, with commas between: what comes from elsewhere to a Service is masqueraded.
   */
  readonly podCIDR?: string
  /** Default nftables. */
  readonly mode?: 'nftables' | 'iptables' | 'ipvs'
}

export interface KubeProxy {
  log(): string
  /** Ends it. What it wrote into the kernel stays, as on a real node. */
  stop(): Promise<void>
}

/** Starts it and does not wait: wait for what it does. */
export async function startKubeProxy(init: KubeProxyInit): Promise<KubeProxy> {
  const { cluster, node, netns, directory, podCIDR, mode = 'nftables' } = init
  const path = (await kubePrograms())['kube-proxy']
  if (path === undefined) throw new Error('kube-proxy is not in KUBEBUILDER_ASSETS, and there is no Go to build it')
  const kubeconfig = await cluster.kubeconfigFor({ user: 'system:kube-proxy' }, 'inside')
  const program = makeProgram({
    name: `kube-proxy-${node}`,
    path,
    args: [
      `--kubeconfig=${kubeconfig}`,
      `--hostname-override=${node}`,
      `--proxy-mode=${mode}`,
      ...(podCIDR === undefined ? [] : [`--cluster-cidr=${podCIDR}`]),
      // Limits of connection tracking belong to the machine, not to a namespace on it.
      '--conntrack-max-per-core=0',
      '--conntrack-tcp-timeout-established=0',
      '--conntrack-tcp-timeout-close-wait=0',
      '--v=0',
    ],
    directory,
    netns,
  })
  program.start()
  return { log: () => program.log(), stop: () => program.kill('SIGTERM') }
}
