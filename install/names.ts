/** Names and labels of what is installed. */
import { APP_MANAGED_BY_SEALANE, LABEL_APP_MANAGED_BY } from '../model/spec-constants.ts'
import type { ManifestObject } from './manifest-object.ts'

export type ComponentName = 'agent' | 'gateway' | 'routeagent' | 'dns' | 'broker'
export type PartName = ComponentName | 'etcd'

/** Objects that belong together: one file of the Kustomize base, one template of the chart. */
export interface InstallPart {
  readonly name: PartName | 'shared' | 'policies' | 'monitors'
  readonly objects: readonly ManifestObject[]
}

export const SITE_CONFIG = 'sealane-site'
export const SITE_KEY = 'site.yaml'
export const IDENTITY_SECRET = 'sealane-identity'
/** Which of the agents acts. */
export const AGENT_LEASE = 'sealane-agent'
export const IDENTITY_SECRET_TYPE = 'sealane.io/identity'
export const BROKER_CLAIM = 'sealane-broker-data'
/** Secret of an operator with certificates and keys of the authority; there need be none. */
export const BROKER_AUTHORITY = 'sealane-broker-authority'

export function objectName(part: PartName): string {
  return `sealane-${part}`
}

export function partLabels(part: PartName | 'policies' | undefined): Readonly<Record<string, string>> {
  return {
    'app.kubernetes.io/name': 'sealane',
    'app.kubernetes.io/part-of': 'sealane',
    [LABEL_APP_MANAGED_BY]: APP_MANAGED_BY_SEALANE,
    ...(part === undefined ? {} : { 'app.kubernetes.io/component': part }),
  }
}

/** What selectors go by: must never change, a Deployment's selector cannot. */
export function selectorLabels(part: PartName): Readonly<Record<string, string>> {
  return { 'app.kubernetes.io/name': 'sealane', 'app.kubernetes.io/component': part }
}

export function namespaceObject(name: string, podSecurity: 'privileged' | 'restricted'): ManifestObject {
  const levels = ['enforce', 'audit', 'warn'].map((mode) => [`pod-security.kubernetes.io/${mode}`, podSecurity])
  return {
    apiVersion: 'v1',
    kind: 'Namespace',
    metadata: { name, labels: { ...partLabels(undefined), ...(Object.fromEntries(levels) as Record<string, string>) } },
  }
}
