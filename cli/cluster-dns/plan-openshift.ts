/**
 * Plans for OpenShift: its DNS operator writes the Corefile, and users may configure servers in spec.servers of
 * dns.operator.openshift.io/default.
 */
import type { ObjectRef } from '../../kubeapi/kube/kube.ts'
import {
  type ClusterDnsOptions,
  type ClusterDnsPlan,
  type DnsObject,
  NO_CHANGE,
  findObject,
  problemPlan,
} from './dns-change.ts'

export const OPENSHIFT_DNS: ObjectRef = { apiVersion: 'operator.openshift.io/v1', kind: 'DNS', name: 'default' }
const SERVER = 'sealane'
const EFFECT = { how: 'by itself', withinSeconds: 120 } as const

interface Server {
  readonly name?: string
  readonly zones?: readonly string[]
  readonly forwardPlugin?: { readonly upstreams?: readonly string[]; readonly [field: string]: unknown }
}

export function planOpenshift(present: readonly DnsObject[], { domain, forwardTo }: ClusterDnsOptions): ClusterDnsPlan {
  const before = findObject(present, OPENSHIFT_DNS)
  if (before === undefined) {
    return problemPlan({
      kind: 'absent',
      object: OPENSHIFT_DNS,
      message: 'there is no DNS default of operator.openshift.io',
      advice: ['Check that this is OpenShift and that you may read dnses.operator.openshift.io.'],
    })
  }
  const servers = serversOf(before)
  const taken = servers.find(({ name, zones = [] }) => name !== SERVER && zones.some((zone) => within(zone, domain)))
  if (taken !== undefined) return conflict(domain, taken.name ?? '')
  if (before.spec?.['managementState'] === 'Unmanaged') {
    return problemPlan({
      kind: 'outOfReach',
      object: OPENSHIFT_DNS,
      message:
        'the DNS operator is switched off (spec.managementState: Unmanaged), so it would not act on spec.servers',
      advice: [`Switch it on, or forward ${domain} to ${forwardTo} in the Corefile that you keep by hand.`],
    })
  }
  const own = servers.find(({ name }) => name === SERVER)
  if (own !== undefined && same(own.zones, [domain]) && same(own.forwardPlugin?.upstreams, [forwardTo]))
    return NO_CHANGE
  const server: Server = { name: SERVER, zones: [domain], forwardPlugin: { policy: 'Random', upstreams: [forwardTo] } }
  const after = own === undefined ? [...servers, server] : servers.map((each) => (each === own ? server : each))
  return change(before, after, `the DNS operator is set to forward names below ${domain} to ${forwardTo}`)
}

export function planOpenshiftRemoval(present: readonly DnsObject[]): ClusterDnsPlan {
  const before = findObject(present, OPENSHIFT_DNS)
  const servers = before === undefined ? [] : serversOf(before)
  const after = servers.filter(({ name }) => name !== SERVER)
  if (before === undefined || after.length === servers.length) return NO_CHANGE
  return change(before, after, 'the server that Sealane added is removed')
}

function change(before: DnsObject, servers: readonly Server[], why: string): ClusterDnsPlan {
  const { servers: _old, ...rest } = before.spec ?? {}
  const after = { ...before, spec: servers.length === 0 ? rest : { ...before.spec, servers } }
  const texts = { before: print(serversOf(before)), after: print(servers) }
  return {
    changes: [{ object: OPENSHIFT_DNS, before, after, edit: { field: 'spec.servers', ...texts }, why, effect: EFFECT }],
    notes: [],
    problems: [],
  }
}

function serversOf(object: DnsObject): readonly Server[] {
  const servers = object.spec?.['servers']
  return Array.isArray(servers) ? (servers as readonly Server[]) : []
}

function print(servers: readonly Server[]): string | undefined {
  return servers.length === 0 ? undefined : JSON.stringify(servers, undefined, 2)
}

function conflict(domain: string, server: string): ClusterDnsPlan {
  const submariner = server === 'lighthouse'
  return problemPlan({
    kind: 'conflict',
    object: OPENSHIFT_DNS,
    message: `DNS default: something else already answers ${domain} (spec.servers, server ${JSON.stringify(server)})`,
    advice: [
      submariner
        ? 'This is Submariner: remove it from this cluster first (subctl uninstall), or leave cluster DNS to it.'
        : 'Remove that server first if nothing needs it. Sealane does not overwrite what it did not write.',
    ],
  })
}

function within(zone: string, domain: string): boolean {
  const name = zone.toLowerCase().replace(/\.$/, '')
  return name === domain || name.endsWith(`.${domain}`)
}

function same(left: readonly string[] | undefined, right: readonly string[]): boolean {
  return left?.length === right.length && left.every((value, index) => value === right[index])
}
