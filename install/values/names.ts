/** Names and labels of what is installed. */
import { APP_MANAGED_BY_SEALANE, LABEL_APP_MANAGED_BY } from '../../model/model.ts'
import type { ManifestObject } from './manifest.ts'

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

/** Ports of the pods. Two of them share the node's network, so each status page has a port of its own. */

export const DNS_CONTAINER_PORT = 5353
export const BROKER_PORT = 7443

/** Of the container's port. */
export const STATUS_PORT_NAME = 'status'

export const STATUS_PORTS = {
  broker: 9470,
  agent: 9471,
  gateway: 9472,
  routeagent: 9473,
  dns: 9474,
} as const

/** Of the etcd that can be installed beside the broker. */
export const ETCD_PORTS = { client: 2379, peer: 2380, health: 2381 } as const

// Names of the etcd that can be installed beside the broker.

/** Who has the majority goes on: of three, one may be away. */
export const ETCD_MEMBERS = 3
/** ca.crt, tls.crt, tls.key: of the members of etcd, which also call each other with it. */
export const ETCD_SERVER_SECRET = 'sealane-etcd-server'
/** The same of who may read and write. */
export const ETCD_CLIENT_SECRET = 'sealane-etcd-client'
/** In the members' certificate: nobody else may be one, whatever else the authority has signed. */
export const ETCD_SERVER_NAME = 'sealane-etcd'
/** Claims `data-sealane-etcd-0` and so on. */
export const ETCD_VOLUME = 'data'

/** `sealane-etcd-0.sealane-etcd.<namespace>.svc`, one for each member. */
export function etcdHosts(namespace: string): readonly string[] {
  return etcdMembers().map((name) => etcdHost(name, namespace))
}

/** As `sealane broker serve --store` takes it. */
export function includedEtcdUrl(namespace: string): string {
  const endpoints = etcdHosts(namespace).map((host) => `${host}:${ETCD_PORTS.client}`)
  return `etcd://${endpoints.join(',')}/sealane`
}

export function etcdMembers(): readonly string[] {
  return Array.from({ length: ETCD_MEMBERS }, (_, i) => `${objectName('etcd')}-${i}`)
}

/** Of one member. */
export function etcdHost(member: string, namespace: string): string {
  return `${member}.${objectName('etcd')}.${namespace}.svc`
}
