/** Names and labels of installed objects. */
import { APP_MANAGED_BY_SEALANE, LABEL_APP_MANAGED_BY } from '../../model/model.ts'
import type { ManifestObject } from './manifest.ts'

export type ComponentName = 'agent' | 'gateway' | 'routeagent' | 'dns' | 'console' | 'broker'
export type PartName = ComponentName | 'etcd'

/** Objects that belong together: one file of the Kustomize base, and one template of the chart. */
export interface InstallPart {
  readonly name: PartName | 'shared' | 'policies' | 'openshift' | 'monitors'
  readonly objects: readonly ManifestObject[]
}

export const SITE_CONFIG = 'sealane-site'
export const SITE_KEY = 'site.yaml'
export const IDENTITY_SECRET = 'sealane-identity'
/**
 * A Secret with a join token that another tool owns, such as one for GitOps. The agent only reads it: it keeps everything
 * that it writes in IDENTITY_SECRET.
 */
export const TOKEN_SECRET = 'sealane-join-token'
/** The Lease of the acting agent. */
export const AGENT_LEASE = 'sealane-agent'
export const IDENTITY_SECRET_TYPE = 'sealane.io/identity'
export const BROKER_CLAIM = 'sealane-broker-data'
/** An optional Secret of the operator with certificates and keys of the authority. */
export const BROKER_AUTHORITY = 'sealane-broker-authority'

export function objectName(part: PartName): string {
  return `sealane-${part}`
}

/** The user name of a ServiceAccount. */
export function accountName(namespace: string, name: string): string {
  return `system:serviceaccount:${namespace}:${name}`
}

export function partLabels(part: PartName | 'policies' | undefined): Readonly<Record<string, string>> {
  return {
    'app.kubernetes.io/name': 'sealane',
    'app.kubernetes.io/part-of': 'sealane',
    [LABEL_APP_MANAGED_BY]: APP_MANAGED_BY_SEALANE,
    ...(part === undefined ? {} : { 'app.kubernetes.io/component': part }),
  }
}

/** The labels in selectors. They must never change, since a Deployment's selector cannot change. */
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

/** Ports of the pods. Gateway and route agent share the node's network, so each status page has its own port. */

export const DNS_CONTAINER_PORT = 5353
export const BROKER_PORT = 7443
/** On the loopback of the broker's pod. */
export const ADMIN_PORT = 7444

export const CONSOLE_PORT = 9480
/** The name of this port of the Service and of the container. */
export const CONSOLE_PORT_NAME = 'console'
/** Whoever may make a token of this ServiceAccount may read the console. The account itself has no rights. */
export const CONSOLE_READER = 'sealane-console-reader'
/** The audience of such tokens. */
export const CONSOLE_AUDIENCE = 'sealane-console'

/** The name of the container's status port. */
export const STATUS_PORT_NAME = 'status'

export const STATUS_PORTS = {
  broker: 9470,
  agent: 9471,
  gateway: 9472,
  routeagent: 9473,
  dns: 9474,
  console: 9475,
  /** Outside of clusters: `sealane relay serve`. */
  relay: 9476,
} as const

/** Ports of the etcd that can be installed beside the broker. */
export const ETCD_PORTS = { client: 2379, peer: 2380, health: 2381 } as const

// Names of the etcd that can be installed beside the broker.

/** etcd needs a majority, so one of three members may fail. */
export const ETCD_MEMBERS = 3
/** The Secret with ca.crt, tls.crt and tls.key of the etcd members, which also authenticate to each other with it. */
export const ETCD_SERVER_SECRET = 'sealane-etcd-server'
/** The Secret with the same files for clients. */
export const ETCD_CLIENT_SECRET = 'sealane-etcd-client'
/** The name in the members' certificate. Other certificates of the authority cannot be used as a member. */
export const ETCD_SERVER_NAME = 'sealane-etcd'
/** The claims are named `data-sealane-etcd-0` and so on. */
export const ETCD_VOLUME = 'data'

/** `sealane-etcd-0.sealane-etcd.<namespace>.svc` for each member. */
export function etcdHosts(namespace: string): readonly string[] {
  return etcdMembers().map((name) => etcdHost(name, namespace))
}

/** The value of `sealane broker serve --store`. */
export function includedEtcdUrl(namespace: string): string {
  const endpoints = etcdHosts(namespace).map((host) => `${host}:${ETCD_PORTS.client}`)
  return `etcd://${endpoints.join(',')}/sealane`
}

export function etcdMembers(): readonly string[] {
  return Array.from({ length: ETCD_MEMBERS }, (_, i) => `${objectName('etcd')}-${i}`)
}

/** The host name of one member. */
export function etcdHost(member: string, namespace: string): string {
  return `${member}.${objectName('etcd')}.${namespace}.svc`
}
