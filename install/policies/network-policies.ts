/**
 * The ports of Sealane's pods that other pods may connect to. NetworkPolicies do not apply to pods on the node's
 * network. The status port stays open, since some CNIs may not recognize the kubelet. It tells callers that are not on
 * loopback only whether the part is healthy, unless metrics are open (pod.ts).
 */
import {
  BROKER_PORT,
  CONSOLE_PORT,
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
  // The API server calls it from an address that no selector names. Whoever else calls hears nothing without a token.
  console: [
    { protocol: 'TCP', port: CONSOLE_PORT },
    { protocol: 'TCP', port: STATUS_PORTS.console },
  ],
  broker: [
    { protocol: 'TCP', port: BROKER_PORT },
    { protocol: 'TCP', port: STATUS_PORTS.broker },
  ],
}

/**
 * Gives zero or one NetworkPolicy, to be spread into a list. Egress is not restricted, since brokers and API servers
 * may have any address.
 */
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
