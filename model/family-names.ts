/** The names that Kubernetes has for address families, and the numbers that model/addresses/ip.ts has for them. */
import type { Family } from './addresses/ip.ts'

export type FamilyName = 'IPv4' | 'IPv6'

export function familyNumber(name: FamilyName): Family {
  return name === 'IPv4' ? 4 : 6
}

export function familyName(family: Family): FamilyName {
  return family === 4 ? 'IPv4' : 'IPv6'
}
