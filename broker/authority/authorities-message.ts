/** What watchers are told of the authorities. Pure. */
import type { WatchMessage } from '../../protocol/broker-api.ts'
import type { LogView } from '../log/record-log.ts'
import { AUTHORITY_KEY } from '../state/state.ts'
import { bundleOf, signingAuthority } from './plan-rotation.ts'

/** Each renewal costs the broker a few milliseconds: one second for 50 members. */
const MS_FOR_EACH = 20
const MIN_WITHIN_MS = 1000
const MAX_WITHIN_MS = 10 * 60_000

/** Undefined where there was never more than one: members have it from their join. */
export function authoritiesMessage(view: LogView): Extract<WatchMessage, { t: 'authorities' }> | undefined {
  const row = view.get('authority', AUTHORITY_KEY)
  if (row === undefined || (row.next === undefined && row.removed.length === 0)) return undefined
  const within = Math.min(MAX_WITHIN_MS, Math.max(MIN_WITHIN_MS, view.count('member') * MS_FOR_EACH))
  return {
    t: 'authorities',
    bundle: bundleOf(row).map(({ fingerprint }) => fingerprint),
    signing: signingAuthority(row).fingerprint,
    withinMs: within,
  }
}
