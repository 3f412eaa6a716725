/** The command lines and the environment of a test cluster's programs. */
import { isIPv4 } from 'node:net'
import { join } from 'node:path'

export interface ControlPlaneFacts {
  readonly name: string
  /** Where the address and port of the API server are. */
  readonly address: string
  readonly port: number
  /** Folder of certificates, keys and kubeconfigs; see FILES. */
  readonly files: string
  readonly etcdUrl: string
  readonly serviceCIDR: string
  readonly podCIDR: string | undefined
}

/** Names in the folder of certificates. */
export const FILES = {
  ca: 'ca.crt',
  caKey: 'ca.key',
  server: 'apiserver.crt',
  serverKey: 'apiserver.key',
  kubelet: 'apiserver-kubelet-client.crt',
  kubeletKey: 'apiserver-kubelet-client.key',
  tokens: 'sa.pub',
  tokensKey: 'sa.key',
} as const

/**
 * They clear away less often, up to a size that is twice their usual one: an API server is busy with that for a fifth
 * of its time. Above it they do what they always do.
 */
export const GO_ENVIRONMENT: NodeJS.ProcessEnv = { GOGC: '400', GOMEMLIMIT: '900MiB' }

/** The sockets that etcd makes in its working folder. They work across network namespaces and need no port. */
export const ETCD_SOCKET = 'client.sock:0'
export const PEER_SOCKET = 'peer.sock:0'

/** etcd for one machine: alone, and not waiting long for others to take part in an election. */
export function etcdArguments(): string[] {
  return [
    '--name=only',
    '--data-dir=data',
    `--listen-client-urls=unix://${ETCD_SOCKET}`,
    `--advertise-client-urls=unix://${ETCD_SOCKET}`,
    `--listen-peer-urls=unix://${PEER_SOCKET}`,
    `--initial-advertise-peer-urls=unix://${PEER_SOCKET}`,
    `--initial-cluster=only=unix://${PEER_SOCKET}`,
    '--heartbeat-interval=50',
    '--election-timeout=500',
    // The API server's watch cache learns by these that it is up to date. More often they are a third of what an idle
    // API server does.
    '--experimental-watch-progress-notify-interval=60s',
    '--quota-backend-bytes=4294967296',
    // What a killed process has written is kept by the kernel. The machine does not fail in a test.
    '--unsafe-no-fsync',
    '--log-level=warn',
    '--logger=zap',
    '--log-outputs=stderr',
  ]
}

/** As kubeadm starts it, as far as that makes sense on one machine. */
export function apiServerArguments(facts: ControlPlaneFacts): string[] {
  const file = (name: keyof typeof FILES): string => join(facts.files, FILES[name])
  const loopback = facts.address.startsWith('127.')
  return [
    `--etcd-servers=${facts.etcdUrl}`,
    `--etcd-prefix=/${facts.name}`,
    `--bind-address=${facts.address}`,
    `--secure-port=${facts.port}`,
    `--advertise-address=${facts.address}`,
    // An endpoint may not be a loopback address, so the Service kubernetes has none there.
    ...(loopback ? ['--endpoint-reconciler-type=none'] : []),
    `--tls-cert-file=${file('server')}`,
    `--tls-private-key-file=${file('serverKey')}`,
    `--client-ca-file=${file('ca')}`,
    `--kubelet-client-certificate=${file('kubelet')}`,
    `--kubelet-client-key=${file('kubeletKey')}`,
    '--kubelet-preferred-address-types=InternalIP',
    '--authorization-mode=Node,RBAC',
    '--enable-admission-plugins=NodeRestriction',
    '--allow-privileged=true',
    '--service-account-issuer=https://kubernetes.default.svc.cluster.local',
    `--service-account-key-file=${file('tokens')}`,
    `--service-account-signing-key-file=${file('tokensKey')}`,
    `--service-cluster-ip-range=${facts.serviceCIDR}`,
    '--profiling=false',
    '--v=0',
  ]
}

/** All controllers but those that only a cloud or storage has a use for. */
export function controllerManagerArguments(facts: ControlPlaneFacts, kubeconfig: string): string[] {
  const file = (name: keyof typeof FILES): string => join(facts.files, FILES[name])
  const off = ['horizontal-pod-autoscaler-controller', 'persistentvolume-attach-detach-controller']
  return [
    `--kubeconfig=${kubeconfig}`,
    `--cluster-name=${facts.name}`,
    `--controllers=*,${off.map((name) => `-${name}`).join(',')}`,
    '--use-service-account-credentials=true',
    `--service-account-private-key-file=${file('tokensKey')}`,
    `--root-ca-file=${file('ca')}`,
    `--cluster-signing-cert-file=${file('ca')}`,
    `--cluster-signing-key-file=${file('caKey')}`,
    `--service-cluster-ip-range=${facts.serviceCIDR}`,
    ...nodeRanges(facts.podCIDR),
    '--leader-elect=false',
    '--secure-port=0',
    '--kube-api-qps=200',
    '--kube-api-burst=400',
    '--v=0',
  ]
}

function nodeRanges(podCIDR: string | undefined): string[] {
  if (podCIDR === undefined) return ['--allocate-node-cidrs=false']
  const ranges = podCIDR.split(',')
  const masks = ranges.map((range) => {
    const [address = '', length = '0'] = range.split('/')
    const [usual, family] = isIPv4(address) ? [24, 'ipv4'] : [64, 'ipv6']
    const mask = Math.max(usual, Number(length) + 1)
    return ranges.length === 1 ? `--node-cidr-mask-size=${mask}` : `--node-cidr-mask-size-${family}=${mask}`
  })
  return ['--allocate-node-cidrs=true', `--cluster-cidr=${podCIDR}`, ...masks]
}

export function schedulerArguments(kubeconfig: string): string[] {
  return [`--kubeconfig=${kubeconfig}`, '--leader-elect=false', '--secure-port=0', '--v=0']
}
