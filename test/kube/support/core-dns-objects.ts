/** CoreDNS as kubeadm installs it, on the program that ../coredns builds. */
export const CORE_DNS_IMAGE = 'localhost/coredns:test'
/** Each reads its settings in its own time. */
export const CORE_DNS_PODS = 2

export interface PlacedObject {
  /** Path of the object on the API server. */
  readonly path: string
  readonly body: object
}

const LABELS = { 'k8s-app': 'kube-dns' }
const NAMESPACE = '/api/v1/namespaces/kube-system'
const RBAC = '/apis/rbac.authorization.k8s.io/v1'

const COREFILE = `.:53 {
    errors
    health {
       lameduck 1s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 5
    }
    cache 5
    loop
    reload 2s 1s
}
`

/** In the order in which they are applied. */
export function coreDnsObjects(clusterIP: string): readonly PlacedObject[] {
  const metadata = { name: 'coredns', namespace: 'kube-system' }
  return [
    {
      path: `${NAMESPACE}/serviceaccounts/coredns`,
      body: { apiVersion: 'v1', kind: 'ServiceAccount', metadata },
    },
    {
      path: `${RBAC}/clusterroles/system:coredns`,
      body: {
        apiVersion: 'rbac.authorization.k8s.io/v1',
        kind: 'ClusterRole',
        metadata: { name: 'system:coredns' },
        rules: [
          { apiGroups: [''], resources: ['services', 'pods', 'namespaces'], verbs: ['list', 'watch'] },
          { apiGroups: ['discovery.k8s.io'], resources: ['endpointslices'], verbs: ['list', 'watch'] },
        ],
      },
    },
    {
      path: `${RBAC}/clusterrolebindings/system:coredns`,
      body: {
        apiVersion: 'rbac.authorization.k8s.io/v1',
        kind: 'ClusterRoleBinding',
        metadata: { name: 'system:coredns' },
        roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'system:coredns' },
        subjects: [{ kind: 'ServiceAccount', name: 'coredns', namespace: 'kube-system' }],
      },
    },
    {
      path: `${NAMESPACE}/configmaps/coredns`,
      body: { apiVersion: 'v1', kind: 'ConfigMap', metadata, data: { Corefile: COREFILE } },
    },
    {
      path: `${NAMESPACE}/services/kube-dns`,
      body: {
        apiVersion: 'v1',
        kind: 'Service',
        metadata: { name: 'kube-dns', namespace: 'kube-system', labels: LABELS },
        spec: {
          clusterIP,
          selector: LABELS,
          ports: [
            { name: 'dns', port: 53, protocol: 'UDP' },
            { name: 'dns-tcp', port: 53, protocol: 'TCP' },
          ],
        },
      },
    },
    { path: '/apis/apps/v1/namespaces/kube-system/deployments/coredns', body: deployment(metadata) },
  ]
}

function deployment(metadata: object): object {
  return {
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { ...metadata, labels: LABELS },
    spec: {
      replicas: CORE_DNS_PODS,
      selector: { matchLabels: LABELS },
      template: {
        metadata: { labels: LABELS },
        spec: {
          serviceAccountName: 'coredns',
          dnsPolicy: 'Default',
          containers: [
            {
              name: 'coredns',
              image: CORE_DNS_IMAGE,
              args: ['-conf', '/etc/coredns/Corefile'],
              readinessProbe: { httpGet: { path: '/ready', port: 8181 }, periodSeconds: 1 },
              volumeMounts: [{ name: 'config', mountPath: '/etc/coredns', readOnly: true }],
            },
          ],
          volumes: [{ name: 'config', configMap: { name: 'coredns' } }],
        },
      },
    },
  }
}
