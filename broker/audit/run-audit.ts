/** The audit log of a broker's process: the sink that the configuration names, and the writer from start to stop. */
import { sealaneVersion } from '../../runtime/version.ts'
import { AUDIT_STDOUT, type AuditConfig, type BrokerConfig } from '../config.ts'
import { AuditFile } from './audit-file.ts'
import { AuditOutput } from './audit-output.ts'
import type { AuditSink } from './audit-sink.ts'
import type { AuditTrail } from './audit-trail.ts'

/**
 * Takes BrokerConfig.audit; undefined: there is no audit log. Opens nothing yet: a file that cannot be written is no
 * reason not to start.
 */
export function openAuditSink(config: AuditConfig | undefined): AuditSink | undefined {
  if (config === undefined) return undefined
  const { log, maxBytes, keep } = config
  return log === AUDIT_STDOUT ? new AuditOutput() : new AuditFile({ file: log, maxBytes, keep })
}

/**
 * Writes from now on, with a line that the broker starts and which settings decide who may do what. The function given
 * back ends that, with what is left and a line that says so.
 */
export function runAudit(audit: AuditTrail, config: BrokerConfig): () => Promise<void> {
  const { clusterset, advertise, globalRange, clustersetIpRange, allowedNamespaces, sourcesKept, approve } = config
  const own = { result: 'ok', who: { kind: 'broker' }, subject: clusterset } as const
  const settings = { advertise, globalRange, clustersetIpRange, allowedNamespaces, sourcesKept, approve }
  const { acceptEmptyAtMs: atMs } = config
  const accepted = atMs === undefined ? {} : { acceptEmpty: new Date(atMs).toISOString() }
  const stop = new AbortController()
  const running = audit.run(stop.signal)
  audit.report({ ...own, act: 'broker.start', details: { release: sealaneVersion(), ...settings, ...accepted } })
  return async () => {
    audit.report({ ...own, act: 'broker.stop' })
    stop.abort()
    await running
  }
}
