/** What Argo CD's health scripts should say of which objects, and where the scripts are. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { MANIFESTS } from './installed-objects.ts'
import type { Json } from './kube-request.ts'

interface Validated {
  readonly kind: string
  readonly object: Json
  readonly want: string
}

function condition(type: string, status: string, reason: string, observedGeneration = 2): Json {
  return { type, status, reason, message: 'words', observedGeneration }
}

function connection(cluster: string, state: string): Json {
  return { cluster, lane: 0, state, message: 'words' }
}

const EXPORT = 'multicluster.x-k8s.io_ServiceExport'
const IMPORT = 'multicluster.x-k8s.io_ServiceImport'
const VALID = condition('Valid', 'True', 'Valid')
const AGREED = condition('Conflict', 'False', 'NoConflicts')

function conditions(...list: readonly Json[]): Json {
  return { metadata: { generation: 2 }, status: { conditions: list } }
}

export const HEALTH_ROWS: readonly Validated[] = [
  { kind: EXPORT, object: { metadata: { generation: 1 } }, want: 'Progressing: not looked at yet' },
  {
    kind: EXPORT,
    object: conditions(condition('Valid', 'True', 'Valid', 1)),
    want: 'Progressing: the last change was not looked at yet',
  },
  { kind: EXPORT, object: conditions(condition('Valid', 'False', 'NoService')), want: 'Degraded: NoService: words' },
  {
    kind: EXPORT,
    object: conditions(VALID, condition('Ready', 'True', 'Exported'), condition('Conflict', 'True', 'PortConflict')),
    want: 'Degraded: PortConflict: words',
  },
  {
    kind: EXPORT,
    object: conditions(VALID, AGREED, condition('Ready', 'False', 'Pending')),
    want: 'Progressing: Pending: words',
  },
  {
    kind: EXPORT,
    object: conditions(VALID, AGREED, condition('Ready', 'False', 'Failed')),
    want: 'Degraded: Failed: words',
  },
  { kind: EXPORT, object: conditions(VALID, AGREED, condition('Ready', 'True', 'Exported')), want: 'Healthy: words' },
  { kind: IMPORT, object: {}, want: 'Progressing: not looked at yet' },
  { kind: IMPORT, object: conditions(condition('Ready', 'True', 'Ready')), want: 'Healthy: words' },
  { kind: IMPORT, object: conditions(condition('Ready', 'False', 'Pending')), want: 'Progressing: Pending: words' },
  {
    kind: IMPORT,
    object: conditions(condition('Ready', 'False', 'IPFamilyNotSupported')),
    want: 'Degraded: IPFamilyNotSupported: words',
  },
  { kind: 'sealane.io_Gateway', object: {}, want: 'Progressing: the gateway has not reported yet' },
  { kind: 'sealane.io_Gateway', object: { status: { failure: 'no nft' } }, want: 'Degraded: no nft' },
  {
    kind: 'sealane.io_Gateway',
    object: { status: { connections: [connection('roma', 'up'), connection('paris', 'down')] } },
    want: 'Degraded: paris on lane 0: words',
  },
  {
    kind: 'sealane.io_Gateway',
    object: { status: { connections: [connection('roma', 'connecting')] } },
    want: 'Progressing: roma on lane 0: words',
  },
  {
    kind: 'sealane.io_Gateway',
    object: { status: { connections: [connection('roma', 'up')] } },
    want: 'Healthy: 1 connections are up',
  },
  { kind: 'sealane.io_RouteAgent', object: {}, want: 'Progressing: the routeagent has not reported yet' },
  {
    kind: 'sealane.io_RouteAgent',
    object: { status: { clusters: [{ cluster: 'roma', gateways: [] }] } },
    want: 'Degraded: no way to roma',
  },
  { kind: 'sealane.io_RouteAgent', object: { status: { clusters: [] } }, want: 'Healthy: ' },
  {
    kind: 'sealane.io_Membership',
    object: { spec: { clusterId: 'roma', clusterset: 'eu', phase: 'leaving' } },
    want: 'Progressing: this cluster is leaving eu',
  },
  {
    kind: 'sealane.io_Membership',
    object: { spec: { clusterId: 'roma', clusterset: 'eu', phase: 'joined' } },
    want: 'Healthy: roma of eu',
  },
]

/** The block texts of the ConfigMap by their keys: two spaces in, lines four spaces in. */
export function healthScripts(): ReadonlyMap<string, string> {
  const text = readFileSync(join(MANIFESTS, 'argocd-cm.yaml'), 'utf8')
  const blocks = text.matchAll(/^ {2}resource\.customizations\.health\.(\S+): \|\n((?: {4}.*\n)+)/gm)
  return new Map([...blocks].map(([, key = '', lines = '']) => [key, lines.replaceAll(/^ {4}/gm, '')]))
}
