/** Every generated file below manifests/, as text by path. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { formatYaml } from '../kubeapi/yaml.ts'
import { ALL_CRDS } from '../install/crds/all-crds.ts'
import { type InstallPart, type PartName, objectName } from '../install/values/names.ts'
import { TOPOLOGY } from '../install/crds/sealane-crds.ts'
import { followTopologyPatch, planBroker } from '../install/plan-broker.ts'
import { planMember } from '../install/plan-member.ts'
import { openMetricsPatch, requiredSccPatch, statusOnNodePatch } from '../install/workloads/pod.ts'
import { Conditional, ExtendedMap, type ManifestObject, placeholders } from '../install/values/manifest.ts'
import { DEFAULT_VALUES, type InstallValues } from '../install/values/install-values.ts'
import { chartTemplate } from './chart-yaml.ts'
import { valuesSchema, valuesYaml } from './chart-values.ts'
import { HEADER, component, documents, kustomization } from './manifest-text.ts'
import { monitoringFiles } from './monitoring-files.ts'

/** The folders below manifests/ that manifestFiles() fills. */
export const GENERATED_FOLDERS = [
  ...['base', 'broker', 'broker-replicas', 'chart', 'console', 'crds', 'metrics', 'monitoring', 'openshift'],
  ...['openshift-broker', 'topology'],
] as const

/** Parts that the chart installs when broker.enabled is set; the others are the member's. */
const BROKER_PARTS: ReadonlySet<string> = new Set(['broker', 'etcd'])

/** What Kustomize component `metrics` makes of the defaults. */
export const METRICS_VALUES: InstallValues = {
  ...DEFAULT_VALUES,
  gateway: { ...DEFAULT_VALUES.gateway, statusListen: 'node' },
  routeagent: { ...DEFAULT_VALUES.routeagent, statusListen: 'node' },
  metrics: { ...DEFAULT_VALUES.metrics, podMonitors: { ...DEFAULT_VALUES.metrics.podMonitors, enabled: true } },
}

/** What folder `broker-replicas` has: three brokers, and an etcd of three members. */
export const REPLICAS_VALUES: InstallValues = {
  ...DEFAULT_VALUES,
  broker: { ...DEFAULT_VALUES.broker, store: 'etcd' },
  etcd: { ...DEFAULT_VALUES.etcd, enabled: true },
}

const OPENSHIFT_VALUES: InstallValues = {
  ...REPLICAS_VALUES,
  platform: { ...DEFAULT_VALUES.platform, openshift: true },
}

/** Paths are relative to manifests/. */
export function manifestFiles(): ReadonlyMap<string, string> {
  return new Map([
    ...crdFiles('crds', true),
    ...kustomizeFiles('base', planMember(DEFAULT_VALUES)),
    ...kustomizeFiles('broker', planBroker(DEFAULT_VALUES)),
    ...kustomizeFiles('broker-replicas', planBroker(REPLICAS_VALUES)),
    ...metricsComponent(),
    ...consoleComponent(),
    ...openShiftComponents(),
    ...topologyComponent(),
    ...monitoringFiles(),
    ...chartFiles(),
  ])
}

function crdFiles(folder: string, hasKustomization: boolean): [string, string][] {
  const names = ALL_CRDS.map(({ metadata }) => `${metadata.name}.yaml`)
  const files = ALL_CRDS.map((crd, i): [string, string] => [`${folder}/${names[i] ?? ''}`, documents([crd])])
  return hasKustomization ? [...files, [`${folder}/kustomization.yaml`, kustomization(names)]] : files
}

function kustomizeFiles(folder: string, parts: readonly InstallPart[]): [string, string][] {
  const used = parts.filter(({ objects }) => objects.length > 0)
  return [
    ...used.map(({ name, objects }): [string, string] => [`${folder}/${name}.yaml`, documents(objects)]),
    [`${folder}/kustomization.yaml`, kustomization(used.map(({ name }) => `${name}.yaml`))],
  ]
}

/** What scraping needs beside `base`: PodMonitors, open metrics, and status pages on the node's address. */
function metricsComponent(): [string, string][] {
  const part = planMember(METRICS_VALUES).find(({ name }) => name === 'monitors')
  const patches = [
    ...(['agent', 'dns'] as const).map((name) => ({
      target: { kind: 'Deployment', name: objectName(name) },
      patch: formatYaml(openMetricsPatch()),
    })),
    ...(['gateway', 'routeagent'] as const).map((name) => ({
      target: { kind: 'DaemonSet', name: objectName(name) },
      patch: formatYaml(statusOnNodePatch(name)),
    })),
  ]
  return [
    ['metrics/monitors.yaml', documents(part?.objects ?? [])],
    ['metrics/kustomization.yaml', component({ resources: ['monitors.yaml'], patches })],
  ]
}

/** The console behind the API server's proxy, beside `base`. */
function consoleComponent(): [string, string][] {
  const values = { ...DEFAULT_VALUES, console: { ...DEFAULT_VALUES.console, enabled: true } }
  const part = planMember(values).find(({ name }) => name === 'console')
  return [
    ['console/console.yaml', documents(part?.objects ?? [])],
    ['console/kustomization.yaml', component({ resources: ['console.yaml'] })],
  ]
}

/**
 * What OpenShift needs beside `base`, and beside `broker` or `broker-replicas`: the grants, and pods that name theirs. A
 * grant for an account that is missing grants nothing.
 */
function openShiftComponents(): [string, string][] {
  const granted = new Set(['SecurityContextConstraints', 'Role', 'RoleBinding'])
  const [member, broker] = [planMember(OPENSHIFT_VALUES), planBroker(OPENSHIFT_VALUES)].map((parts) =>
    parts.flatMap(({ name, objects }) => objects.filter(({ kind }) => granted.has(kind) && !OWN_ACCESS.has(name))),
  )
  const patch = (kind: string, part: PartName): object => ({
    target: { kind, name: objectName(part) },
    patch: formatYaml(requiredSccPatch(part)),
  })
  const patches = {
    member: [
      ...(['agent', 'dns', 'console'] as const).map((part) => patch('Deployment', part)),
      ...(['gateway', 'routeagent'] as const).map((part) => patch('DaemonSet', part)),
    ],
    broker: [...['Deployment', 'StatefulSet'].map((kind) => patch(kind, 'broker')), patch('StatefulSet', 'etcd')],
  }
  return [
    ['openshift/grants.yaml', documents(member ?? [])],
    ['openshift/kustomization.yaml', component({ resources: ['grants.yaml'], patches: patches.member })],
    ['openshift-broker/grants.yaml', documents(broker ?? [])],
    ['openshift-broker/kustomization.yaml', component({ resources: ['grants.yaml'], patches: patches.broker })],
  ]
}

/** What a broker needs beside `broker` or `broker-replicas` to follow object Topology: its kind, and rights. */
function topologyComponent(): [string, string][] {
  const values = { ...DEFAULT_VALUES, broker: { ...DEFAULT_VALUES.broker, topologyFrom: 'object' } }
  const objects = planBroker(values).flatMap((part) => part.objects)
  const granted = objects.filter(({ kind }) => kind.startsWith('ClusterRole'))
  const patch = formatYaml(followTopologyPatch())
  const patches = ['Deployment', 'StatefulSet'].map((kind) => ({ target: { kind, name: objectName('broker') }, patch }))
  const resources = [`${TOPOLOGY.metadata.name}.yaml`, 'access.yaml']
  return [
    [`topology/${resources[0] ?? ''}`, documents([TOPOLOGY])],
    ['topology/access.yaml', documents(granted)],
    ['topology/kustomization.yaml', component({ resources, patches })],
  ]
}

/** Parts with Roles of their own, which `base` has. */
const OWN_ACCESS: ReadonlySet<string> = new Set(['agent', 'gateway', 'routeagent', 'dns', 'console'])

function chartFiles(): [string, string][] {
  const values = placeholders(DEFAULT_VALUES)
  const templates = [...planMember(values), ...planBroker(values)].map(({ name, objects }): [string, string] => [
    `chart/templates/${name}.yaml`,
    HEADER + chartTemplate(objects.map(keptByHelm), BROKER_PARTS.has(name) ? 'broker.enabled' : 'member.enabled'),
  ])
  return [
    ...templates,
    ...crdFiles('chart/crds', false),
    ['chart/Chart.yaml', chartYaml()],
    ['chart/values.yaml', HEADER + valuesYaml()],
    ['chart/values.schema.json', valuesSchema()],
    ['chart/templates/NOTES.txt', CHART_NOTES],
  ]
}

/**
 * Helm does not remove a Namespace with this annotation: with it, the identity of a member, or the state of a broker,
 * would be gone after `helm uninstall`.
 */
export const KEPT_BY_HELM = { 'helm.sh/resource-policy': 'keep' }

function keptByHelm(object: ManifestObject): ManifestObject {
  if (object instanceof Conditional) {
    const items = (object.items as readonly ManifestObject[]).map(keptByHelm)
    return new Conditional(object.path, items, object.terms) as unknown as ManifestObject
  }
  if (object.kind !== 'Namespace') return object
  const { annotations } = object.metadata
  const all =
    annotations instanceof ExtendedMap
      ? new ExtendedMap(annotations.paths, { ...annotations.ours, ...KEPT_BY_HELM })
      : { ...annotations, ...KEPT_BY_HELM }
  return { ...object, metadata: { ...object.metadata, annotations: all as Readonly<Record<string, string>> } }
}

function chartYaml(): string {
  const file = join(import.meta.dirname, '..', 'package.json')
  const { version, description } = JSON.parse(readFileSync(file, 'utf8')) as { version: string; description: string }
  const chart = { apiVersion: 'v2', name: 'sealane', description, type: 'application', version, appVersion: version }
  // Admission policies and the CEL functions of the CRDs.
  return HEADER + formatYaml({ ...chart, kubeVersion: '>=1.31.0-0' })
}

const CHART_NOTES = `Sealane {{ .Chart.AppVersion }} is installed.
{{- if .Values.member.enabled }}

Pods in {{ .Values.member.namespace }} wait until this cluster has joined. On the hub, run:
  sealane token create
Then run the command that it prints, with a kubeconfig of this cluster.
{{- end }}
{{- if .Values.broker.enabled }}

The broker is in {{ .Values.broker.namespace }}. Members reach it at {{ join ", " .Values.broker.advertise }}.
{{- end }}

Helm installs CRDs once and never updates them. sealane join updates them and keeps
what other products need.
`
