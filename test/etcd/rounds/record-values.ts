/**
 * The parts of a record that the checker compares, read from the form that members publish, the form that watchers
 * receive, and the form in the store.
 */
import type { MemberRecord, RecordBody } from '../../../model/records.ts'
import { anExport } from '../../broker/support/harness.ts'
import type { RecordValue } from './checker/history.ts'

const VERSION = 'sealane.test/version'

/** Returns an export that contains the version of the call that put it. */
export function versionedExport(name: string, version: number): MemberRecord {
  return anExport(name, { exportedAnnotations: { [VERSION]: String(version) } })
}

export function recordValue(body: RecordBody, createdAtMs: number, revision: number): RecordValue {
  const text = JSON.stringify({ body, createdAtMs })
  const version = body.kind === 'ServiceExport' ? body.exportedAnnotations[VERSION] : undefined
  const ips = body.kind === 'ClusterSetIP' ? body.ips : undefined
  return {
    ...(version === undefined ? {} : { version: Number(version) }),
    ...(ips === undefined ? {} : { ips }),
    ...{ revision, text },
  }
}
