/** Where an endpoint is and for whom it is meant, checked in both directions. Pure. */
import { isLabelValue } from '../../model/label-syntax.ts'
import type { SliceEndpoint } from '../../model/objects.ts'
import { MAX_ZONE_HINTS } from '../../model/spec-constants.ts'

/**
 * Zone and zone hints (discovery.k8s.io/v1) as far as they can be used: a zone is the value of a label. What cannot be
 * used goes to `note` and is left out; the endpoint itself is as good as before. Hints that are too many are left out
 * as a whole: a part of them would keep some zones from the endpoint.
 */
export function usableTopology(
  { zone, hints }: SliceEndpoint,
  note: (what: string) => void,
): Pick<SliceEndpoint, 'zone' | 'hints'> {
  const isZone = (name: string): boolean => {
    if (name !== '' && isLabelValue(name)) return true
    note(`zone ${JSON.stringify(name.slice(0, 100))} is left out: not a label value`)
    return false
  }
  const names = [...new Set((hints?.forZones ?? []).map(({ name }) => name))]
  if (names.length > MAX_ZONE_HINTS) note(`hints for ${names.length} zones are left out: at most ${MAX_ZONE_HINTS}`)
  const forZones = names.length > MAX_ZONE_HINTS ? [] : names.filter(isZone).sort()
  return {
    ...(zone === undefined || zone === '' || !isZone(zone) ? {} : { zone }),
    ...(forZones.length === 0 ? {} : { hints: { forZones: forZones.map((name) => ({ name })) } }),
  }
}
