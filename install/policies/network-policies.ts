/**
 * Which ports of our pods others may call. NetworkPolicies do not apply to pods on the node's network. A caller of the
 * status port from elsewhere than loopback learns whether the part is well and no more, unless metrics are open
 * (pod.ts): so it is not closed here, where some pod networks might take the kubelet for a stranger.
 */
import {
  BROKER_PORT,
  DNS_CONTAINER_PORT,
  type ManifestObject,
  STATUS_PORTS,
  selectorLabels,
  when,
} from '../values/values.ts'
import { type PartRef, metadataOf } from '../workloads/workloads.ts'

interface OpenPort {
  readonly protocol: 'TCP' | 'UDP'
  readonly port: number
}

const OPEN: Readonly<Partial<Record<PartRef['part'], readonly OpenPort[]>>> = {
  agent: [{ protocol: 'TCP', port: STATUS_PORTS.agent }],
  dns: [
    { protocol: 'UDP', port: DNS_CONTAINER_PORT },
    { protocol: 'TCP', port: DNS_CONTAINER_PORT },
    { protocol: 'TCP', port: STATUS_PORTS.dns },
  ],
  broker: [
    { protocol: 'TCP', port: BROKER_PORT },
    { protocol: 'TCP', port: STATUS_PORTS.broker },
  ],
}

/** To be spread into the part's objects. Outward nothing is closed: brokers and API servers may be anywhere. */
export function networkPolicy(place: PartRef, isWanted: boolean): readonly ManifestObject[] {
  return when(isWanted, {
    apiVersion: 'networking.k8s.io/v1',
    kind: 'NetworkPolicy',
    metadata: metadataOf(place),
    spec: {
      podSelector: { matchLabels: selectorLabels(place.part) },
      policyTypes: ['Ingress'],
      ingress: [{ ports: OPEN[place.part] ?? [] }],
    },
  })
}
