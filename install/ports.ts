/** Ports of the pods. Two of them share the node's network, so each status page has a port of its own. */

export const DNS_CONTAINER_PORT = 5353
export const BROKER_PORT = 7443

/** Of the container's port. */
export const STATUS_PORT_NAME = 'status'

export const STATUS_PORTS = {
  broker: 9470,
  agent: 9471,
  gateway: 9472,
  routeagent: 9473,
  dns: 9474,
} as const

/** Of the etcd that can be installed beside the broker. */
export const ETCD_PORTS = { client: 2379, peer: 2380, health: 2381 } as const
