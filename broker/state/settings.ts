/** What must stay as it was at the first start, because certificates and allocations depend on it. */
import type { BrokerConfig } from '../config.ts'
import { BrokerConfigError } from '../config.ts'
import type { RecordLog } from '../log/record-log.ts'
import { SETTINGS_KEY, type SettingsRow } from './state.ts'

const FIXED = ['clusterset', 'globalRange', 'clustersetIpRange'] as const

/** Stores the settings; advertised addresses and quotas may change. Throws BrokerConfigError when a fixed one differs. */
export async function fixSettings(log: RecordLog, config: BrokerConfig): Promise<void> {
  const { clusterset, globalRange, clustersetIpRange, advertise, limits } = config
  const wanted: SettingsRow = { clusterset, globalRange, clustersetIpRange, advertise, quota: limits.quota }
  await log.transact((tx) => {
    const stored = tx.get('settings', SETTINGS_KEY)
    // Names are looked up later, and may have no answer today.
    const { resolved, timeline } = stored ?? {}
    const kept: SettingsRow = {
      ...wanted,
      ...(resolved === undefined ? {} : { resolved }),
      ...(timeline === undefined ? {} : { timeline }),
    }
    if (JSON.stringify(stored) === JSON.stringify(kept)) return
    for (const field of FIXED) {
      if (stored !== undefined && stored[field] !== wanted[field]) {
        throw new BrokerConfigError(
          field,
          wanted[field],
          `${JSON.stringify(stored[field])} as at the first start: members rely on it`,
        )
      }
    }
    tx.put('settings', SETTINGS_KEY, kept)
  })
}
