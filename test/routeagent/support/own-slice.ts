/** Slices of a Service of this cluster, as its own controller makes them. */
import type { EndpointSlice } from '../../../model/objects.ts'
import { LABEL_K8S_SERVICE_NAME } from '../../../model/spec-constants.ts'
import { slice } from './site.ts'

/** As slice(), without the labels of an import. */
export function ownSlice(service: string, addresses: readonly string[], ports?: EndpointSlice['ports']): EndpointSlice {
  const { metadata, ...rest } = slice(service, 'own', addresses, ports)
  return { ...rest, metadata: { ...metadata, labels: { [LABEL_K8S_SERVICE_NAME]: service } } }
}
