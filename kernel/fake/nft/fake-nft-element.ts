/** Elements of the fake's sets and maps: whether they fit the type, and the form in which nft lists them. */
import { familyOf, InvalidAddressError } from '../../../model/addresses/ip.ts'
import { usualAddress } from '../../route/address-text.ts'
import type { NftElement, NftMapType } from '../../nft/nft-transaction.ts'

/** The element as it is listed. Gives text, the reason, when the kernel or nft would refuse it. */
export function listedElement({ key, value }: NftElement, type: NftMapType): NftElement | string {
  if ((value === undefined) !== (type.value === undefined)) {
    return type.value === undefined ? 'a set has no values' : 'the value is missing'
  }
  try {
    const listed = listedParts(key, type.key)
    if (value === undefined || type.value === undefined) return { key: listed }
    return { key: listed, value: listedParts(value, type.value) }
  } catch (error) {
    if (error instanceof InvalidAddressError || error instanceof WrongShape) return error.message
    throw error
  }
}

/** The key alone, for a deletion, which does not look at the value. Gives the key as it came when it does not fit. */
export function listedKey(key: string, type: NftMapType): string {
  try {
    return listedParts(key, type.key)
  } catch (error) {
    if (error instanceof InvalidAddressError || error instanceof WrongShape) return key
    throw error
  }
}

class WrongShape extends Error {}

function listedParts(text: string, type: string): string {
  const parts = text.split(' . ')
  const types = type.split(' . ')
  if (parts.length !== types.length) throw new WrongShape(`invalid data type, expected ${type}`)
  return parts.map((part, i) => listedPart(part, types[i] ?? '')).join(' . ')
}

function listedPart(text: string, type: string): string {
  if (type === 'ipv4_addr' && familyOf(text) === 6) throw new WrongShape('Address family for hostname not supported')
  return type === 'ipv6_addr' ? listedIpv6(text) : text
}

/** An address, a prefix or a range. A prefix that is one address is listed as that. */
function listedIpv6(text: string): string {
  const [from = '', to] = text.split('-')
  const [address = '', length] = from.split('/')
  for (const end of to === undefined ? [address] : [address, to]) {
    if (familyOf(end) !== 6) throw new WrongShape('Address family for hostname not supported')
  }
  const listed = usualAddress(address)
  if (to !== undefined) return `${listed}-${usualAddress(to)}`
  return length === undefined || length === '128' ? listed : `${listed}/${length}`
}
