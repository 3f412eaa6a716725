/** Faults of a cluster that has joined, each made by its API as somebody there would, and taken back. */
import { askEtcd } from './etcd.ts'
import type { KubeObject, KubeRequest } from './kube-request.ts'

export interface ClusterFault {
  readonly name: string
  /** How what `sealane diagnose` names as a cause begins: `reason kind name`. */
  readonly named: string
  /** Gives what takes it back. `etcd` is the folder of the one behind the API server. */
  readonly inject: (api: KubeRequest, etcd: string) => Promise<() => Promise<void>>
}

const SYSTEM = 'sealane-system'
const QUOTAS = `/api/v1/namespaces/${SYSTEM}/resourcequotas`
const PODS = `/api/v1/namespaces/${SYSTEM}/pods`
const DEPLOYMENTS = `/apis/apps/v1/namespaces/${SYSTEM}/deployments`
const COREFILE = '/api/v1/namespaces/kube-system/configmaps/coredns'

const MISSING: readonly ClusterFault[] = [
  {
    name: 'a quota lets no pod be made',
    named: 'PartNotReady Deployment sealane-dns',
    inject: async (api) => {
      await api.apply(`${QUOTAS}/none`, {
        apiVersion: 'v1',
        kind: 'ResourceQuota',
        metadata: { name: 'none' },
        spec: { hard: { pods: '0' } },
      })
      for (const pod of await api.list(`${PODS}?labelSelector=app.kubernetes.io%2Fcomponent%3Ddns`))
        await api.delete(`${PODS}/${pod.metadata.name}?gracePeriodSeconds=0`)
      return () => api.delete(`${QUOTAS}/none`)
    },
  },
  {
    name: 'no node has a routeagent',
    named: 'RouteAgentMissing',
    inject: async (api) => {
      const path = `/apis/apps/v1/namespaces/${SYSTEM}/daemonsets/sealane-routeagent`
      const placed = (where: string | null): object => ({
        spec: { template: { spec: { nodeSelector: { 'example.com/nowhere': where } } } },
      })
      await api.merge(path, placed('yes'))
      for (const { metadata } of await api.list('/apis/sealane.io/v1alpha1/routeagents'))
        await api.delete(`/apis/sealane.io/v1alpha1/routeagents/${metadata.name}`)
      return async () => {
        await api.merge(path, placed(null))
      }
    },
  },
]

const OTHERS: readonly ClusterFault[] = [
  {
    name: 'no node has the image of a part',
    named: 'PartNotReady Deployment sealane-agent',
    inject: async (api) => {
      const path = `${DEPLOYMENTS}/sealane-agent`
      const { spec } = await api.get<KubeObject & { readonly spec: { readonly template: PodTemplate } }>(path)
      const imaged = (image: string): object => ({
        spec: { template: { spec: { containers: spec.template.spec.containers.map((one) => ({ ...one, image })) } } },
      })
      await api.merge(path, imaged('localhost/nothing:there'))
      return async () => {
        await api.merge(path, { spec: { template: { spec: spec.template.spec } } })
      }
    },
  },
  {
    name: 'the cluster DNS hands the zone on to where nobody is',
    named: 'DoesNotAnswer',
    inject: (api) => corefile(api, (text) => text.replace(/(forward \S+ )\d+\.\d+\.\d+\.\d+/, '$1192.0.2.250')),
  },
]

const BINDING = '/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/sealane-gateway'
const CRDS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'
const REVISION = 'sealane.io/crd-revision'
const WEBHOOK = '/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/nobody'

/** What others have changed of the installation, or installed beside it. */
const CHANGED: readonly ClusterFault[] = [
  {
    name: 'gateways have lost their rights',
    named: 'PartForbidden DaemonSet sealane-gateway',
    inject: async (api) => {
      const { apiVersion, kind, metadata, roleRef, subjects } = await api.get(BINDING)
      await api.delete(BINDING)
      const { name, labels } = metadata
      return async () => {
        await api.apply(BINDING, { apiVersion, kind, metadata: { name, labels }, roleRef, subjects })
      }
    },
  },
  {
    name: 'a definition is of an older release',
    named: 'DefinitionOutdated',
    inject: async (api) => {
      const path = `${CRDS}/gateways.sealane.io`
      const { labels } = (await api.get(path)).metadata
      await api.merge(path, { metadata: { labels: { [REVISION]: '1' } } })
      return async () => {
        await api.merge(path, { metadata: { labels: { [REVISION]: labels?.[REVISION] } } })
      }
    },
  },
  {
    name: 'another product is installed',
    named: 'OtherProduct Product Submariner',
    inject: async (api) => {
      const names = { plural: 'submariners', singular: 'submariner', kind: 'Submariner' }
      const path = `${CRDS}/submariners.submariner.io`
      const schema = { openAPIV3Schema: { type: 'object' } }
      await api.apply(path, {
        apiVersion: 'apiextensions.k8s.io/v1',
        kind: 'CustomResourceDefinition',
        metadata: { name: 'submariners.submariner.io' },
        spec: {
          group: 'submariner.io',
          scope: 'Namespaced',
          names,
          versions: [{ name: 'v1alpha1', served: true, storage: true, schema }],
        },
      })
      return () => api.delete(path)
    },
  },
]

const REFUSING: readonly ClusterFault[] = [
  {
    name: "a webhook that nobody answers refuses the agent's Lease",
    named: 'AdmissionRefuses Deployment sealane-agent',
    inject: async (api) => {
      await api.apply(WEBHOOK, {
        apiVersion: 'admissionregistration.k8s.io/v1',
        kind: 'ValidatingWebhookConfiguration',
        metadata: { name: 'nobody' },
        webhooks: [
          {
            name: 'nobody.example.com',
            clientConfig: { url: 'https://127.0.0.1:1/' },
            namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': SYSTEM } },
            // Gateways have Leases too, and write them at other times.
            matchConditions: [{ name: 'agent', expression: "request.name == 'sealane-agent'" }],
            rules: [
              { apiGroups: ['coordination.k8s.io'], apiVersions: ['*'], operations: ['*'], resources: ['leases'] },
            ],
            failurePolicy: 'Fail',
            sideEffects: 'None',
            admissionReviewVersions: ['v1'],
          },
        ],
      })
      return () => api.delete(WEBHOOK)
    },
  },
]

const READ_ONLY: readonly ClusterFault[] = [
  {
    name: 'the etcd of the API server has used its quota',
    named: 'ApiServerReadOnly',
    inject: async (_api, etcd) => {
      const alarm = { memberID: '1', alarm: 'NOSPACE' }
      await askEtcd(etcd, '/v3/maintenance/alarm', { action: 'ACTIVATE', ...alarm })
      return async () => {
        await askEtcd(etcd, '/v3/maintenance/alarm', { action: 'DEACTIVATE', ...alarm })
      }
    },
  },
]

/**
 * Those of one round are there at once. With the quota no pod could lack its image, and without a server of ours what
 * cluster DNS does not say follows from that.
 */
export const CLUSTER_ROUNDS: readonly (readonly ClusterFault[])[] = [MISSING, OTHERS, CHANGED, REFUSING, READ_ONLY]

interface PodTemplate {
  readonly spec: { readonly containers: readonly object[] }
}

async function corefile(api: KubeRequest, change: (text: string) => string): Promise<() => Promise<void>> {
  const { data } = await api.get<{ readonly data: Readonly<Record<string, string>> }>(COREFILE)
  const changed = Object.fromEntries(Object.entries(data).map(([name, text]) => [name, change(text)]))
  if (JSON.stringify(changed) === JSON.stringify(data)) throw new Error(`nothing to change in ${JSON.stringify(data)}`)
  await api.merge(COREFILE, { data: changed })
  return async () => {
    await api.merge(COREFILE, { data })
  }
}
