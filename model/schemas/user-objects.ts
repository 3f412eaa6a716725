/**
 * The schemas of a user's objects: the fields that Sealane reads, with the limits of the Kubernetes API. Other fields
 * are dropped. Kinds that Sealane writes itself are not accepted from the user.
 */
import type { z } from 'zod'
import { type FamilyName, familyNumber } from '../addresses/addresses.ts'
import { integer, list, map } from '../kinds/kinds.ts'
import type { Kind } from '../model.ts'
import {
  cidr,
  dnsLabel,
  dnsSubdomain,
  field,
  flag,
  ipAddress,
  isAddress,
  isAddressOf,
  isSubdomain,
  isText,
  oneOf,
  port,
  text,
  textMap,
  timestamp,
} from './fields.ts'

const protocol = oneOf('TCP', 'UDP', 'SCTP').default('TCP')
const families = list(oneOf('IPv4', 'IPv6'))
const clusterIp = field<string>('None or an address such as 10.43.0.7', (v) => v === 'None' || v === '' || isAddress(v))
const IANA_NAME = /^(?=.*[a-z])[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?$/
const targetPort = field<number | string>('1 to 65535 or the name of a port', (value) =>
  isText(value) ? IANA_NAME.test(value) : port.safeParse(value).success,
)

function metadata<T extends z.ZodType>(name: T) {
  return map({
    name,
    namespace: dnsLabel.optional(),
    uid: text.optional(),
    creationTimestamp: timestamp.optional(),
    deletionTimestamp: timestamp.optional(),
    labels: textMap.optional(),
    annotations: textMap.optional(),
  })
}

const servicePort = map({
  name: dnsLabel.optional(),
  protocol,
  port,
  targetPort: targetPort.optional(),
  appProtocol: text.optional(),
})

const servicePorts = list(servicePort).superRefine((ports, context) => {
  const names = new Set<string>()
  const numbers = new Set<string>()
  for (const [i, item] of ports.entries()) {
    const number = `${item.protocol} ${item.port}`
    if (numbers.has(number))
      context.addIssue({ code: 'custom', path: [i, 'port'], message: 'each port once per protocol' })
    numbers.add(number)
    if (ports.length > 1 && (item.name === undefined || names.has(item.name))) {
      context.addIssue({ code: 'custom', path: [i, 'name'], message: 'a name of its own, as there are several ports' })
    }
    names.add(item.name ?? '')
  }
})

const service = map({
  metadata: metadata(dnsLabel),
  spec: map({
    type: oneOf('ClusterIP', 'NodePort', 'LoadBalancer', 'ExternalName').optional(),
    clusterIP: clusterIp.optional(),
    clusterIPs: list(clusterIp).optional(),
    ipFamilies: families.optional(),
    ports: servicePorts.optional(),
    sessionAffinity: oneOf('ClientIP', 'None').optional(),
    sessionAffinityConfig: map({
      clientIP: map({ timeoutSeconds: integer(1, 86_400).optional() }).optional(),
    }).optional(),
    internalTrafficPolicy: oneOf('Cluster', 'Local').optional(),
    trafficDistribution: text.optional(),
  }).optional(),
})

const endpoint = map({
  addresses: list(text),
  hostname: dnsLabel.optional(),
  nodeName: dnsSubdomain.optional(),
  zone: text.optional(),
  hints: map({ forZones: list(map({ name: text })).optional() }).optional(),
  targetRef: map({ kind: text.optional(), name: text.optional(), uid: text.optional() }).optional(),
  conditions: map({ ready: flag.optional(), serving: flag.optional(), terminating: flag.optional() }).optional(),
})

/** discovery.k8s.io/v1 allows 1 to 100 addresses, all of the slice's own type. */
const endpointSlice = map({
  metadata: metadata(dnsSubdomain),
  addressType: oneOf('IPv4', 'IPv6', 'FQDN'),
  endpoints: list(endpoint).optional(),
  ports: list(map({ name: text.optional(), protocol, port: port.optional(), appProtocol: text.optional() })).optional(),
}).superRefine((slice, context) => {
  for (const [i, { addresses }] of (slice.endpoints ?? []).entries()) {
    const path = ['endpoints', i, 'addresses']
    if (addresses.length < 1 || addresses.length > 100)
      context.addIssue({ code: 'custom', path, message: '1 to 100 addresses' })
    for (const [j, address] of addresses.entries()) {
      if (fitsType(slice.addressType, address)) continue
      const message = slice.addressType === 'FQDN' ? 'a DNS name' : `an ${slice.addressType} address`
      context.addIssue({ code: 'custom', path: [...path, j], message })
    }
  }
})

function fitsType(type: FamilyName | 'FQDN', address: string): boolean {
  return type === 'FQDN' ? isSubdomain(address) : isAddressOf(familyNumber(type), address)
}

const nodeAddress = map({ type: text, address: text }).superRefine((item, context) => {
  if (!item.type.endsWith('IP') || isAddress(item.address)) return
  context.addIssue({ code: 'custom', path: ['address'], message: 'an IPv4 or IPv6 address such as 10.42.0.7' })
})

const node = map({
  metadata: metadata(dnsSubdomain),
  spec: map({ podCIDR: cidr.optional(), podCIDRs: list(cidr).optional() }).optional(),
  status: map({ addresses: list(nodeAddress).optional() }).optional(),
})

const pod = map({
  metadata: metadata(dnsSubdomain),
  spec: map({
    nodeName: dnsSubdomain.optional(),
    hostname: dnsLabel.optional(),
    hostNetwork: flag.optional(),
  }).optional(),
  status: map({
    phase: oneOf('Pending', 'Running', 'Succeeded', 'Failed', 'Unknown').optional(),
    podIP: ipAddress.optional(),
    podIPs: list(map({ ip: ipAddress })).optional(),
  }).optional(),
})

const namespace = map({ metadata: metadata(dnsLabel), status: map({ phase: text.optional() }).optional() })

/** Sealane writes its status; a status in a dump of another cluster is dropped. */
const serviceExport = map({
  metadata: metadata(dnsLabel),
  spec: map({ exportedLabels: textMap.optional(), exportedAnnotations: textMap.optional() }).optional(),
})

export interface UserKind {
  readonly kind: Kind
  /** The version under which the object is stored; all versions of a kind are parsed alike. */
  readonly apiVersion: string
  readonly schema: z.ZodType
}

const MCS = 'multicluster.x-k8s.io'
const KINDS: Readonly<Record<string, UserKind>> = {
  'v1/Namespace': { kind: 'Namespace', apiVersion: 'v1', schema: namespace },
  'v1/Node': { kind: 'Node', apiVersion: 'v1', schema: node },
  'v1/Pod': { kind: 'Pod', apiVersion: 'v1', schema: pod },
  'v1/Service': { kind: 'Service', apiVersion: 'v1', schema: service },
  'discovery.k8s.io/v1/EndpointSlice': {
    kind: 'EndpointSlice',
    apiVersion: 'discovery.k8s.io/v1',
    schema: endpointSlice,
  },
  [`${MCS}/v1beta1/ServiceExport`]: { kind: 'ServiceExport', apiVersion: `${MCS}/v1beta1`, schema: serviceExport },
  [`${MCS}/v1alpha1/ServiceExport`]: { kind: 'ServiceExport', apiVersion: `${MCS}/v1beta1`, schema: serviceExport },
}

/** Undefined if the kind is not read from the user's folder. */
export function userKind(apiVersion: string, kind: string): UserKind | undefined {
  const id = `${apiVersion}/${kind}`
  return Object.hasOwn(KINDS, id) ? KINDS[id] : undefined
}
