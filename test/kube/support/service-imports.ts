/** Exports and imports of test clusters, written in short and read as text. */
import { SYSTEM_NAMESPACE } from '../../../model/spec-constants.ts'
import { eventually } from '../../support/eventually.ts'
import type { Site } from './callers.ts'
import type { Json, KubeObject } from './kube-request.ts'
import { lastWords } from './pod-logs.ts'

const MCS = '/apis/multicluster.x-k8s.io/v1beta1/namespaces'
const DISCOVERY = '/apis/discovery.k8s.io/v1/namespaces'
const DEADLINE_MS = 20_000
const BROKER_NAMESPACE = 'sealane-broker'

export interface ImportObject extends KubeObject {
  readonly spec: {
    readonly type: string
    readonly ips?: readonly string[]
    readonly ipFamilies?: readonly string[]
    readonly ports: readonly { readonly name: string; readonly protocol: string; readonly port: number }[]
    readonly sessionAffinity?: string
    readonly sessionAffinityConfig?: { readonly clientIP?: { readonly timeoutSeconds?: number } }
    readonly internalTrafficPolicy?: string
    readonly trafficDistribution?: string
  }
  readonly status?: {
    readonly clusters?: readonly { readonly cluster: string }[]
    readonly endpointSliceObjects?: string
    readonly conditions?: readonly Condition[]
  }
}

export interface SliceObject extends KubeObject {
  readonly addressType: string
  readonly endpoints: readonly {
    readonly addresses: readonly string[]
    readonly hostname?: string
    readonly conditions?: { readonly ready?: boolean }
  }[]
}

interface Condition {
  readonly type: string
  readonly status: string
  readonly reason: string
}

export function serviceImportPath(namespace: string, name: string): string {
  return `${MCS}/${namespace}/serviceimports/${name}`
}

export async function exportService(site: Site, namespace: string, name: string, spec: Json = {}): Promise<void> {
  const body = { apiVersion: 'multicluster.x-k8s.io/v1beta1', kind: 'ServiceExport', metadata: { name }, spec }
  await site.api.apply(`${MCS}/${namespace}/serviceexports/${name}`, body)
}

export async function unexportService(site: Site, namespace: string, name: string): Promise<void> {
  await site.api.delete(`${MCS}/${namespace}/serviceexports/${name}`)
}

export function findImport(site: Site, namespace: string, name: string): Promise<ImportObject | undefined> {
  return site.api.find<ImportObject>(serviceImportPath(namespace, name))
}

/**
 * Waits until there is one in that cluster; when none comes, says what became of the export, and what our parts said.
 */
export async function awaitImport(site: Site, namespace: string, name: string): Promise<ImportObject> {
  const say = `ServiceImport ${namespace}/${name} in ${site.name}`
  try {
    return await eventually(() => findImport(site, namespace, name), { deadlineMs: DEADLINE_MS, say })
  } catch (error) {
    const { message } = error as Error
    const state = await exportState(site, namespace, name)
    const words = [await lastWords(site.api, SYSTEM_NAMESPACE), await lastWords(site.api, BROKER_NAMESPACE)].join('\n')
    throw new Error(`${message}; its export there: ${state}\n${words}`, { cause: error })
  }
}

async function exportState(site: Site, namespace: string, name: string): Promise<string> {
  const found = await site.api.find<ExportObject>(`${MCS}/${namespace}/serviceexports/${name}`)
  return found === undefined ? 'none' : JSON.stringify(found.status?.conditions ?? [])
}

interface ExportObject extends KubeObject {
  readonly status?: { readonly conditions?: readonly (Condition & { readonly message: string })[] }
}

/** The slices that the import of a service has in a cluster, from all clusters or from one. */
export async function importedSlices(
  site: Site,
  namespace: string,
  name: string,
  source?: string,
): Promise<readonly SliceObject[]> {
  const labels = [
    `multicluster.kubernetes.io/service-name=${name}`,
    ...(source === undefined ? [] : [`multicluster.kubernetes.io/source-cluster=${source}`]),
  ]
  const selector = encodeURIComponent(labels.join(','))
  return await site.api.list<SliceObject>(`${DISCOVERY}/${namespace}/endpointslices?labelSelector=${selector}`)
}

/**
 * An import in words: "ClusterSetIP IPv4 ips=1 tcp:42/TCP,udp:42/UDP ClientIP=10 Cluster PreferClose from c1,c2"; what
 * is not set is left out.
 */
export function importText(found: ImportObject | undefined): string {
  if (found === undefined) return 'none'
  const { spec, status } = found
  const ports = [...spec.ports].sort((a, b) => (a.name < b.name ? -1 : 1))
  const timeout = spec.sessionAffinityConfig?.clientIP?.timeoutSeconds
  return [
    spec.type,
    spec.ipFamilies?.join(',') ?? 'no-families',
    `ips=${spec.ips?.length ?? 0}`,
    ports.map(({ name, port, protocol }) => `${name}:${port}/${protocol}`).join(','),
    ...(spec.sessionAffinity === 'ClientIP' ? [`ClientIP=${timeout ?? ''}`] : []),
    ...(spec.internalTrafficPolicy === undefined ? [] : [spec.internalTrafficPolicy]),
    ...(spec.trafficDistribution === undefined ? [] : [spec.trafficDistribution]),
    `from ${(status?.clusters ?? [])
      .map(({ cluster }) => cluster)
      .sort()
      .join(',')}`,
  ].join(' ')
}

/** The conditions of an export in words: "Valid Ready" or "Valid Ready Conflict=PortConflict"; false ones have "!". */
export async function exportText(site: Site, namespace: string, name: string): Promise<string> {
  const found = await site.api.find<{ status?: { conditions?: readonly Condition[] } } & KubeObject>(
    `${MCS}/${namespace}/serviceexports/${name}`,
  )
  const conditions = new Map((found?.status?.conditions ?? []).map((condition) => [condition.type, condition]))
  const word = (type: string): string[] => {
    const condition = conditions.get(type)
    if (condition === undefined) return [`?${type}`]
    return condition.status === 'True' ? [type] : [`!${type}=${condition.reason}`]
  }
  const conflict = conditions.get('Conflict')
  return [
    ...word('Valid'),
    ...word('Ready'),
    ...(conflict?.status === 'True' ? [`Conflict=${conflict.reason}`] : []),
  ].join(' ')
}

/** What condition Valid of an export says; '' where there is none. */
export async function validMessage(site: Site, namespace: string, name: string): Promise<string> {
  const found = await site.api.find<ExportObject>(`${MCS}/${namespace}/serviceexports/${name}`)
  return found?.status?.conditions?.find(({ type }) => type === 'Valid')?.message ?? ''
}
