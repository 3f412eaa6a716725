/** The relays on port 443 that a broker states to its members. Pure. */
import { MAX_RELAYS, mergedRelays, relayConflict } from '../../model/lanes/lanes.ts'
import type { SettingsRow } from './rows.ts'

/** Those of the flags, and those that operators have added. Undefined if there never were any. */
export function statedRelays(
  settings: Pick<SettingsRow, 'relays' | 'addedRelays'> | undefined,
): readonly string[] | undefined {
  if (settings?.relays === undefined && settings?.addedRelays === undefined) return undefined
  return mergedRelays(settings.relays ?? [], addressesOf(settings))
}

/** A relay that an operator has added, and that members do not get. */
export interface ShadowedRelay {
  readonly address: string
  /** As a sentence goes on: another relay has its name, or there are too many. */
  readonly why: string
}

/**
 * Those that were added and do not count, because flags have come since: the flags of a broker that starts are newer
 * than what was added, so they win, and an operator decides about the rest.
 */
export function shadowedRelays(settings: Pick<SettingsRow, 'relays' | 'addedRelays'>): readonly ShadowedRelay[] {
  const stated = statedRelays(settings) ?? []
  return addressesOf(settings)
    .filter((address) => !stated.includes(address))
    .map((address) => {
      const other = relayConflict(stated, [address])?.flagged
      const why = other === undefined ? `${MAX_RELAYS} others come first` : `${other} has the same name`
      return { address, why }
    })
}

/** The flag that states the relays of `settings.relays`. */
export function relayFlag({ relaysHere }: Pick<SettingsRow, 'relaysHere'>): '--relay' | '--relay-here' {
  return relaysHere === true ? '--relay-here' : '--relay'
}

function addressesOf({ addedRelays = [] }: Pick<SettingsRow, 'addedRelays'>): readonly string[] {
  return addedRelays.map(({ address }) => address)
}
