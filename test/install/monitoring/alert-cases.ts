/** For each alert, series that make it fire and series that do not, with one sample a minute (promtool's notation). */

export interface AlertCase {
  readonly fires: readonly Series[]
  /** The series that differ: they replace those of the same name in `fires`. */
  readonly quiet: readonly Series[]
  /** The minute at which both are evaluated. */
  readonly atMinute?: number
}

export type Series = readonly [name: string, values: string]

export const AT_MINUTE = 60
/** The number of minutes of the longest case. */
const ALWAYS = 130

const WHO = 'job="m", instance="i"'
const INFO: Series = [`sealane_member_info{${WHO}, member="milano", version="1"}`, `1x${ALWAYS}`]
/** When the agent last checked its member: at each minute, it is that minute. */
const ACTS: Series = [`sealane_member_looked_timestamp_seconds{${WHO}}`, `0+60x${ALWAYS}`]
const LINK = `${WHO}, cluster="paris", lane="0", remote_lane="0"`

function series(name: string, labels: string, values: string): Series {
  return [`${name}{${labels}}`, values]
}

/** A case of the acting agent: the metric with a bad value, and with a good one. */
function ofAgent(name: string, labels: string, bad: number | string, good: number | string): AlertCase {
  const all = labels === '' ? WHO : `${WHO}, ${labels}`
  const values = (value: number | string): string => (typeof value === 'number' ? `${value}x${ALWAYS}` : value)
  return {
    fires: [INFO, ACTS, series(name, all, values(bad))],
    quiet: [INFO, ACTS, series(name, all, values(good))],
  }
}

function plain(name: string, labels: string, bad: string, good: string): AlertCase {
  return { fires: [series(name, labels, bad)], quiet: [series(name, labels, good)] }
}

const steady = (value: number): string => `${value}x${ALWAYS}`
const growing = (by: number): string => `0+${by}x${ALWAYS}`

const BROKER_1 = 'job="b", instance="b1"'
const BROKER_2 = 'job="b", instance="b2"'
const BROKER_3 = 'job="b", instance="b3"'
/** A broker counts three replicas until minute 50, and another number afterwards. */
const UNTIL_50 = '3x50'

export const ALERT_CASES: Readonly<Record<string, AlertCase>> = {
  SealaneClusterUnreachable: {
    fires: [
      INFO,
      series('sealane_gateway_connection_up', LINK, steady(0)),
      series('sealane_gateway_connection_up', LINK.replace('remote_lane="0"', 'remote_lane="1"'), steady(0)),
    ],
    quiet: [
      INFO,
      series('sealane_gateway_connection_up', LINK, steady(0)),
      series('sealane_gateway_connection_up', LINK.replace('remote_lane="0"', 'remote_lane="1"'), steady(1)),
    ],
  },
  // The alert must not fire if the link recovers in time.
  SealaneLinkDown: plain('sealane_gateway_connection_up', LINK, '1x50 0x20', '1x50 0x7 1x1 0x2 1x20'),
  SealaneLinkLossy: {
    fires: [
      series('sealane_gateway_connection_loss_ratio', LINK, steady(0.2)),
      series('sealane_gateway_connection_up', LINK, steady(1)),
    ],
    // A link that is down has an alert of its own.
    quiet: [
      series('sealane_gateway_connection_loss_ratio', LINK, steady(1)),
      series('sealane_gateway_connection_up', LINK, steady(0)),
    ],
  },
  SealaneLinkSlow: {
    ...plain('sealane_gateway_connection_rtt_seconds', LINK, '0.05x1500 0.2x30', '0.05x1500 0.11x30'),
    atMinute: 1520,
  },
  SealaneLinkFlapping: plain('sealane_gateway_transitions_total', `${LINK}, state="down"`, growing(1), '0x50 1x5 2x20'),
  SealaneHandshakeOld: plain('sealane_gateway_handshake_age_seconds', LINK, '0x50 0+60x20', '20x50 120x20'),
  SealaneNodeCutOff: plain('sealane_routeagent_path_gateways', `${WHO}, cluster="paris"`, steady(0), steady(1)),
  SealaneGatewaysNotRedundant: ofAgent('sealane_member_problems', 'code="OneGatewayOnly", severity="notice"', 1, 0),
  SealaneGatewayStatusOld: plain('sealane_agent_stale_gateways', WHO, steady(1), steady(0)),
  SealanePacketsDropped: plain(
    'sealane_gateway_packets_dropped_total',
    `${WHO}, reason="host-service"`,
    growing(600),
    growing(60),
  ),
  SealaneMemberDown: {
    fires: [INFO, ACTS, series('sealane_member_problems', `${WHO}, code="ClusterCutOff", severity="down"`, steady(1))],
    quiet: [INFO, ACTS, series('sealane_member_problems', `${WHO}, code="LinkLossy", severity="notice"`, steady(1))],
  },
  SealanePartDown: plain('up', 'job="sealane-system/sealane-agent", instance="i"', steady(0), steady(1)),
  SealaneReplicaNotLive: {
    fires: [INFO, ACTS, series('sealane_watch_live', WHO, '1x50 0x20')],
    // The quiet series have a second agent, which no longer acts.
    quiet: [
      INFO,
      ACTS,
      series('sealane_watch_live', WHO, steady(1)),
      ['sealane_member_info{job="m", instance="old", member="milano", version="1"}', steady(1)],
      ['sealane_member_looked_timestamp_seconds{job="m", instance="old"}', steady(0)],
      ['sealane_watch_live{job="m", instance="old"}', steady(0)],
    ],
  },
  SealanePublishNotLive: ofAgent('sealane_publish_live', '', '1x50 0x20', '1x50 0x2 1x20'),
  SealaneAgentNotActing: {
    fires: [INFO, [ACTS[0], `0+60x50 3000x20`]],
    quiet: [INFO, ACTS],
  },
  SealaneCertificateEndsSoon: ofAgent(
    'sealane_agent_certificate_expiry_timestamp_seconds',
    '',
    3600 * 6,
    // At minute 60 these are six hours and an hour more; an agent that has not checked yet does not count.
    3600 * 8,
  ),
  SealaneExportsFailed: ofAgent('sealane_agent_exports', 'state="failed"', 2, 0),
  SealaneImportsWithoutBackends: ofAgent(
    'sealane_member_problems',
    'code="ImportsWithoutBackends", severity="degraded"',
    1,
    0,
  ),
  SealaneClusterDnsNotAnswering: ofAgent('sealane_agent_cluster_dns_answers', 'zone="clusterset.local"', 0, 1),
  SealaneDnsFailing: {
    fires: [
      series('sealane_dns_queries_total', `${WHO}, type="A", rcode="SERVFAIL"`, growing(10)),
      series('sealane_dns_queries_total', `${WHO}, type="A", rcode="NOERROR"`, growing(100)),
    ],
    quiet: [
      series('sealane_dns_queries_total', `${WHO}, type="A", rcode="SERVFAIL"`, growing(1)),
      series('sealane_dns_queries_total', `${WHO}, type="A", rcode="NOERROR"`, growing(100)),
    ],
  },
  SealaneRoundsFailing: plain('sealane_gateway_rounds_total', `${WHO}, result="failed"`, growing(1), '0x50 1x20'),
  SealaneObjectsNotWritten: plain(
    'sealane_agent_write_failures_total',
    `${WHO}, verb="apply", kind="ServiceImport"`,
    growing(1),
    '0x50 1x20',
  ),
  // The alert must not fire while the broker restarts.
  SealaneBrokerDown: plain('sealane_broker_store_usable', `${BROKER_1}, kind="sqlite"`, '1x50 _x20', '1x50 _x1 1x20'),
  SealaneBrokerReplicaDown: {
    fires: [
      series('sealane_broker_replicas', BROKER_1, `${UNTIL_50} 2x20`),
      series('sealane_broker_replicas', BROKER_2, `${UNTIL_50} 2x20`),
    ],
    quiet: [
      series('sealane_broker_replicas', BROKER_1, steady(3)),
      // This replica sees no other; the others see it.
      series('sealane_broker_replicas', BROKER_2, `${UNTIL_50} 0x20`),
    ],
  },
  SealaneBrokerTooFewReplicas: {
    fires: [
      series('sealane_broker_replicas', BROKER_1, `${UNTIL_50} 1x20`),
      series('sealane_broker_store_usable', `${BROKER_1}, kind="etcd"`, steady(1)),
      series('sealane_broker_store_usable', `${BROKER_2}, kind="etcd"`, '1x50 0x20'),
    ],
    quiet: [
      series('sealane_broker_replicas', BROKER_1, steady(3)),
      series('sealane_broker_store_usable', `${BROKER_1}, kind="etcd"`, steady(1)),
      series('sealane_broker_store_usable', `${BROKER_2}, kind="etcd"`, steady(1)),
      series('sealane_broker_store_usable', `${BROKER_3}, kind="etcd"`, '1x50 0x20'),
      // Another clusterset of the same brokers is not a replica.
      series('sealane_broker_store_usable', `${BROKER_1}, kind="etcd", clusterset="lab"`, steady(0)),
    ],
  },
  SealaneBrokerStoreNotAnswering: plain(
    'sealane_broker_store_usable',
    `${BROKER_1}, kind="etcd"`,
    '1x50 0x20',
    steady(1),
  ),
  SealaneBrokerStoreSlow: {
    fires: [
      series('sealane_broker_commit_seconds_bucket', `${BROKER_1}, le="0.5"`, growing(0)),
      series('sealane_broker_commit_seconds_bucket', `${BROKER_1}, le="1"`, growing(60)),
      series('sealane_broker_commit_seconds_bucket', `${BROKER_1}, le="+Inf"`, growing(60)),
    ],
    quiet: [
      series('sealane_broker_commit_seconds_bucket', `${BROKER_1}, le="0.5"`, growing(58)),
      series('sealane_broker_commit_seconds_bucket', `${BROKER_1}, le="1"`, growing(60)),
      series('sealane_broker_commit_seconds_bucket', `${BROKER_1}, le="+Inf"`, growing(60)),
    ],
  },
  SealaneBrokerReplicaBehind: {
    fires: [
      series('sealane_broker_revision', BROKER_1, '5000+600x130'),
      series('sealane_broker_revision', BROKER_2, '5000x130'),
      series('sealane_broker_revision', BROKER_3, '5000+600x130'),
    ],
    quiet: [
      series('sealane_broker_revision', BROKER_1, '5000+600x130'),
      series('sealane_broker_revision', BROKER_2, '4100+600x130'),
      // Another clusterset of the same brokers has revisions of its own.
      series('sealane_broker_revision', `${BROKER_2}, clusterset="lab"`, steady(7)),
    ],
  },
  SealaneBrokerStoreReadOnly: plain(
    'sealane_broker_store_problem',
    `${BROKER_1}, code="StateFull"`,
    '0x50 1x20',
    '1x50 0x20',
  ),
  SealaneBrokerCommitsFailing: plain('sealane_broker_commit_failures_total', BROKER_1, growing(1), '0x20 5x100'),
  SealaneBrokerRangeNearlyFull: plain(
    'sealane_broker_range_used_ratio',
    `${BROKER_1}, range="members"`,
    steady(0.95),
    steady(0.9),
  ),
  // Lines that wait for a moment only must not fire the alert.
  SealaneBrokerAuditNotWritten: plain('sealane_broker_audit_waiting_lines', BROKER_1, '0x40 5x30', '0x57 5x2 0x20'),
  SealaneBrokerAuthorityUnusable: plain('sealane_broker_authority_usable', BROKER_1, '1x40 0x30', '1x57 0x1 1x20'),
  SealaneBrokerAuthorityEndsSoon: {
    ...plain(
      'sealane_broker_authority_expiry_timestamp_seconds',
      `${BROKER_1}, role="current"`,
      steady(20 * 86_400),
      steady(40 * 86_400),
    ),
    atMinute: 90,
  },
  SealaneBrokerCertificateEndsSoon: plain(
    'sealane_broker_certificate_expiry_timestamp_seconds',
    BROKER_1,
    steady(3600 * 6),
    steady(3600 * 8),
  ),
}
