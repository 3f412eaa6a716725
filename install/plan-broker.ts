/** Plans the objects of the broker's installation on the hub. */
import {
  BROKER_AUTHORITY,
  BROKER_CLAIM,
  ADMIN_PORT,
  BROKER_PORT,
  type InstallPart,
  type InstallValues,
  type ManifestObject,
  STATUS_PORTS,
  each,
  marked,
  namespaceObject,
  objectName,
  optional,
  orByTable,
  partLabels,
  selectorLabels,
  when,
  whenIs,
} from './values/values.ts'
import {
  type Mount,
  type PartRef,
  EVERYWHERE,
  type PodInit,
  brokerMonitors,
  deployment,
  disruptionBudget,
  metadataOf,
  mountOf,
  serviceAccount,
  spread,
  unprivilegedPod,
  volumeOf,
} from './workloads/workloads.ts'
import { planEtcd } from './plan-etcd.ts'
import { clusterAccess, constraintsAccess, networkPolicy } from './policies/policies.ts'

/** The broker creates its own folder in the volume, with mode 0700. */
const DATA: Mount = {
  name: 'data',
  path: '/var/lib/sealane',
  source: { persistentVolumeClaim: { claimName: BROKER_CLAIM } },
}
/**
 * The key of the certificate authority, if an operator keeps it in a Secret instead of the broker's volume. The broker
 * checks for it while it runs, so it may be added later. Only the group of the pod can read it.
 */
const AUTHORITY: Mount = {
  name: 'authority',
  path: '/etc/sealane/authority',
  source: { secret: { secretName: BROKER_AUTHORITY, optional: true, defaultMode: 0o440 } },
  readOnly: true,
}
/** The token for the API server, at the kubelet's own place for it. A broker that follows no object has none. */
const API_TOKEN: Mount = {
  name: 'api-token',
  path: '/var/run/secrets/kubernetes.io/serviceaccount',
  source: {
    projected: {
      defaultMode: 0o440,
      sources: [
        { serviceAccountToken: { path: 'token', expirationSeconds: 3607 } },
        { configMap: { name: 'kube-root-ca.crt', items: [{ key: 'ca.crt', path: 'ca.crt' }] } },
      ],
    },
  },
  readOnly: true,
}
/** SQLite sorts large results in a temporary file. */
const SCRATCH: Mount = { name: 'scratch', path: '/tmp', source: { emptyDir: { sizeLimit: '256Mi' } } }

export function planBroker(values: InstallValues): readonly InstallPart[] {
  const { broker } = values
  const place: PartRef = { part: 'broker', namespace: broker.namespace }
  const objects = [
    ...when(broker.createNamespace, namespaceObject(broker.namespace, 'restricted')),
    serviceAccount(place),
    ...when(values.platform.openshift, ...constraintsAccess(['broker'], place.namespace)),
    ...whenIs(broker.topologyFrom, 'object', ...clusterAccess(place)),
    ...whenIs(broker.store, 'sqlite', claim(values, place)),
    service(values, place),
    ...whenIs(broker.store, 'sqlite', statefulSet(values, place)),
    ...whenIs(broker.store, 'etcd', replicas(values, place)),
    disruptionBudget(place),
    ...networkPolicy(place, broker.networkPolicies),
    ...brokerMonitors(values),
  ]
  const parts: readonly InstallPart[] = [{ name: 'broker', objects }, planEtcd(values)]
  return parts.map((part) => ({ ...part, objects: marked(part.objects, values) }))
}

function claim({ broker: { storage } }: InstallValues, { namespace }: PartRef): ManifestObject {
  return {
    apiVersion: 'v1',
    kind: 'PersistentVolumeClaim',
    metadata: { name: BROKER_CLAIM, namespace, labels: partLabels('broker') },
    spec: {
      accessModes: ['ReadWriteOnce'],
      storageClassName: optional(storage.storageClassName),
      resources: { requests: { storage: storage.size } },
    },
  }
}

/**
 * The defaults of externalTrafficPolicy. A load balancer sends to the node that has the pod, so with Local the pod sees
 * the caller's address. With a NodePort, members get the addresses of several nodes: with Local, only one of them would
 * answer.
 */
const POLICIES = { LoadBalancer: 'Local', NodePort: 'Cluster' }

function service({ broker }: InstallValues, { namespace }: PartRef): ManifestObject {
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: {
      name: objectName('broker'),
      namespace,
      labels: partLabels('broker'),
      annotations: broker.service.annotations,
    },
    spec: {
      type: broker.service.type,
      loadBalancerClass: optional(broker.service.loadBalancerClass),
      externalTrafficPolicy: optional(orByTable(broker.service.externalTrafficPolicy, broker.service.type, POLICIES)),
      selector: selectorLabels('broker'),
      ports: [{ name: 'broker', port: BROKER_PORT, protocol: 'TCP', targetPort: 'broker' }],
    },
  }
}

/** An environment variable of `sealane broker serve`. */
export const EXTERNAL_TRAFFIC_POLICY = 'SEALANE_EXTERNAL_TRAFFIC_POLICY'

/**
 * An environment variable of `sealane broker serve`. By default, the audit log goes to the container's output, so that
 * the cluster's log collector has it when it is needed. `--audit-log off` among the extra arguments disables it.
 */
export const AUDIT_LOG = 'SEALANE_AUDIT_LOG'
/** For the port-forward by which operators reach the admin service: the broker alone can use the loopback of its pod. */
const ADMIN_LISTEN = 'SEALANE_ADMIN_LISTEN'

/** An environment variable of `sealane broker serve`: a directory, which need not exist. */
export const AUTHORITY_DIR = 'SEALANE_CA_DIR'

/** An environment variable of `sealane broker serve`. */
export const TOPOLOGY_FROM = 'SEALANE_TOPOLOGY_FROM'
const FOLLOWS = { name: TOPOLOGY_FROM, value: 'object' }

/** What following the object adds to the workload of a broker, as a JSON patch (RFC 6902). */
export function followTopologyPatch(): readonly object[] {
  const [spec, container] = ['/spec/template/spec', '/spec/template/spec/containers/0']
  return [
    { op: 'add', path: `${container}/env/-`, value: FOLLOWS },
    { op: 'add', path: `${container}/volumeMounts/-`, value: mountOf(API_TOKEN) },
    { op: 'add', path: `${spec}/volumes/-`, value: volumeOf(API_TOKEN) },
  ]
}

/** A StatefulSet, since two brokers must never use one database, which a Deployment does not guarantee. */
function statefulSet(values: InstallValues, place: PartRef): ManifestObject {
  const mounts = [DATA, AUTHORITY, SCRATCH]
  return {
    apiVersion: 'apps/v1',
    kind: 'StatefulSet',
    metadata: metadataOf(place),
    spec: {
      replicas: 1,
      revisionHistoryLimit: 3,
      serviceName: objectName('broker'),
      selector: { matchLabels: selectorLabels('broker') },
      template: pod(values, { volumes: mounts.map(volumeOf), volumeMounts: mounts.map(mountOf) }),
    },
  }
}

/** The records are in the shared store, so the folder only holds a copy of the certificate authority. */
const FOLDER: Mount = { ...DATA, source: { emptyDir: { sizeLimit: '64Mi' } } }
const LOGIN = '/etc/sealane-etcd'
/** The volume of the Secret with the etcd credentials. */
export const ETCD_LOGIN_VOLUME = 'etcd-login'

/**
 * A stopping replica disconnects its members one by one, and each member reconnects from time to time, so that members
 * spread over the replicas.
 */
export const REPLICA_ARGS = ['--connection-age', '20m', '--drain', '10s'] as const
/** The drain, plus the time that the broker needs to close. */
const REPLICA_GRACE_SECONDS = 30

function replicas(values: InstallValues, place: PartRef): ManifestObject {
  const { etcd, replicas } = values.broker
  const login: Mount = {
    name: ETCD_LOGIN_VOLUME,
    path: LOGIN,
    source: { secret: { secretName: etcd.secret, defaultMode: 0o440 } },
    readOnly: true,
  }
  const mounts = [FOLDER, AUTHORITY, SCRATCH, login]
  const template = pod(values, {
    args: [
      ...['--store', etcd.url, '--etcd-ca', `${LOGIN}/ca.crt`],
      ...whenIs(etcd.login, 'certificate', ...['--etcd-cert', `${LOGIN}/tls.crt`, '--etcd-key', `${LOGIN}/tls.key`]),
      ...whenIs(etcd.login, 'password', '--etcd-password-file', `${LOGIN}/password`),
      ...REPLICA_ARGS,
    ],
    volumes: mounts.map(volumeOf),
    volumeMounts: mounts.map(mountOf),
    spec: { ...spread('broker'), terminationGracePeriodSeconds: REPLICA_GRACE_SECONDS },
  })
  return deployment(place, replicas, template)
}

function pod(
  values: InstallValues,
  own: Pick<PodInit, 'volumes' | 'volumeMounts' | 'spec'> & { readonly args?: readonly string[] },
): unknown {
  const { broker } = values
  const { externalTrafficPolicy, type } = broker.service
  // The source address of a call to a ClusterIP from outside the cluster is unknown.
  const follows = <T>(...items: readonly T[]): readonly T[] => whenIs(broker.topologyFrom, 'object', ...items)
  const policy = orByTable(externalTrafficPolicy, type, { ...POLICIES, ClusterIP: 'Cluster' })
  return unprivilegedPod({
    part: 'broker',
    values,
    pod: broker,
    ...own,
    volumes: [...own.volumes, ...follows(volumeOf(API_TOKEN))],
    volumeMounts: [...own.volumeMounts, ...follows(mountOf(API_TOKEN))],
    args: [
      ...['broker', 'serve', '--state', `${DATA.path}/broker`, '--listen', `${EVERYWHERE}:${BROKER_PORT}`],
      ...['--clusterset', broker.clusterset, ...each(broker.advertise, (one) => ['--advertise', one])],
      ...(own.args ?? []),
      ...each(broker.extraArgs, (one) => [one]),
    ],
    // Environment variables instead of flags: a custom image may have an earlier release, which would not start with an
    // unknown flag.
    env: [
      { name: EXTERNAL_TRAFFIC_POLICY, value: policy },
      { name: AUDIT_LOG, value: '-' },
      { name: ADMIN_LISTEN, value: `127.0.0.1:${ADMIN_PORT}` },
      { name: AUTHORITY_DIR, value: AUTHORITY.path },
      ...follows(FOLLOWS),
    ],
    ports: [
      { name: 'broker', containerPort: BROKER_PORT },
      { name: 'status', containerPort: STATUS_PORTS.broker },
    ],
  })
}
