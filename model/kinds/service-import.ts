/** The description of ServiceImport. */
import { type FamilyName, IMPORT_TYPES, PROTOCOLS } from '../values/values.ts'
import { CONDITIONS } from './conditions.ts'
import {
  type Described,
  anyInteger,
  asShared,
  choice,
  listOf,
  map,
  named,
  object,
  portNumber,
  relied,
  text,
} from './fields.ts'

const PORT = map(
  {
    appProtocol: text('Hint at the protocol of the application, as in Service.').optional(),
    name: text('Name of the port, a DNS label, unique in the service. Optional where there is one port.').optional(),
    port: asShared(relied(portNumber()), anyInteger('int32', 'Port under which the service is called.')),
    protocol: asShared(relied(choice(PROTOCOLS)), text('TCP, UDP or SCTP; TCP where it is absent.').optional()),
  },
  'A port of the service.',
)
export type ImportPort = Described<typeof PORT>

const SERVICE_TYPE = choice(
  IMPORT_TYPES,
  'ClusterSetIP: one address for all endpoints. Headless: DNS gives the endpoints.',
)

const SPEC = map(
  {
    internalTrafficPolicy: text('Cluster or Local, as in Service.').optional(),
    ipFamilies: listOf(text<FamilyName>('IPv4 or IPv6.'), {
      description: 'IP families of the service, in the order of ips.',
      maxItems: 2,
    }).optional(),
    ips: listOf(text(), { description: 'Clusterset IPs, where type is ClusterSetIP.', maxItems: 2 }).optional(),
    /** Always written, even if it is empty. */
    ports: listOf(PORT, { 'x-kubernetes-list-type': 'atomic' }),
    sessionAffinity: text<'ClientIP' | 'None'>(
      'ClientIP or None, None where it is absent. Means nothing for Headless.',
    ).optional(),
    sessionAffinityConfig: map(
      {
        clientIP: map(
          {
            timeoutSeconds: anyInteger(
              'int32',
              'How long a client stays, 1 to 86400 seconds; 10800 where absent.',
            ).optional(),
          },
          'Details of affinity by client IP.',
        ).optional(),
      },
      'Details of session affinity.',
    ).optional(),
    trafficDistribution: text('Preference among the endpoints, as in Service; a hint.').optional(),
    type: asShared(relied(SERVICE_TYPE), SERVICE_TYPE),
  },
  'What the exporting clusters agreed on. Written by the implementation alone.',
)

const STATUS = map(
  {
    clusters: listOf(map({ cluster: named(text('Its name, an RFC 1123 label.')) }, 'One exporting cluster.'), {
      description: 'The clusters that export it.',
      'x-kubernetes-list-type': 'map',
      'x-kubernetes-list-map-keys': ['cluster'],
    }).optional(),
    conditions: CONDITIONS.optional(),
    endpointSliceObjects: choice(
      ['Present', 'Absent'],
      'Whether EndpointSlices of this import exist in this cluster.',
    ).optional(),
  },
  'Where the service comes from and how it does.',
)

/** multicluster.x-k8s.io (KEP-1645): a service of the clusterset. */
export const SERVICE_IMPORT_FIELDS = object('A service of the clusterset, as this cluster may use it.', {
  spec: asShared(SPEC, SPEC.optional()),
  status: STATUS.optional(),
})
