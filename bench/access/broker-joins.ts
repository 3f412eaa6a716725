/**
 * What a member that joins costs the broker where services are offered to some members only: its join, and all that it
 * is sent until it knows what there is for it. Without TLS, certificates and the disk.
 */
import { brokerMetrics } from '../../broker/config/broker-metrics.ts'
import { DEFAULT_BROKER_CONFIG } from '../../broker/config/broker-config.ts'
import { joinMember } from '../../broker/members/membership.ts'
import { type WriteContext, putRecord } from '../../broker/records/record-writes.ts'
import { WatchHub } from '../../broker/sessions/watch-hub.ts'
import { openMemoryLog } from '../../broker/store/memory-log.ts'
import type { ClusterId } from '../../model/ids.ts'
import type { MemberRecord } from '../../model/records.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { createMetrics } from '../../runtime/metrics/prometheus-metrics.ts'
import { median } from '../figures.ts'
import type { Size } from './many-services.ts'

const QUOTA = { ...DEFAULT_BROKER_CONFIG.limits.quota, records: 100_000 }
const RULES: WriteContext['rules'] = {
  globalRange: DEFAULT_BROKER_CONFIG.globalRange,
  clustersetIpRange: DEFAULT_BROKER_CONFIG.clustersetIpRange,
  allowedNamespaces: [],
  quota: QUOTA,
}
const EXPORTER = 'exporter' as ClusterId

/** The ms of the median member. `offered`: half of the services are for half of the members. */
export async function joinCost({ services, members }: Size, offered: boolean): Promise<number> {
  const log = openMemoryLog()
  const clock = new SystemClock()
  const metrics = brokerMetrics(createMetrics('broker'))
  const hub = new WatchHub({ log, clock, metrics }, { quota: QUOTA, addresses: [] })
  const stop = log.onCommit((changes) =>
    hub.wake(
      changes.some(({ scope }) => scope === 'record'),
      [],
    ),
  )
  const ids = Array.from({ length: members }, (_, i) => `member-${i}` as ClusterId)
  const context = (cluster: ClusterId): WriteContext => ({ cluster, rules: RULES, nowMs: clock.now() })
  const join = (cluster: ClusterId, i: number): Promise<void> =>
    log.transact((tx) => {
      const terms = { serial: cluster, expiresAtMs: clock.now() + 3_600_000, authority: 'one' }
      joinMember(
        tx,
        {
          ...{ cluster, allowedCIDRs: [], keyHash: cluster, entitled: true, connected: false },
          facts: { podCIDRs: [`10.${i}.0.0/16`], serviceCIDRs: ['172.20.0.0/16'], labels: {}, version: '0.1.0' },
          certificate: { ...terms, issuedAtMs: 0 },
          handedOut: { ...terms, bundle: [] },
          ...{ membersLimit: members + 1, renewalGraceMs: 0 },
        },
        context(cluster),
      )
    })
  await join(EXPORTER, members)
  const half = ids.filter((_, i) => i % 2 === 0)
  for (let i = 0; i < services; i += 1) {
    const record = exportOf(`service-${i}`, offered && i % 2 === 0 ? half : undefined)
    const refused = await log.transact((tx) => putRecord(tx, record, context(EXPORTER)))
    if (refused !== undefined) throw new Error(`${refused.field}: ${refused.message}`)
  }
  const times: number[] = []
  for (const [i, id] of ids.entries()) {
    const begun = performance.now()
    await join(id, i)
    const ending = new AbortController()
    const peer = { cluster: id, address: '192.0.2.1', serial: id, issuedAtMs: 0, expiresAtMs: clock.now() + 3_600_000 }
    for await (const { t } of hub.watch(peer, {}, ending.signal)) if (t === 'synced') break
    ending.abort()
    times.push(performance.now() - begun)
  }
  stop()
  hub.close()
  return median(times)
}

function exportOf(name: string, clusters: readonly ClusterId[] | undefined): MemberRecord {
  const offer = clusters === undefined ? {} : { offeredTo: [{ clusters }] }
  const ports = [{ name: 'http', protocol: 'TCP' as const, port: 80 }]
  const described = {
    sessionAffinity: 'None',
    ipFamilies: ['IPv4'],
    exportedLabels: {},
    exportedAnnotations: {},
  } as const
  const body = { kind: 'ServiceExport', uid: name, type: 'Headless', ports, ...described, ...offer } as const
  return { namespace: 'shop', name, body }
}
