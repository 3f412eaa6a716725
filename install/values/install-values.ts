/** Defines the values of an installation and their defaults. The chart's values.yaml is generated from them. */
import { SYSTEM_NAMESPACE } from '../../model/model.ts'
import project from '../../package.json' with { type: 'json' }
import type { MarkValues, Marks } from './marks.ts'
import { ETCD_CLIENT_SECRET, includedEtcdUrl } from './names.ts'

export interface ResourceValues {
  readonly requests?: Readonly<Record<string, string>>
  readonly limits?: Readonly<Record<string, string>>
}

export interface TolerationValues {
  readonly key?: string
  readonly operator?: 'Exists' | 'Equal'
  readonly value?: string
  readonly effect?: string
}

export interface PodValues {
  readonly resources: ResourceValues
  readonly nodeSelector: Readonly<Record<string, string>>
  readonly tolerations: readonly TolerationValues[]
  /** If empty, the pods get the cluster's default. */
  readonly priorityClassName: string
}

/** `loopback` listens on the node's loopback only, `node` also on the node's InternalIP. */
export const STATUS_PLACES = ['loopback', 'node'] as const
export type StatusPlace = (typeof STATUS_PLACES)[number]

/**
 * `gone`: the agent replaces a gateway node that a join chose, once it is gone or is being removed. `missing`: it also
 * chooses nodes by itself wherever fewer than `activeGateways` of the site file are gateways. `never`: only users and
 * joins choose gateways.
 */
export const REPLACE_POLICIES = ['gone', 'missing', 'never'] as const
export type ReplacePolicy = (typeof REPLACE_POLICIES)[number]

export type ServiceType = 'LoadBalancer' | 'NodePort' | 'ClusterIP'

export interface InstallValues extends MarkValues {
  readonly image: ImageName & { readonly pullPolicy: string }
  readonly imagePullSecrets: readonly { readonly name: string }[]
  readonly logLevel: string
  readonly platform: {
    /**
     * The cluster admits pods by SecurityContextConstraints: grants each part the one that it needs. `sealane join` and
     * `sealane broker deploy` find this out themselves.
     */
    readonly openshift: boolean
    /**
     * The SELinux options of gateway and routeagent, which write on the node: `{ type: spc_t }`. If empty, the
     * container runtime chooses. Must be empty with `openshift`, where the SecurityContextConstraints sets them.
     */
    readonly seLinuxOptions: Readonly<Record<string, string>>
  }
  readonly member: {
    /** Used by the chart only. */
    readonly enabled: boolean
    readonly namespace: string
    readonly createNamespace: boolean
    /** The text of site.yaml. If empty, another tool such as `sealane join` creates ConfigMap sealane-site. */
    readonly site: string
    readonly admissionPolicies: boolean
    readonly networkPolicies: boolean
    readonly criticalPodsQuota: boolean
  }
  readonly agent: PodValues & {
    readonly replicas: number
    /** Name of a Secret with HTTPS_PROXY, and NO_PROXY if needed, for the broker and for relays. Empty: no proxy. */
    readonly proxySecret: string
  }
  readonly dns: PodValues & { readonly replicas: number; readonly clusterIP: string }
  readonly gateway: PodValues & {
    readonly userSpaceWireguard: boolean
    readonly statusListen: StatusPlace
    readonly replace: ReplacePolicy
  }
  readonly routeagent: PodValues & { readonly statusListen: StatusPlace }
  /** The console behind the API server's proxy. */
  readonly console: PodValues & { readonly enabled: boolean }
  readonly metrics: {
    /**
     * Opens the metrics of agent, dns and broker to every caller that reaches their pods. PodMonitors open them as
     * well.
     */
    readonly open: boolean
    readonly podMonitors: {
      readonly enabled: boolean
      /** A Prometheus duration, such as 30s. */
      readonly interval: string
      readonly labels: Readonly<Record<string, string>>
    }
  }
  readonly broker: PodValues & {
    /** Used by the chart only. */
    readonly enabled: boolean
    readonly namespace: string
    readonly createNamespace: boolean
    readonly networkPolicies: boolean
    /** The host:port at which members connect to the broker. */
    readonly advertise: readonly string[]
    readonly clusterset: string
    /** What sets the topology: `commands`, or also the `object` Topology in the cluster of the broker. */
    readonly topologyFrom: string
    /** Further `--flag=value` arguments of `sealane broker serve`, after those from the other values. */
    readonly extraArgs: readonly string[]
    readonly service: {
      readonly type: string
      readonly annotations: Readonly<Record<string, string>>
      readonly loadBalancerClass: string
      /** Local or Cluster. If empty, the default of the type. Not for ClusterIP. */
      readonly externalTrafficPolicy: string
    }
    /** `sqlite`: one broker with its own volume. `etcd`: replicas that use the etcd in `etcd`. */
    readonly store: string
    /** Used with `etcd` only. With `sqlite` there is one broker. */
    readonly replicas: number
    readonly etcd: {
      /** The value of `sealane broker serve --store`. */
      readonly url: string
      /** How the broker authenticates. */
      readonly login: string
      /** The name of the Secret with ca.crt, and either tls.crt and tls.key, or password. */
      readonly secret: string
    }
    /** Used with `sqlite` only. */
    readonly storage: { readonly size: string; readonly storageClassName: string }
  }
  /** An etcd of three members beside the broker. */
  readonly etcd: PodValues & {
    readonly enabled: boolean
    readonly image: string
    /** The volume of each member. */
    readonly storage: { readonly size: string; readonly storageClassName: string }
  }
}

export const STORES = ['sqlite', 'etcd'] as const
export const TOPOLOGY_SOURCES = ['commands', 'object'] as const
export const ETCD_LOGINS = ['certificate', 'password'] as const
export type EtcdLogin = (typeof ETCD_LOGINS)[number]

/** A process uses about 100 MiB of resident memory; an agent with 1,000 services up to 200 MiB (docs/benchmarks.md). */
const RESIDENT = '128Mi'

/**
 * There is no CPU limit: throttled probes would look like a dead lane, and throttled DNS like a dead service. The CPU
 * request sets the share under full load: with less, the loss of a gateway is detected late (decision 87).
 */
function resources(cpu: string, memoryLimit: string, memory = RESIDENT): ResourceValues {
  return { requests: { cpu, memory }, limits: { memory: memoryLimit } }
}

/** These pods provide the node's network, so they run on every node. */
const EVERYWHERE: readonly TolerationValues[] = [{ operator: 'Exists' }]

/** The classes that every cluster has. Pods of the network precede those that run on it. */
const NODE_CRITICAL = 'system-node-critical'
const CLUSTER_CRITICAL = 'system-cluster-critical'

const NO_MARKS: Marks = { labels: {}, annotations: {} }

export const DEFAULT_VALUES: InstallValues = {
  // `SEALANE_IMAGE=… npm run build` writes another name into the built package.json.
  image: { ...parseImageName(project.config.image, project.version), pullPolicy: 'IfNotPresent' },
  imagePullSecrets: [],
  logLevel: 'info',
  objects: NO_MARKS,
  pods: NO_MARKS,
  platform: { openshift: false, seLinuxOptions: {} },
  member: {
    enabled: true,
    namespace: SYSTEM_NAMESPACE,
    createNamespace: true,
    site: '',
    admissionPolicies: true,
    networkPolicies: true,
    criticalPodsQuota: false,
  },
  agent: {
    replicas: 2,
    proxySecret: '',
    resources: resources('50m', '512Mi', '200Mi'),
    nodeSelector: {},
    tolerations: [],
    priorityClassName: CLUSTER_CRITICAL,
  },
  dns: {
    replicas: 2,
    clusterIP: '',
    resources: resources('50m', '256Mi'),
    nodeSelector: {},
    tolerations: [],
    priorityClassName: CLUSTER_CRITICAL,
  },
  gateway: {
    userSpaceWireguard: true,
    statusListen: 'loopback',
    replace: 'gone',
    resources: resources('250m', '512Mi'),
    nodeSelector: {},
    tolerations: EVERYWHERE,
    priorityClassName: NODE_CRITICAL,
  },
  routeagent: {
    statusListen: 'loopback',
    resources: resources('100m', '512Mi'),
    nodeSelector: {},
    tolerations: EVERYWHERE,
    priorityClassName: NODE_CRITICAL,
  },
  console: {
    enabled: false,
    resources: resources('50m', '512Mi', '200Mi'),
    nodeSelector: {},
    tolerations: [],
    // Calls between clusters do not depend on it.
    priorityClassName: '',
  },
  metrics: { open: false, podMonitors: { enabled: false, interval: '30s', labels: {} } },
  broker: {
    enabled: false,
    namespace: 'sealane-broker',
    createNamespace: true,
    networkPolicies: true,
    advertise: ['sealane-broker.sealane-broker.svc:7443'],
    clusterset: 'default',
    topologyFrom: 'commands',
    extraArgs: [],
    service: { type: 'LoadBalancer', annotations: {}, loadBalancerClass: '', externalTrafficPolicy: '' },
    store: 'sqlite',
    replicas: 3,
    etcd: { url: includedEtcdUrl('sealane-broker'), login: 'certificate', secret: ETCD_CLIENT_SECRET },
    storage: { size: '1Gi', storageClassName: '' },
    resources: resources('100m', '512Mi'),
    nodeSelector: {},
    tolerations: [],
    priorityClassName: CLUSTER_CRITICAL,
  },
  etcd: {
    enabled: false,
    image: 'registry.k8s.io/etcd:3.5.21-0',
    storage: { size: '8Gi', storageClassName: '' },
    resources: resources('100m', '2Gi', '256Mi'),
    nodeSelector: {},
    tolerations: [],
    priorityClassName: CLUSTER_CRITICAL,
  },
}

/**
 * `own`: one broker with its own volume. `included`: replicas with an etcd that is installed with them. `given`:
 * replicas that use an existing etcd.
 */
export type BrokerForm = 'own' | 'included' | 'given'

export function formOf({ broker, etcd }: Pick<InstallValues, 'broker' | 'etcd'>): BrokerForm {
  if (broker.store === 'sqlite') return 'own'
  return etcd.enabled ? 'included' : 'given'
}

/** A parsed image name, as pods and nodes use it. */

export interface ImageName {
  /** For example, `registry.example.org:5000/tools/sealane`. */
  readonly repository: string
  /** The tag, such as `0.1.0`. For an image by digest, the text after the last colon. */
  readonly tag: string
}

/** A name without a tag gets `tag`. A colon before the last slash belongs to a registry's port. */
export function parseImageName(text: string, tag = 'latest'): ImageName {
  const at = text.lastIndexOf(':')
  if (at <= text.lastIndexOf('/')) return { repository: text, tag }
  return { repository: text.slice(0, at), tag: text.slice(at + 1) }
}

export function formatImageName({ repository, tag }: ImageName): string {
  return `${repository}:${tag}`
}

/** The name as nodes list it, with the registry and folder that a short name implies: `docker.io/library/busybox:1`. */
export function fullImageName(text: string): string {
  const { repository, tag } = parseImageName(text)
  const [first = ''] = repository.split('/')
  if (!repository.includes('/')) return `docker.io/library/${repository}:${tag}`
  const isHost = first.includes('.') || first.includes(':') || first === 'localhost'
  return isHost ? `${repository}:${tag}` : `docker.io/${repository}:${tag}`
}
