/**
 * Plans an etcd of three members beside the broker, for hubs without an etcd of their own. All connections use TLS,
 * with certificates of an authority that nothing else uses. `sealane broker deploy` creates them, or the operator who
 * manages the Secrets.
 */
import {
  ETCD_MEMBERS,
  ETCD_PORTS,
  ETCD_SERVER_NAME,
  ETCD_SERVER_SECRET,
  ETCD_VOLUME,
  type InstallPart,
  type InstallValues,
  type ManifestObject,
  etcdHost,
  etcdMembers,
  objectName,
  optional,
  unlessEmpty,
  partLabels,
  selectorLabels,
  when,
} from './values/values.ts'
import { constraintsAccess } from './policies/policies.ts'
import {
  type PartRef,
  UNPRIVILEGED,
  disruptionBudget,
  metadataOf,
  podMarks,
  serviceAccount,
} from './workloads/workloads.ts'

/**
 * The limit of the database: half of the smallest recommended volume, which also holds snapshots and the write-ahead
 * log.
 */
const QUOTA_BYTES = 4 * 2 ** 30
const CERTIFICATES = '/etc/etcd/tls'
const DATA = '/var/lib/etcd'

export function planEtcd(values: InstallValues): InstallPart {
  const place: PartRef = { part: 'etcd', namespace: values.broker.namespace }
  const objects = when(
    values.etcd.enabled,
    serviceAccount(place),
    ...when(values.platform.openshift, ...constraintsAccess(['etcd'], place.namespace)),
    headlessService(place),
    statefulSet(values, place),
    disruptionBudget(place),
    ...when(values.broker.networkPolicies, networkPolicy(place)),
  )
  return { name: 'etcd', objects }
}

/** Members must find each other before they are ready, since no member is ready alone. */
function headlessService(place: PartRef): ManifestObject {
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: metadataOf(place),
    spec: {
      clusterIP: 'None',
      publishNotReadyAddresses: true,
      selector: selectorLabels('etcd'),
      ports: [
        { name: 'client', port: ETCD_PORTS.client, protocol: 'TCP', targetPort: 'client' },
        { name: 'peer', port: ETCD_PORTS.peer, protocol: 'TCP', targetPort: 'peer' },
      ],
    },
  }
}

function statefulSet(values: InstallValues, place: PartRef): ManifestObject {
  const { storage } = values.etcd
  return {
    apiVersion: 'apps/v1',
    kind: 'StatefulSet',
    metadata: metadataOf(place),
    spec: {
      replicas: ETCD_MEMBERS,
      revisionHistoryLimit: 3,
      serviceName: objectName('etcd'),
      // The first member is not ready before a second one runs.
      podManagementPolicy: 'Parallel',
      updateStrategy: { type: 'RollingUpdate' },
      // The data stays if a user deletes or scales down the StatefulSet.
      persistentVolumeClaimRetentionPolicy: { whenDeleted: 'Retain', whenScaled: 'Retain' },
      selector: { matchLabels: selectorLabels('etcd') },
      template: podTemplate(values, place),
      volumeClaimTemplates: [
        {
          apiVersion: 'v1',
          kind: 'PersistentVolumeClaim',
          metadata: { name: ETCD_VOLUME, labels: partLabels('etcd') },
          spec: {
            accessModes: ['ReadWriteOnce'],
            storageClassName: optional(storage.storageClassName),
            resources: { requests: { storage: storage.size } },
          },
        },
      ],
    },
  }
}

function podTemplate(values: InstallValues, { namespace }: PartRef): unknown {
  const { etcd, imagePullSecrets } = values
  const health = (path: string) => ({ path, port: 'health' })
  const container = {
    name: 'etcd',
    image: etcd.image,
    imagePullPolicy: 'IfNotPresent',
    command: ['etcd'],
    args: etcdArgs(namespace),
    env: [{ name: 'POD_NAME', valueFrom: { fieldRef: { apiVersion: 'v1', fieldPath: 'metadata.name' } } }],
    ports: (['client', 'peer', 'health'] as const).map((name) => ({ name, containerPort: ETCD_PORTS[name] })),
    startupProbe: { httpGet: health('/health?serializable=true'), periodSeconds: 2, failureThreshold: 150 },
    livenessProbe: {
      httpGet: health('/health?serializable=true'),
      periodSeconds: 10,
      timeoutSeconds: 5,
      failureThreshold: 8,
    },
    readinessProbe: { httpGet: health('/health'), periodSeconds: 5, timeoutSeconds: 5, failureThreshold: 3 },
    resources: etcd.resources,
    terminationMessagePolicy: 'FallbackToLogsOnError',
    securityContext: { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: ['ALL'] } },
    volumeMounts: [
      { name: ETCD_VOLUME, mountPath: DATA },
      { name: 'tls', mountPath: CERTIFICATES, readOnly: true },
    ],
  }
  return {
    metadata: podMarks('etcd', values),
    spec: {
      serviceAccountName: objectName('etcd'),
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      priorityClassName: optional(etcd.priorityClassName),
      terminationGracePeriodSeconds: 30,
      imagePullSecrets: unlessEmpty(imagePullSecrets),
      securityContext: UNPRIVILEGED,
      nodeSelector: unlessEmpty(etcd.nodeSelector),
      tolerations: unlessEmpty(etcd.tolerations),
      ...apart(),
      containers: [container],
      volumes: [{ name: 'tls', secret: { secretName: ETCD_SERVER_SECRET, defaultMode: 0o440 } }],
    },
  }
}

/**
 * Two members on one node would fail together and break the quorum. With fewer nodes than members, all members can
 * still run.
 */
function apart(): object {
  const labelSelector = { matchLabels: selectorLabels('etcd') }
  const zone = { weight: 100, podAffinityTerm: { topologyKey: 'topology.kubernetes.io/zone', labelSelector } }
  return {
    topologySpreadConstraints: [
      { maxSkew: 1, topologyKey: 'kubernetes.io/hostname', whenUnsatisfiable: 'DoNotSchedule', labelSelector },
    ],
    affinity: { podAntiAffinity: { preferredDuringSchedulingIgnoredDuringExecution: [zone] } },
  }
}

function etcdArgs(namespace: string): readonly string[] {
  const own = etcdHost('$(POD_NAME)', namespace)
  const { client, peer, health } = ETCD_PORTS
  const members = etcdMembers().map((name) => `${name}=https://${etcdHost(name, namespace)}:${peer}`)
  const files = (kind: '' | 'peer-') => [
    `--${kind}cert-file=${CERTIFICATES}/tls.crt`,
    `--${kind}key-file=${CERTIFICATES}/tls.key`,
    `--${kind}trusted-ca-file=${CERTIFICATES}/ca.crt`,
    `--${kind}client-cert-auth=true`,
  ]
  return [
    '--name=$(POD_NAME)',
    // A subdirectory, since the file system of a volume may contain lost+found.
    `--data-dir=${DATA}/data`,
    // etcd takes 0.0.0.0 for all addresses of both families, and would not start with [::] on a node without IPv6.
    `--listen-client-urls=https://0.0.0.0:${client}`,
    `--advertise-client-urls=https://${own}:${client}`,
    `--listen-peer-urls=https://0.0.0.0:${peer}`,
    `--initial-advertise-peer-urls=https://${own}:${peer}`,
    `--initial-cluster=${members.join(',')}`,
    '--initial-cluster-state=new',
    '--initial-cluster-token=sealane-etcd',
    ...files(''),
    ...files('peer-'),
    `--peer-cert-allowed-cn=${ETCD_SERVER_NAME}`,
    // Serves health and metrics, which are not secret, without TLS, since probes have no certificate.
    `--listen-metrics-urls=http://0.0.0.0:${health}`,
    `--quota-backend-bytes=${QUOTA_BYTES}`,
    '--auto-compaction-mode=periodic',
    '--auto-compaction-retention=1h',
  ]
}

function networkPolicy(place: PartRef): ManifestObject {
  const { client, peer, health } = ETCD_PORTS
  const from = (part: 'broker' | 'etcd') => [{ podSelector: { matchLabels: selectorLabels(part) } }]
  const open = (...ports: readonly number[]) => ports.map((port) => ({ protocol: 'TCP', port }))
  return {
    apiVersion: 'networking.k8s.io/v1',
    kind: 'NetworkPolicy',
    metadata: metadataOf(place),
    spec: {
      podSelector: { matchLabels: selectorLabels('etcd') },
      policyTypes: ['Ingress'],
      ingress: [
        { from: from('broker'), ports: open(client) },
        { from: from('etcd'), ports: open(client, peer) },
        { ports: open(health) },
      ],
    },
  }
}
