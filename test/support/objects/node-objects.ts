/** Nodes as objects for tests, and the reports of the processes on them. */
import type {
  ConnectionState,
  ConnectionStatus,
  Gateway,
  Node,
  ObjectMeta,
  RouteAgent,
} from '../../../model/objects.ts'

export function nodeObject(
  name: string,
  { metadata = {}, ...rest }: { readonly metadata?: Partial<ObjectMeta> } & Pick<Node, 'spec' | 'status'> = {},
): Node {
  return { apiVersion: 'v1', kind: 'Node', metadata: { name, ...metadata }, ...rest }
}

/** The status of a node that has these addresses. */
export function internalIps(...addresses: readonly string[]): NonNullable<Node['status']> {
  return { addresses: addresses.map((address) => ({ type: 'InternalIP', address })) }
}

/** A connection on lane 0, without further fields unless `change` has them. */
export function connectionTo(
  cluster: string,
  state: ConnectionState,
  change: Partial<ConnectionStatus> = {},
): ConnectionStatus {
  return { cluster, lane: 0, endpoint: '', state, message: '', usingNat: false, rxBytes: 0, txBytes: 0, ...change }
}

/** Makes connectionTo() for each cluster: `{ paris: 'up' }`. */
export function connectionsTo(states: Readonly<Record<string, ConnectionState>>): ConnectionStatus[] {
  return Object.entries(states).map(([cluster, state]) => connectionTo(cluster, state))
}

/** A gateway and its connections, from `gw paris up, rome down`. */
export function gatewaySaying(text: string): Gateway {
  const [name = '', ...words] = text.split(' ')
  return gatewayObject(name, { connections: connectionsSaid(words.join(' ')) })
}

/** The connections, from `paris up, rome down`. */
export function connectionsSaid(text: string): ConnectionStatus[] {
  const pairs = text.split(', ').filter(Boolean)
  return pairs.map((pair) => connectionTo(...(pair.split(' ') as [string, ConnectionState])))
}

/** A Gateway, which has no status unless one is given. */
export function gatewayObject(
  name: string,
  status?: Partial<NonNullable<Gateway['status']>>,
  metadata: Partial<ObjectMeta> = {},
): Gateway {
  const base = { apiVersion: 'sealane.io/v1alpha1', kind: 'Gateway', metadata: { name, ...metadata } } as const
  return status === undefined ? base : { ...base, status: { version: '1', lanes: [], connections: [], ...status } }
}

/** A RouteAgent, which has no status unless one is given. */
export function routeAgentObject(
  name: string,
  status?: Partial<NonNullable<RouteAgent['status']>>,
  metadata: Partial<ObjectMeta> = {},
): RouteAgent {
  const base = { apiVersion: 'sealane.io/v1alpha1', kind: 'RouteAgent', metadata: { name, ...metadata } } as const
  return status === undefined ? base : { ...base, status: { version: '1', clusters: [], ...status } }
}
