/** Every metric of the route agent. */
import type { Family } from '../../model/addresses/addresses.ts'
import type { Counter, Gauge, Histogram, Metrics } from '../../runtime/metrics/metrics.ts'

export interface RouteAgentMetrics {
  readonly runs: Counter
  readonly runSeconds: Histogram
  readonly driftRepairs: Counter
  readonly transactions: Counter
  readonly packetsDropped: Counter
  readonly servicePorts: ServicePorts
  readonly pathGateways: Gauge
  readonly pathMtu: Gauge
  readonly planProblems: Gauge
  readonly podRanges: Gauge
  readonly podRangesCut: Gauge
  readonly staleGateways: Gauge
  readonly silentGateways: Gauge
  readonly silentNodes: Gauge
  readonly gatewayProbes: Counter
  readonly openConnections: Gauge
  readonly flowsForgotten: Counter
  readonly callsMoved: Counter
  readonly endpointsLeftOut: LeftOutEndpoints
  readonly endpointEjections: Counter
  readonly calls: Counter
  readonly callBytes: Counter
  readonly callEnds: Counter
  readonly callsUncounted: Counter
  readonly connectSeconds: Histogram
  readonly serviceConnectSeconds: Histogram
  /** The same by calling namespace alone, so that labels do not multiply. */
  readonly callerCalls: Counter
  readonly callerCallEnds: Counter
  readonly callerBytes: Counter
  readonly callerConnectSeconds: Histogram
}

export interface PortCounts {
  readonly served: number
  readonly refused: number
  readonly dropped: number
}

/** The tables of both families have ports. The metric is the sum. */
export class ServicePorts {
  readonly #gauge: Gauge
  readonly #counts = new Map<Family, PortCounts>()

  constructor(gauge: Gauge) {
    this.#gauge = gauge
  }

  set(family: Family, counts: PortCounts): void {
    this.#counts.set(family, counts)
    for (const state of ['served', 'refused', 'dropped'] as const) {
      const sum = [...this.#counts.values()].reduce((all, one) => all + one[state], 0)
      this.#gauge.set(sum, { state })
    }
  }
}

/** Both families have endpoints. The metric is the sum. */
export class LeftOutEndpoints {
  readonly #gauge: Gauge
  readonly #counts = new Map<Family, Readonly<Record<string, number>>>()

  constructor(gauge: Gauge) {
    this.#gauge = gauge
  }

  /** Takes the counts by reason. */
  set(family: Family, counts: Readonly<Record<string, number>>): void {
    this.#counts.set(family, counts)
    for (const reason of Object.keys(counts)) {
      const sum = [...this.#counts.values()].reduce((all, one) => all + (one[reason] ?? 0), 0)
      this.#gauge.set(sum, { reason })
    }
  }
}

const CONNECT_SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 3]

export function routeAgentMetrics(metrics: Metrics): RouteAgentMetrics {
  return {
    runs: metrics.counter({
      name: 'sealane_routeagent_runs_total',
      help: 'Runs of a loop by result',
      labels: ['loop', 'result'],
    }),
    runSeconds: metrics.histogram({
      name: 'sealane_routeagent_run_seconds',
      help: 'Time one run of a loop took',
      labels: ['loop'],
      buckets: [0.001, 0.005, 0.015, 0.05, 0.15, 0.5, 1.5, 5],
    }),
    driftRepairs: metrics.counter({
      name: 'sealane_routeagent_drift_repairs_total',
      help: 'Repairs of kernel objects of Sealane that another program changed, by object and by kind of change',
      labels: ['what', 'reason'],
    }),
    transactions: metrics.counter({
      name: 'sealane_routeagent_nft_transactions_total',
      help: 'Transactions sent to nftables: full replaces the table, delta changes elements',
      labels: ['kind'],
    }),
    packetsDropped: metrics.counter({
      name: 'sealane_routeagent_packets_dropped_total',
      help: "Packets that the node's table dropped: to or from the overlay, or from other clusters to the node itself",
      labels: ['reason'],
    }),
    servicePorts: new ServicePorts(
      metrics.gauge({
        name: 'sealane_routeagent_service_ports',
        help: 'Ports of clusterset IPs by result of connections: served, refused without a backend, or dropped because this node has no backend and internalTrafficPolicy is Local',
        labels: ['state'],
      }),
    ),
    pathGateways: metrics.gauge({
      name: 'sealane_routeagent_path_gateways',
      help: 'Gateway nodes towards a cluster that answer; 0 means unreachable',
      labels: ['cluster'],
    }),
    pathMtu: metrics.gauge({
      name: 'sealane_routeagent_path_mtu_bytes',
      help: 'Largest packet that passes to a cluster',
      labels: ['cluster'],
    }),
    planProblems: metrics.gauge({
      name: 'sealane_routeagent_plan_problems',
      help: 'Nodes and clusters that the plan leaves out; the log has the reason',
    }),
    podRanges: metrics.gauge({
      name: 'sealane_routeagent_pod_ranges',
      help: 'Pod ranges that this node reports as its own',
    }),
    staleGateways: metrics.gauge({
      name: 'sealane_routeagent_stale_gateways',
      help: 'Gateways of this cluster that have stopped reporting the state of their lanes, as seen by this node',
    }),
    silentGateways: metrics.gauge({
      name: 'sealane_routeagent_silent_gateways',
      help: "Gateway nodes that have stopped answering this node's probes over the overlay",
    }),
    silentNodes: metrics.gauge({
      name: 'sealane_routeagent_silent_nodes',
      help: "Nodes that do not answer this node's probes over the overlay: silent (answered before), unheard (never answered)",
      labels: ['state'],
    }),
    gatewayProbes: metrics.counter({
      name: 'sealane_routeagent_gateway_probes_total',
      help: 'Probes over the overlay: sent, answered, and other packets at the probe port (ignored)',
      labels: ['what'],
    }),
    openConnections: metrics.gauge({
      name: 'sealane_routeagent_open_connections',
      help: 'Connections over IPv4 between pods of this node and pods of other clusters, counted once a minute; 0 also before the first count',
    }),
    flowsForgotten: metrics.counter({
      name: 'sealane_routeagent_flows_forgotten_total',
      help: 'Tracked UDP flows to clusterset IPs that were removed because their endpoint has gone',
    }),
    callsMoved: metrics.counter({
      name: 'sealane_routeagent_calls_moved_total',
      help: 'TCP connections without an answer that were given to another endpoint, because theirs is left out',
    }),
    endpointsLeftOut: new LeftOutEndpoints(
      metrics.gauge({
        name: 'sealane_routeagent_endpoints_left_out',
        help: 'Endpoints that get no new connections from this node now, because they refuse or do not answer',
        labels: ['reason'],
      }),
    ),
    endpointEjections: metrics.counter({
      name: 'sealane_routeagent_endpoint_ejections_total',
      help: 'How often an endpoint was left out because it refuses or does not answer',
      labels: ['reason'],
    }),
    calls: metrics.counter({
      name: 'sealane_routeagent_calls_total',
      help: "Calls of this node's pods and programs to services and other clusters by outcome: opened counts all, the others those that ended so; at most 20 services and 20 clusters have labels of their own",
      labels: ['service', 'cluster', 'outcome'],
    }),
    callBytes: metrics.counter({
      name: 'sealane_routeagent_call_bytes_total',
      help: 'Octets of the IP packets of these calls, sent by the caller or received by it',
      labels: ['service', 'cluster', 'way'],
    }),
    callEnds: metrics.counter({
      name: 'sealane_routeagent_call_ends_total',
      help: 'Ends of a sample of these calls: timed_out if connection tracking forgot the call for want of an answer or acknowledgement, without a FIN or reset; other otherwise. What lasts longer than six hours, such as an idle connection, does not count',
      labels: ['service', 'cluster', 'end'],
    }),
    callsUncounted: metrics.counter({
      name: 'sealane_routeagent_calls_uncounted_total',
      help: "Calls for which the kernel's table had no room, so that only their number is known",
    }),
    connectSeconds: metrics.histogram({
      name: 'sealane_routeagent_connect_seconds',
      help: 'Time from SYN to SYN-ACK of a sample of these calls',
      labels: ['cluster'],
      buckets: CONNECT_SECONDS,
    }),
    serviceConnectSeconds: metrics.histogram({
      name: 'sealane_routeagent_service_connect_seconds',
      help: 'The same by service',
      labels: ['service'],
      buckets: CONNECT_SECONDS,
    }),
    callerCalls: metrics.counter({
      name: 'sealane_routeagent_caller_calls_total',
      help: 'Calls as in sealane_routeagent_calls_total, by the namespace of the calling pod; at most 20 have labels of their own',
      labels: ['caller', 'outcome'],
    }),
    callerCallEnds: metrics.counter({
      name: 'sealane_routeagent_caller_call_ends_total',
      help: 'Ends as in sealane_routeagent_call_ends_total, by the namespace of the calling pod',
      labels: ['caller', 'end'],
    }),
    callerBytes: metrics.counter({
      name: 'sealane_routeagent_caller_bytes_total',
      help: 'Octets as in sealane_routeagent_call_bytes_total, by the namespace of the calling pod',
      labels: ['caller', 'way'],
    }),
    callerConnectSeconds: metrics.histogram({
      name: 'sealane_routeagent_caller_connect_seconds',
      help: 'Time from SYN to SYN-ACK of a sample of these calls, by the namespace of the calling pod',
      labels: ['caller'],
      buckets: CONNECT_SECONDS,
    }),
    podRangesCut: metrics.gauge({
      name: 'sealane_routeagent_pod_ranges_cut',
      help: 'Pod ranges beyond the limit, which are not reported: gateways leave their packets to the CNI',
    }),
  }
}
