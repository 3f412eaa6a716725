/** Whether an address that somebody stated lies in a range that somebody stated. Pure. */
import { containsAddress, parseAddress, parsePrefix } from '../model/addresses/ip.ts'

/** False for what is no address or no range. */
export function isInside(address: string, range: string): boolean {
  try {
    return containsAddress(parsePrefix(range), parseAddress(address))
  } catch {
    return false
  }
}
