/** The sink that the configuration names. */
import { AUDIT_STDOUT, type AuditConfig } from '../config.ts'
import { AuditFile } from './audit-file.ts'
import { AuditOutput } from './audit-output.ts'
import type { AuditSink } from './audit-sink.ts'

/** Opens nothing yet: a file that cannot be written is no reason not to start. */
export function openAuditSink({ log, maxBytes, keep }: AuditConfig): AuditSink {
  return log === AUDIT_STDOUT ? new AuditOutput() : new AuditFile({ file: log, maxBytes, keep })
}
