/** The relays on port 443 that a broker states to its members. Pure. */
import { MAX_RELAYS, mergedRelays, relayConflict } from '../../model/lanes/lanes.ts'
import { BrokerConfigError } from '../config/config.ts'
import type { SettingsRow } from './rows.ts'

/** Those of the flags, and those that operators have added. Undefined if there never were any. */
export function statedRelays(
  settings: Pick<SettingsRow, 'relays' | 'addedRelays'> | undefined,
): readonly string[] | undefined {
  if (settings?.relays === undefined && settings?.addedRelays === undefined) return undefined
  return mergedRelays(settings.relays ?? [], addressesOf(settings))
}

/**
 * Throws BrokerConfigError if a relay of the flags has the name of an added one and another address, or if both
 * together are more than MAX_RELAYS.
 */
export function checkFlaggedRelays(flagged: readonly string[], settings: Pick<SettingsRow, 'addedRelays'>): void {
  const added = addressesOf(settings)
  const conflict = relayConflict(flagged, added)
  if (conflict !== undefined) {
    const mend = '"sealane broker relay remove" removes that one'
    const expected = `another name than ${conflict.added}, which was added; ${mend}`
    throw new BrokerConfigError('relay', conflict.flagged, expected)
  }
  const all = new Set([...flagged, ...added])
  if (flagged.length === 0 || all.size <= MAX_RELAYS) return
  const expected = `at most ${MAX_RELAYS} relays with those that were added: ${added.join(', ')}`
  throw new BrokerConfigError('relay', flagged.join(' '), expected)
}

function addressesOf({ addedRelays = [] }: Pick<SettingsRow, 'addedRelays'>): readonly string[] {
  return addedRelays.map(({ address }) => address)
}
