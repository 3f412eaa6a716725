/** The description of ServiceImport. */
import { type FamilyName, IMPORT_TYPES, PROTOCOLS } from '../values/values.ts'
import { CLUSTER_SELECTORS, CLUSTER_SELECTOR_RESULTS } from './cluster-selectors.ts'
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
    appProtocol: text('Application protocol of the port, as in Service; a hint.').optional(),
    name: text('Name of the port, a DNS label, unique in the service. Optional if there is only one port.').optional(),
    port: asShared(relied(portNumber()), anyInteger('int32', 'Port number of the service.')),
    protocol: asShared(relied(choice(PROTOCOLS)), text('TCP, UDP or SCTP; TCP if absent.').optional()),
  },
  'A port of the service.',
)
export type ImportPort = Described<typeof PORT>

const SERVICE_TYPE = choice(
  IMPORT_TYPES,
  'ClusterSetIP: the service has a virtual IP. Headless: DNS returns the addresses of the endpoints.',
)

const SPEC = map(
  {
    /** KEP-5939, not yet in a release of the standard. */
    clusterSelectors: CLUSTER_SELECTORS.optional(),
    internalTrafficPolicy: text('Cluster or Local, as in Service.').optional(),
    ipFamilies: listOf(text<FamilyName>('IPv4 or IPv6.'), {
      description: 'IP families of the service, in the order of ips.',
      maxItems: 2,
    }).optional(),
    ips: listOf(text(), {
      description: 'Clusterset IPs of the service if type is ClusterSetIP.',
      maxItems: 2,
    }).optional(),
    /** Always written, even if it is empty. */
    ports: listOf(PORT, { 'x-kubernetes-list-type': 'atomic' }),
    sessionAffinity: text<'ClientIP' | 'None'>('ClientIP or None; None if absent. Ignored for Headless.').optional(),
    sessionAffinityConfig: map(
      {
        clientIP: map(
          {
            timeoutSeconds: anyInteger(
              'int32',
              'Duration of ClientIP affinity in seconds, 1 to 86400; 10800 if absent.',
            ).optional(),
          },
          'Configuration of ClientIP affinity.',
        ).optional(),
      },
      'Configuration of session affinity.',
    ).optional(),
    trafficDistribution: text('Preferred distribution of traffic to endpoints, as in Service; a hint.').optional(),
    type: asShared(relied(SERVICE_TYPE), SERVICE_TYPE),
  },
  'Merged specification of the exported Services. Written only by the implementation.',
)

const STATUS = map(
  {
    /** KEP-5939, not yet in a release of the standard. */
    clusterSelectorResults: CLUSTER_SELECTOR_RESULTS.optional(),
    clusters: listOf(
      map({ cluster: named(text('Id of the exporting cluster, an RFC 1123 label.')) }, 'One exporting cluster.'),
      {
        description: 'Clusters that export the service.',
        'x-kubernetes-list-type': 'map',
        'x-kubernetes-list-map-keys': ['cluster'],
      },
    ).optional(),
    conditions: CONDITIONS.optional(),
    endpointSliceObjects: choice(
      ['Present', 'Absent'],
      'Whether EndpointSlices of this import exist in this cluster.',
    ).optional(),
  },
  'Exporting clusters and state of the service. Written by the implementation.',
)

/** multicluster.x-k8s.io (KEP-1645): a service of the clusterset. */
export const SERVICE_IMPORT_FIELDS = object('A service of the clusterset that this cluster can use.', {
  spec: asShared(SPEC, SPEC.optional()),
  status: STATUS.optional(),
})
