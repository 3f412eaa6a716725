/** The pods of all components: what they share, and how little each may do. */
import { type PartName, SITE_CONFIG, SITE_KEY, objectName, partLabels } from './names.ts'
import { STATUS_PORTS } from './ports.ts'
import { digest } from './template-value.ts'
import type { InstallValues, PodValues } from './values.ts'

/** Nobody in particular; the number that distroless images use too. */
const UNPRIVILEGED_ID = 65_532

/** A volume and where the container sees it. `source` is the volume's own field, such as `{ emptyDir: {} }`. */
export interface Mount {
  readonly name: string
  readonly path: string
  readonly source: Readonly<Record<string, unknown>>
  readonly readOnly?: boolean
}

export interface PodInit {
  readonly part: PartName
  readonly values: InstallValues
  readonly pod: PodValues
  readonly priority: 'system-node-critical' | 'system-cluster-critical'
  readonly args: readonly string[]
  /** Volumes and mounts as lists, so that a mount may depend on a value. */
  readonly volumes: readonly unknown[]
  readonly volumeMounts: readonly unknown[]
  readonly env?: readonly unknown[]
  readonly ports?: readonly unknown[]
  /** Goes over what all pod specs have. */
  readonly spec?: Readonly<Record<string, unknown>>
}

export function volumeOf({ name, source }: Mount): unknown {
  return { name, ...source }
}

export function mountOf({ name, path, readOnly }: Mount): unknown {
  return { name, mountPath: path, ...(readOnly === true ? { readOnly: true } : {}) }
}

export const SITE_MOUNT: Mount = {
  name: 'site',
  path: '/etc/sealane',
  source: { configMap: { name: SITE_CONFIG, items: [{ key: SITE_KEY, path: SITE_KEY }] } },
  readOnly: true,
}

/** A component that talks to the API server, away from the node's own network. */
export function unprivilegedPod(init: PodInit): unknown {
  const ids = { runAsUser: UNPRIVILEGED_ID, runAsGroup: UNPRIVILEGED_ID, fsGroup: UNPRIVILEGED_ID }
  return podTemplate(init, {
    listen: '0.0.0.0',
    podSecurity: { runAsNonRoot: true, ...ids, seccompProfile: { type: 'RuntimeDefault' } },
    capabilities: { drop: ['ALL'] },
  })
}

/** A component that changes the node's own network: root without any power but that one. */
export function nodeNetworkPod(init: PodInit): unknown {
  const template = podTemplate(
    {
      ...init,
      // The node's own resolver: these pods must start while cluster DNS is away.
      spec: { hostNetwork: true, dnsPolicy: 'Default', ...init.spec },
    },
    {
      // Plans name addresses and peers, and the node's addresses may be public: loopback only.
      listen: '127.0.0.1',
      podSecurity: { runAsUser: 0, runAsGroup: 0, seccompProfile: { type: 'RuntimeDefault' } },
      capabilities: { drop: ['ALL'], add: ['NET_ADMIN'] },
    },
  )
  return template
}

interface Confinement {
  readonly listen: '0.0.0.0' | '127.0.0.1'
  readonly podSecurity: Readonly<Record<string, unknown>>
  readonly capabilities: Readonly<Record<string, readonly string[]>>
}

function podTemplate(init: PodInit, { listen, podSecurity, capabilities }: Confinement): unknown {
  const { part, values, pod } = init
  const port = STATUS_PORTS[part]
  const container = {
    name: part,
    image: `${values.image.repository}:${values.image.tag}`,
    imagePullPolicy: values.image.pullPolicy,
    args: [...init.args, '--status-listen', `${listen}:${port}`, '--log-level', values.logLevel],
    ...(init.env === undefined ? {} : { env: init.env }),
    ...(init.ports === undefined ? {} : { ports: init.ports }),
    ...probes(port, listen),
    resources: pod.resources,
    securityContext: { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities },
    volumeMounts: init.volumeMounts,
  }
  const usesSite = part !== 'broker'
  return {
    metadata: {
      labels: partLabels(part),
      // A change of the site file starts the pods anew: it is read once.
      ...(usesSite ? { annotations: { 'sealane.io/site-digest': digest(values.member.site) } } : {}),
    },
    spec: {
      serviceAccountName: objectName(part),
      // Only who talks to the API server has a token.
      automountServiceAccountToken: usesSite,
      enableServiceLinks: false,
      priorityClassName: init.priority,
      terminationGracePeriodSeconds: 15,
      imagePullSecrets: values.imagePullSecrets,
      securityContext: podSecurity,
      nodeSelector: pod.nodeSelector,
      tolerations: pod.tolerations,
      ...init.spec,
      containers: [container],
      volumes: init.volumes,
    },
  }
}

function probes(port: number, listen: '0.0.0.0' | '127.0.0.1'): Readonly<Record<string, unknown>> {
  const get = (path: string) => ({ path, port, ...(listen === '127.0.0.1' ? { host: listen } : {}) })
  return {
    // Node needs a moment to start where many pods do so at once.
    startupProbe: { httpGet: get('/healthz'), periodSeconds: 1, failureThreshold: 60 },
    livenessProbe: { httpGet: get('/healthz'), periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6 },
    readinessProbe: { httpGet: get('/readyz'), periodSeconds: 2, timeoutSeconds: 2, failureThreshold: 3 },
  }
}

/** What every component of a member is started with. */
export function upArgs(part: PartName): readonly string[] {
  return ['up', '--site', `${SITE_MOUNT.path}/${SITE_KEY}`, '--component', part, '--node', '$(NODE_NAME)']
}

/** With the version that the server would fill in: fieldRef has one owner as a whole. */
export const NODE_NAME = {
  name: 'NODE_NAME',
  valueFrom: { fieldRef: { apiVersion: 'v1', fieldPath: 'spec.nodeName' } },
}
