/** The description of Service. */
import {
  FAMILY_NAMES,
  MAX_AFFINITY_SECONDS,
  PROTOCOLS,
  SESSION_AFFINITIES,
  TRAFFIC_POLICIES,
  isAddress,
} from '../values/values.ts'
import {
  byDefault,
  choice,
  dnsLabel,
  either,
  integer,
  list,
  map,
  portNumber,
  ruled,
  text,
  textMap,
  textThat,
} from './fields.ts'

/** RFC 6335 section 5.1: a name of at most 15 characters, in lower case as the API has it. */
const PORT_NAME = /^(?=.*[a-z])[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?$/

const PORT = map({
  name: dnsLabel().optional(),
  protocol: byDefault(choice(PROTOCOLS), 'TCP'),
  port: portNumber(),
  targetPort: either('1 to 65535 or the name of a port', [
    portNumber(),
    textThat('the name of a port', (value) => PORT_NAME.test(value)),
  ]).optional(),
  appProtocol: text().optional(),
})

const PORTS = ruled(list(PORT), (ports, context) => {
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

const FAMILY_POLICIES = ['SingleStack', 'PreferDualStack', 'RequireDualStack'] as const

const CLUSTER_IP = textThat('None or an address such as 10.43.0.7', (value) => {
  return value === 'None' || value === '' || isAddress(value)
})

export const SERVICE_FIELDS = map({
  spec: map({
    type: choice(['ClusterIP', 'NodePort', 'LoadBalancer', 'ExternalName']).optional(),
    clusterIP: CLUSTER_IP.optional(),
    clusterIPs: list(CLUSTER_IP).optional(),
    ipFamilies: list(choice(FAMILY_NAMES)).optional(),
    ipFamilyPolicy: choice(FAMILY_POLICIES).optional(),
    selector: textMap().optional(),
    externalIPs: list(text()).optional(),
    ports: PORTS.optional(),
    sessionAffinity: choice(SESSION_AFFINITIES).optional(),
    sessionAffinityConfig: map({
      clientIP: map({ timeoutSeconds: integer(1, MAX_AFFINITY_SECONDS).optional() }).optional(),
    }).optional(),
    internalTrafficPolicy: choice(TRAFFIC_POLICIES).optional(),
    trafficDistribution: text().optional(),
  }).optional(),
})
