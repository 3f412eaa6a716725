/** A published slice as an object of the importing cluster (KEP-1645 "Tracking Endpoints"). Pure. */
import { type PrefixPair, prefixPairs, toGlobalText } from '../../model/addresses/addressing.ts'
import { endpointHostname } from '../../model/dns/endpoint-hostname.ts'
import { ANNOTATION_PODS, podsText } from '../../model/services/endpoint-pods.ts'
import type { ServiceKey } from '../../model/ids.ts'
import { type Prefix, parsePrefix } from '../../model/addresses/ip.ts'
import type { ExposedPort } from '../../model/services/merge-services.ts'
import { nameHash } from '../../model/name-hash.ts'
import type { ClusterSpec, EndpointPort, EndpointSlice, ServiceImportType, SliceEndpoint } from '../../model/objects.ts'
import type { EndpointSliceBody } from '../../model/records.ts'
import {
  APP_MANAGED_BY_SEALANE,
  LABEL_APP_MANAGED_BY,
  LABEL_MANAGED_BY,
  LABEL_SERVICE_NAME,
  LABEL_SOURCE_CLUSTER,
  MANAGED_BY_SEALANE,
} from '../../model/spec-constants.ts'
import type { Dropped } from './clusterset-view.ts'
import { usableTopology } from './endpoint-topology.ts'
import { addressProblem } from '../export/member-records.ts'

export interface SliceSource {
  readonly key: ServiceKey
  readonly cluster: string
  /** Name of the slice in its own cluster. */
  readonly name: string
  readonly body: EndpointSliceBody
  /** Of the source cluster; undefined for this cluster itself, whose addresses are used as they are. */
  readonly spec: ClusterSpec | undefined
  /** Pod CIDRs of the source cluster, its own ones. */
  readonly inside: readonly string[]
}

interface Translation {
  readonly pairs: readonly PrefixPair[]
  readonly inside: readonly Prefix[]
}

/**
 * The slice with translated addresses, a hostname on every endpoint, and only the ports that its cluster exposes,
 * under their merged names. Undefined when it has nothing left to offer.
 */
export function importedSlice(
  source: SliceSource,
  exposure: { readonly ports: readonly ExposedPort[]; readonly type: ServiceImportType },
  dropped: Dropped[],
): EndpointSlice | undefined {
  const { body, cluster, spec } = source
  const [namespace = '', service = ''] = source.key.split('/')
  const ports = body.ports.flatMap((port) => exposedPort(port, exposure.ports) ?? [])
  // Behind a clusterset IP such a slice serves nothing; of a headless service the addresses still count.
  if (exposure.type === 'ClusterSetIP' && body.ports.length > 0 && ports.length === 0) return undefined
  const translation: Translation = {
    pairs: spec === undefined ? [] : prefixPairs(spec),
    inside: source.inside.map((text) => parsePrefix(text)),
  }
  const imported = body.endpoints.flatMap((endpoint) =>
    importedEndpoint(source, endpoint, translation, dropped).map((one) => ({ one, pod: endpoint.pod })),
  )
  const pods = podsText(imported.map(({ pod }) => pod))
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: {
      name: `${service}-${cluster}-${nameHash(service, cluster, source.name)}`,
      namespace,
      labels: {
        [LABEL_SERVICE_NAME]: service,
        [LABEL_SOURCE_CLUSTER]: cluster,
        [LABEL_MANAGED_BY]: MANAGED_BY_SEALANE,
        [LABEL_APP_MANAGED_BY]: APP_MANAGED_BY_SEALANE,
      },
      ...(pods === undefined ? {} : { annotations: { [ANNOTATION_PODS]: pods } }),
    },
    addressType: body.addressType,
    ports,
    endpoints: imported.map(({ one }) => one),
  }
}

function exposedPort(port: EndpointPort, exposed: readonly ExposedPort[]): EndpointPort | undefined {
  const protocol = port.protocol ?? 'TCP'
  const match = exposed.find((one) => one.ownName === (port.name ?? '') && one.protocol === protocol)
  if (match === undefined) return undefined
  return {
    ...(match.mergedName === '' ? {} : { name: match.mergedName }),
    protocol,
    ...(port.port === undefined ? {} : { port: port.port }),
    ...(port.appProtocol === undefined ? {} : { appProtocol: port.appProtocol }),
  }
}

function importedEndpoint(
  source: SliceSource,
  endpoint: SliceEndpoint,
  { pairs, inside }: Translation,
  dropped: Dropped[],
): SliceEndpoint[] {
  const what = `${source.cluster}/EndpointSlice/${source.key}/${source.name}`
  const good = endpoint.addresses.filter((text) => {
    const problem = addressProblem(text, source.body.addressType, inside)
    if (problem !== undefined)
      dropped.push({ what, reason: problem.reason, message: `endpoint ${JSON.stringify(text)}: ${problem.message}` })
    return problem === undefined
  })
  if (good.length === 0) return []
  const { conditions, nodeName } = endpoint
  // From the original address: the name must be the same for every importer, and before and after renumbering.
  const hostname = endpointHostname({ ...endpoint, addresses: good })
  return [
    {
      addresses: good.map((text) => toGlobalText(pairs, text)),
      ...(hostname === undefined ? {} : { hostname }),
      ...usableTopology(endpoint, (note) =>
        dropped.push({ what, reason: 'InvalidValue', message: `endpoint ${JSON.stringify(good[0])}: ${note}` }),
      ),
      // Another cluster's node names mean nothing here, or worse, the wrong node.
      ...(source.spec === undefined && nodeName !== undefined ? { nodeName } : {}),
      ...(conditions === undefined ? {} : { conditions }),
    },
  ]
}
