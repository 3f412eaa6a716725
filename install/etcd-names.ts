/** Names of the etcd that can be installed beside the broker. */
import { objectName } from './names.ts'
import { ETCD_PORTS } from './ports.ts'

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
